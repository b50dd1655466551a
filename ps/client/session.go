package client

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Session is one way to all servers. Its methods may be called by any goroutine, but
// wait for each other.
type Session struct {
	c     *Client
	index int
	links []*link // by server

	mu     sync.Mutex
	split  splitter
	order  []int32     // of a push
	dups   []duplicate // of a push
	keys   []uint64    // merged, of a push
	row    []int32     // places in sums
	sums   []float32   // of merged gradients
	gather []float32   // of a message

	spare struct {
		sync.Mutex
		pulls []*Pull
	}
}

func newSession(c *Client, index int) *Session {
	l := &Session{c: c, index: index, split: splitter{servers: len(c.cfg.Servers)}}
	for i, addr := range c.cfg.Servers {
		l.links = append(l.links, newLink(c, index, i, addr))
	}
	return l
}

// fault is an error of this session that is no server's.
func (l *Session) fault(op string, step uint64, err error) error {
	return fmt.Errorf("ps: trainer %d: %s of step %d, session %d: %w", l.c.cfg.Trainer, op, step, l.index, err)
}

// table checks a batch for a sparse table, and returns how many values a row has there: as it is
// pulled, or as it is pushed.
func (l *Session) table(table int, keys []uint64, values []float32, pushed bool) (dim int, err error) {
	all := l.c.cfg.Schema.Sparse
	if table < 0 || table >= len(all) {
		return 0, fmt.Errorf("no sparse table %d: the schema has %d", table, len(all))
	}
	t := &all[table]
	if dim = t.Dim; pushed {
		dim += l.c.counts[table]
	}
	if err := checkRows(keys, values, dim); err != nil {
		return 0, fmt.Errorf("table %q: %w", t.Name, err)
	}
	if len(keys) > math.MaxInt32 {
		return 0, fmt.Errorf("table %q: %d keys in a batch: want at most %d", t.Name, len(keys), math.MaxInt32)
	}
	return dim, nil
}

// array checks a range of a dense array.
func (l *Session) array(array, lo, n int) (*schema.Dense, error) {
	all := l.c.cfg.Schema.Dense
	if array < 0 || array >= len(all) {
		return nil, fmt.Errorf("no dense array %d: the schema has %d", array, len(all))
	}
	if d := &all[array]; lo >= 0 && lo <= d.Len && n <= d.Len-lo {
		return d, nil
	}
	return nil, fmt.Errorf("array %q: %d values at %d, it has %d", all[array].Name, n, lo, all[array].Len)
}

// PullRows asks for the rows of keys in a sparse table as they are to be for a step,
// len(keys)*Dim values in order, which are in dst when Wait has returned nil. Until
// then dst is the client's. keys are the caller's again at once.
//
// It waits only when 4096 requests have no answer: a trainer can ask for a step before
// it has sent the Clock that lets it begin.
func (l *Session) PullRows(table int, step uint64, keys []uint64, dst []float32) (*Pull, error) {
	return l.rows(table, step, 0, keys, dst)
}

// PeekRows is PullRows that leaves the table as it is: a key without a row gets the
// weights with which one would begin. It is for evaluation.
func (l *Session) PeekRows(table int, step uint64, keys []uint64, dst []float32) (*Pull, error) {
	return l.rows(table, step, message.Peek, keys, dst)
}

