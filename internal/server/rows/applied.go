package rows

import (
	"fmt"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/simd"
)

// MaxSessions is the maximum number of sessions of a table, numbered from 0.
const MaxSessions = 1024

// StripeOf returns the stripe of keys with this hash.
func StripeOf(hash uint64) int { return int(hash >> (64 - stripeBits)) }

// sessions holds the applied sequence numbers of all sessions: 512 bytes per used session.
type sessions struct {
	of  [MaxSessions]atomic.Pointer[appliedSeqs]
	top atomic.Int32 // upper bound of the used sessions
}

// appliedSeqs has the number of a session's last push in each stripe, under the stripe's lock.
type appliedSeqs [stripes]uint64

// use returns the numbers of a session. It first raises top, so that any holder of a stripe's lock
// finds all sessions that have a number in the stripe below top.
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

// AppliedSeq is the number Seq of a session's last applied push in a stripe.
type AppliedSeq struct {
	Session int
	Seq     uint64
}

// list appends the numbers of a locked stripe, by session.
func (l *sessions) list(stripe int, dst []AppliedSeq) []AppliedSeq {
	for session := range int(l.top.Load()) {
		if m := l.of[session].Load(); m != nil && m[stripe] > 0 {
			dst = append(dst, AppliedSeq{session, m[stripe]})
		}
	}
	return dst
}

// RaiseMark raises a stripe's number of a session to at least m.Seq, after a restore of its rows.
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

// Once selects how PushOnce treats keys without a row.
type Once struct {
	// Create creates rows for these keys, and drops the gradients of keys that Admit rejects.
	// Without Create a stripe with such a key is unchanged, unless Drop has the key.
	Create bool
	// Drop, unless nil, reports for each index of the batch whether the gradient of a key without a
	// row is dropped: the caller does not create its row.
	Drop []bool
	// Missing gets the indices of keys that prevented a stripe's update, in no order.
	Missing []int32
}

// PushOnce applies the rule with gradients of keys, len(keys)*PushDim values in order, each
// multiplied by scale, and takes effect once. A batch with a duplicate key is rejected as a whole:
// clients sum such gradients. A session's pushes are numbered from 1 and sequential. A stripe is a
// part of the table with one lock. PushOnce locks each stripe once, updates all of its keys or
// none, and sets the session's number in the stripe to seq. It skips a stripe that has a number of
// seq or more. After an error or missing keys, the caller may therefore repeat the call.
//
// If rows for some keys of a stripe cannot be created (ErrFull), no key of the stripe is updated.
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

// prepare looks up the rows of a stripe's keys, creates rows as o specifies, and reports whether
// all keys can be updated now.
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

// updateGroup applies the rule to those keys of a stripe that have rows. prepare has looked up the
// last block of them.
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
