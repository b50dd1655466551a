package rows

import (
	"fmt"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/simd"
)

// MaxSessions is how many sessions, numbered from 0, a table can keep marks of.
const MaxSessions = 1024

// Stripes is how many stripes, each with a lock of its own, the rows are cut over.
const Stripes = stripes

// StripeOf is the stripe of keys with this hash.
func StripeOf(hash uint64) int { return int(hash >> (64 - stripeBits)) }

// sessions are the marks of all sessions: 512 bytes for each that was used.
type sessions struct {
	of  [MaxSessions]atomic.Pointer[appliedSeqs]
	top atomic.Int32 // no session from here on was used
}

// appliedSeqs are one session's marks: for each stripe the number of the last push that
// was applied there, guarded by the stripe's lock.
type appliedSeqs [stripes]uint64

// use returns the marks of a session. Whoever sees a mark under a stripe's lock sees
// its session below top, because that was raised before the lock was taken.
func (l *sessions) use(session int) *appliedSeqs {
	if m := l.of[session].Load(); m != nil {
		return m
	}
	l.of[session].CompareAndSwap(nil, new(appliedSeqs))
	for {
		top := l.top.Load()
		if int(top) > session || l.top.CompareAndSwap(top, int32(session+1)) {
			return l.of[session].Load()
		}
	}
}

// AppliedSeq is a session's mark in a stripe: Seq is the number of the session's last push that
// was applied there.
type AppliedSeq struct {
	Session int
	Seq     uint64
}

// list appends the marks of a stripe, which is locked, by session.
func (l *sessions) list(stripe int, dst []AppliedSeq) []AppliedSeq {
	for session := range int(l.top.Load()) {
		if m := l.of[session].Load(); m != nil && m[stripe] > 0 {
			dst = append(dst, AppliedSeq{session, m[stripe]})
		}
	}
	return dst
}

// RaiseMark makes a mark at least seq: what was restored holds these pushes.
func (t *Table) RaiseMark(stripe int, m AppliedSeq) error {
	if stripe < 0 || stripe >= stripes {
		return t.fault(fmt.Errorf("RaiseMark: stripe %d: want 0 to %d", stripe, stripes-1))
	}
	if err := checkSession(m.Session); err != nil {
		return t.fault(fmt.Errorf("RaiseMark: %w", err))
	}
	marks := t.sessions.use(m.Session)
	s := &t.stripes[stripe]
	s.Lock()
	defer s.Unlock()
	marks[stripe] = max(marks[stripe], m.Seq)
	return nil
}

func checkSession(session int) error {
	if session < 0 || session >= MaxSessions {
		return fmt.Errorf("session %d: want 0 to %d", session, MaxSessions-1)
	}
	return nil
}

// Once says what PushOnce does about keys that have no row.
type Once struct {
	// Create makes rows for them, as Push does. Otherwise a stripe with such a key is
	// left as it is.
	Create bool
	// Drop, if there is any, says for each place in the batch whether the gradient
	// is dropped where its key has no row: the caller knows that it gets none.
	Drop []bool
	// Missing gets the places of the keys for whose want a stripe was left as it
	// is, appended in no order.
	Missing []int32
}

// PushOnce is a Push that takes effect once. A session's pushes are numbered from 1 and
// come one after the other. The keys of a stripe are updated all or not at all, and
// with them the session's mark in the stripe becomes seq, in one locked visit; a stripe
// whose mark is seq or more is left as it is. Who gets an error, or missing keys, may
// therefore make the same call again.
//
// Where rows for some keys of a stripe cannot be made (ErrFull) none of the stripe's
// is updated.
func (t *Table) PushOnce(session int, seq uint64, keys []uint64, grads []float32, scale float32, o *Once) error {
	if err := t.checkOnce(session, seq, len(keys), o); err != nil {
		return err
	}
	b, err := t.beginValues("PushOnce", keys, len(grads), t.grad)
	if err != nil {
		return err
	}
	defer t.giveBatch(b)
	if err := b.unique(); err != nil {
		return t.fault(fmt.Errorf("PushOnce: %w", err))
	}
	marks, kernels := t.sessions.use(session), simd.Host()
	t.eachStripe(b, func(s *stripe, n, lo, hi int) {
		if marks[n] >= seq {
			return
		}
		whole, e := t.prepare(s, b, lo, hi, o)
		err = firstOf(err, e)
		if !whole {
			return
		}
		t.updateGroup(kernels, b, lo, hi, grads, scale)
		marks[n] = seq
	})
	if err != nil {
		return t.fault(err)
	}
	return nil
}

func (t *Table) checkOnce(session int, seq uint64, keys int, o *Once) error {
	err := checkSession(session)
	if err == nil && seq == 0 {
		err = fmt.Errorf("push 0 of session %d: numbers begin at 1", session)
	}
	if err == nil && o.Drop != nil && len(o.Drop) != keys {
		err = fmt.Errorf("what to drop of %d keys for %d keys", len(o.Drop), keys)
	}
	if err != nil {
		return t.fault(fmt.Errorf("PushOnce: %w", err))
	}
	return nil
}

// prepare looks up the rows of a stripe's keys, makes those that are to be made, and
// tells whether all can be updated now.
func (t *Table) prepare(s *stripe, b *batch, lo, hi int, o *Once) (whole bool, err error) {
	before, dropped := len(o.Missing), 0
	for ; lo < hi; lo += blockRows {
		misses := b.locate(t.index, lo, min(hi, lo+blockRows))
		if misses > 0 && o.Create {
			denied, e := t.create(s, b, lo, misses, true)
			dropped += denied
			err = firstOf(err, e)
			continue
		}
		for _, i := range b.misses[:misses] {
			if at := b.pos[lo+int(i)]; o.Drop != nil && o.Drop[at] {
				dropped++
			} else {
				o.Missing = append(o.Missing, at)
			}
		}
	}
	if err != nil || len(o.Missing) > before {
		return false, err
	}
	s.dropped += dropped
	return true, nil
}

// updateGroup applies the rule to a stripe's keys, those that have rows. prepare has
// just looked up their last block.
func (t *Table) updateGroup(kernels *simd.Kernels, b *batch, lo, hi int, grads []float32, scale float32) {
	if hi-lo <= blockRows {
		t.update(kernels, b, lo, hi, grads, scale)
		return
	}
	for ; lo < hi; lo += blockRows {
		end := min(hi, lo+blockRows)
		b.locate(t.index, lo, end)
		t.update(kernels, b, lo, end, grads, scale)
	}
}