func (l *Session) rows(table int, step, at uint64, keys []uint64, dst []float32) (*Pull, error) {
	dim, err := l.table(table, keys, dst, false)
	if err != nil {
		return nil, l.fault("pull", step, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pull(dst, dim)
	var unique []int32
	if l.c.cfg.Merge {
		if unique, p.dups = l.split.merge(keys, p.dups); len(p.dups) == 0 {
			unique = nil
		}
		l.c.count.merged.Add(int64(len(p.dups)))
	}
	l.c.count.rowsPulled.Add(int64(len(keys) - len(p.dups)))
	head := message.Head{Step: step, At: at, Table: table, Code: l.c.cfg.Pull}
	if len(l.links) == 1 && unique == nil {
		k := l.links[0]
		for lo, hi := range chunks(0, len(keys), k.rowsOf(dim)) {
			head.Count = hi - lo
			if err := k.pullRows(p, head, keys[lo:hi], nil, dst[lo*dim:hi*dim]); err != nil {
				return nil, err
			}
		}
		p.part(nil)
		return p, nil
	}
	p.order = l.split.split(keys, unique, p.order)
	for s, k := range l.links {
		lo, hi := l.split.group(s)
		for lo, hi := range chunks(lo, hi, k.rowsOf(dim)) {
			head.Count = hi - lo
			if err := k.pullRows(p, head, keys, p.order[lo:hi], nil); err != nil {
				return nil, err
			}
		}
	}
	p.part(nil)
	return p, nil
}

// PushRows sends gradients of keys' rows, len(keys)*Dim values in order, which belong
// to a step. Where the table's rule wants counts (optim.CountedRule) they are behind each row's
// gradient, and travel as they are, whatever Config.Push says. Both are the caller's again when it returns. It waits while Config.Window
// changes are not acknowledged. Without Config.Merge no key may be there twice.
//
// What the servers do with it is their mode. In bsp a row moves once a step, by the rule and the mean of what
// trainers have pushed, the sum divided by how many trainers made the step, whether or not all of them pushed this row: as
// if one trainer had a batch of all. In async and ssp it moves with each push, by the whole of it: with N trainers
// by N pushes a step, and a learning rate that suits bsp may be N times too high. In geo what is pushed is added, by no
// rule: it must be by how much the trainer's copy has moved, divided by the number of copies. A gradient there
// makes parameters worse, which is why servers of that mode take only trainers that say by the setting "sync" that they know.
func (l *Session) PushRows(table int, step uint64, keys []uint64, grads []float32) error {
	dim, err := l.table(table, keys, grads, true)
	if err != nil {
		return l.fault("push", step, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	keys, grads = l.merged(keys, grads, dim)
	l.c.count.rowsPushed.Add(int64(len(keys)))
	head := message.Head{Step: step, Table: table, Code: l.c.cfg.Push}
	if len(l.links) == 1 {
		k := l.links[0]
		for lo, hi := range chunks(0, len(keys), k.rowsOf(dim)) {
			head.Count = hi - lo
			if err := k.pushRows(head, keys[lo:hi], nil, grads[lo*dim:hi*dim]); err != nil {
				return err
			}
		}
		return nil
	}
	l.order = l.split.split(keys, nil, l.order)
	for s, k := range l.links {
		lo, hi := l.split.group(s)
		for lo, hi := range chunks(lo, hi, k.rowsOf(dim)) {
			head.Count = hi - lo
			l.gather = bytesview.Sized(l.gather, (hi-lo)*dim)
			simd.Host().Lookup(l.gather, grads, l.order[lo:hi], dim)
			if err := k.pushRows(head, keys, l.order[lo:hi], l.gather); err != nil {
				return err
			}
		}
	}
	return nil
}

// merged is a batch without keys that are in it more than once, where that is asked
// for. The keys are those of the batch, or in memory of the session.
func (l *Session) merged(keys []uint64, grads []float32, dim int) ([]uint64, []float32) {
	if !l.c.cfg.Merge {
		return keys, grads
	}
	unique, dups := l.split.merge(keys, l.dups[:0])
	if l.dups = dups; len(dups) == 0 {
		return keys, grads
	}
	l.c.count.merged.Add(int64(len(dups)))
	l.row = bytesview.Sized(l.row, len(keys))
	l.sums = sum(l.sums, grads, dim, unique, dups, l.row)
	l.keys = bytesview.Sized(l.keys, len(unique))
	for i, p := range unique {
		l.keys[i] = keys[p]
	}
	return l.keys, l.sums
}

// PullDense asks for values of a dense array from place lo on, as they are to be for a
// step. What is said of PullRows holds.
func (l *Session) PullDense(array int, step uint64, lo int, dst []float32) (*Pull, error) {
	d, err := l.array(array, lo, len(dst))
	if err != nil {
		return nil, l.fault("pull", step, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pull(dst, 1)
	head := message.Head{Step: step, Table: array, Code: l.c.cfg.Dense}
	err = l.ranges(d, lo, lo+len(dst), func(k *link, from, to int) error {
		head.At, head.Count = uint64(from), to-from
		return k.pullDense(p, head, dst[from-lo:to-lo])
	})
	if err != nil {
		return nil, err
	}
	p.part(nil)
	return p, nil
}

// PushDense sends gradients of a dense array's values from place lo on, which belong
// to a step. What is said of PushRows holds.
func (l *Session) PushDense(array int, step uint64, lo int, grads []float32) error {
	return l.dense(message.TypePushDense, message.Head{Step: step, Table: array, Code: l.c.cfg.Dense}, lo, grads)
}

// SetDense sends the first values of a whole dense array, as trainer 0 does before
// anything else. Servers that have values already leave them as they are.
func (l *Session) SetDense(array int, values []float32) error {
	return l.dense(message.TypeSetDense, message.Head{Table: array, Code: message.FP32}, 0, values)
}

func (l *Session) dense(t wire.Type, head message.Head, lo int, values []float32) error {
	d, err := l.array(head.Table, lo, len(values))
	if err != nil {
		return l.fault(message.Name(t), head.Step, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ranges(d, lo, lo+len(values), func(k *link, from, to int) error {
		head.At, head.Count = uint64(from), to-from
		return k.change(t, head, head.Code.Size(to-from), func(body []byte) error {
			return head.Code.Encode(body, values[from-lo:to-lo])
		})
	})
}

// ranges calls f with the parts of a range of an array, as servers hold them and
// messages carry them.
func (l *Session) ranges(d *schema.Dense, lo, hi int, f func(k *link, lo, hi int) error) error {
	for s, k := range l.links {
		from, to := schema.Cut(d.Len, len(l.links), s)
		for from, to := range chunks(max(from, lo), min(to, hi), k.valuesOf()) {
			if err := f(k, from, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// Clock tells all servers that this session has pushed all that it will of a step, and
// what the learning rate is from the next step on; below zero: what it is now.
// In bsp the step is applied when all sessions of all trainers have told so, as the mean of their
// pushes; in async and ssp pushes were applied, and added up, as they came: see PushRows. In ssp it bounds how far
// others may be ahead, and in geo the rate has no effect.
func (l *Session) Clock(step uint64, rate float64) error {
	return l.all(message.TypeClock, message.Head{Step: step, At: math.Float64bits(rate)})
}

func (l *Session) leave() error { return l.all(message.TypeLeave, message.Head{}) }

// all sends a change without a body to all servers.
func (l *Session) all(t wire.Type, head message.Head) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.links {
		if err := k.change(t, head, 0, nil); err != nil {
			return err
		}
	}
	return nil
}

// chunks are the parts of a range, none longer than most.
func chunks(lo, hi, most int) func(yield func(lo, hi int) bool) {
	return func(yield func(lo, hi int) bool) {
		for ; lo < hi; lo += most {
			if !yield(lo, min(hi, lo+most)) {
				return
			}
		}
	}
}

// Pull is a request under way. Wait must be called once, and it must not be used
// afterwards.
type Pull struct {
	session *Session
	dst     []float32
	dim     int
	order   []int32 // places of the batch by server, where rows have to be put to theirs
	dups    []duplicate
	done    chan struct{}

	mu    sync.Mutex
	parts int // answers that are missing, and one while requests are being made
	clock uint64
	err   error
}

// pull returns a Pull that nobody has.
func (l *Session) pull(dst []float32, dim int) *Pull {
	l.spare.Lock()
	defer l.spare.Unlock()
	var p *Pull
	if n := len(l.spare.pulls); n > 0 {
		p, l.spare.pulls = l.spare.pulls[n-1], l.spare.pulls[:n-1]
	} else {
		p = &Pull{session: l, done: make(chan struct{}, 1)}
	}
	p.dst, p.dim, p.dups, p.parts, p.clock = dst, dim, p.dups[:0], 1, math.MaxUint64
	return p
}

// more counts an answer that will come.
func (p *Pull) more() {
	p.mu.Lock()
	p.parts++
	p.mu.Unlock()
}

// part counts an answer that has come, or will not.
func (p *Pull) part(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	if p.parts--; p.parts == 0 {
		p.done <- struct{}{}
	}
}

// clocked takes what an answer says of clocks.
func (p *Pull) clocked(step uint64) {
	p.mu.Lock()
	p.clock = min(p.clock, step)
	p.mu.Unlock()
}

// WaitClocked is Wait for rows that are pulled, and returns a step whose pushes of all trainers, and of all steps before it, are in them.
func (p *Pull) WaitClocked() (step uint64, err error) {
	if err := p.arrive(); err != nil {
		return 0, err
	}
	step = p.clock
	p.giveBack()
	return step, nil
}

// Wait returns when all rows or values are in their places, or the pull has failed.
// With an error what is in the destination is undefined, and where the client has
// ended it may be written until Close returns.
func (p *Pull) Wait() error {
	err := p.arrive()
	if err == nil {
		p.giveBack()
	}
	return err
}

// arrive waits until all is in its place.
func (p *Pull) arrive() error {
	select {
	case <-p.done:
	default:
		start := time.Now()
		<-p.done // which comes: every answer has a deadline
		p.session.c.count.pullWait.Add(int64(time.Since(start)))
	}
	if p.err != nil {
		return p.err
	}
	for _, d := range p.dups {
		copy(p.dst[int(d.place)*p.dim:][:p.dim], p.dst[int(d.first)*p.dim:][:p.dim])
	}
	return nil
}

// giveBack is for whoever has no more use for it.
func (p *Pull) giveBack() {
	l := p.session
	p.dst = nil
	l.spare.Lock()
	l.spare.pulls = append(l.spare.pulls, p)
	l.spare.Unlock()
}
