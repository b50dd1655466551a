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

// Session connects to all servers. Concurrent calls of its methods are safe, but run sequentially.
type Session struct {
	c     *Client
	index int
	links []*link // links by server

	mu     sync.Mutex
	split  splitter
	order  []int32     // buffer of a push
	dups   []duplicate // buffer of a push
	keys   []uint64    // merged keys of a push
	row    []int32     // indices in sums
	sums   []float32   // sums of merged gradients
	gather []float32   // gradients of a message
	coded  codedPush

	spare bytesview.FreeList[Pull]
}

func newSession(c *Client, index int) *Session {
	l := &Session{c: c, index: index, split: splitter{servers: len(c.cfg.Servers)}}
	for i, addr := range c.cfg.Servers {
		l.links = append(l.links, newLink(c, index, i, addr))
	}
	return l
}

func (l *Session) fault(op string, step uint64, err error) error {
	return fmt.Errorf("ps: trainer %d: %s of step %d, session %d: %w", l.c.cfg.Trainer, op, step, l.index, err)
}

// table checks a batch for a sparse table, and returns the number of values per row that are
// pulled, or pushed.
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

// PullRows requests the rows of keys in a sparse table for a step, len(keys)*Dim values in order,
// valid in dst once Wait has returned nil. Until then dst belongs to the client; keys may be reused
// immediately.
//
// PullRows blocks only while 4096 requests are unanswered: a trainer can therefore request rows for
// a step before the Clock of the step before.
func (l *Session) PullRows(table int, step uint64, keys []uint64, dst []float32) (*Pull, error) {
	return l.rows(table, step, 0, keys, dst)
}

// PeekRows is PullRows without creating rows, for evaluation: new keys get initial weights.
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

// PushRows sends gradients of keys' rows, len(keys)*Dim values in order, for a step. If the table's
// rule needs counts (optim.CountedRule), they follow each row's gradient, and are never encoded.
// After PushRows returns, both slices may be reused. It blocks while Config.Window changes are
// unacknowledged. Without Config.Merge keys must be distinct.
//
// The servers' mode determines the effect. In bsp a row is updated once per step, by the rule and
// the mean of the trainers' pushes: the sum divided by the number of trainers in the step,
// including trainers without a push of this row, as for one large batch. In async and ssp each push
// updates the row by its full gradient: N trainers make N updates per step, and a learning rate for
// bsp may be N times too high. In geo servers add pushes to the rows without a rule: a push must be
// the change of the trainer's copy, divided by the number of copies, and not a gradient. Servers in
// geo mode therefore accept only trainers with the setting "sync".
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

// merged returns a batch without duplicate keys, if Config.Merge is set. The result is in the
// caller's memory or the session's.
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

// PullDense requests values of a dense array from index lo for a step, as PullRows does.
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

// PushDense sends gradients of a dense array's values from index lo for a step, as PushRows does.
func (l *Session) PushDense(array int, step uint64, lo int, grads []float32) error {
	return l.dense(message.TypePushDense, message.Head{Step: step, Table: array, Code: l.c.cfg.Dense}, lo, grads)
}

// SetDense sends the initial values of a whole dense array: trainer 0 calls it first. Servers with
// existing values ignore it.
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

// ranges calls f with the parts of a range of an array, by server and message.
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

// Clock reports to all servers that the session has sent all pushes of a step, and sets the
// learning rate from the next step; below zero: unchanged. In bsp servers apply the step when all
// sessions of all trainers have clocked it, with the mean of their pushes; in async and ssp pushes
// were applied on arrival: see PushRows. In ssp no trainer may be more than some steps ahead of the
// slowest trainer's clock. In geo the rate has no effect.
func (l *Session) Clock(step uint64, rate float64) error {
	return l.all(message.TypeClock, message.Head{Step: step, At: math.Float64bits(rate)})
}

func (l *Session) leave() error { return l.all(message.TypeLeave, message.Head{}) }

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

// chunks iterates over parts of [lo, hi), each of at most `most` elements.
func chunks(lo, hi, most int) func(yield func(lo, hi int) bool) {
	return func(yield func(lo, hi int) bool) {
		for ; lo < hi; lo += most {
			if !yield(lo, min(hi, lo+most)) {
				return
			}
		}
	}
}

// Pull is a request in flight. Wait must be called exactly once; later the Pull must not be used.
type Pull struct {
	session *Session
	dst     []float32
	dim     int
	order   []int32 // indices of the batch by server, for rows of several servers
	dups    []duplicate
	done    chan struct{}

	mu    sync.Mutex
	parts int // missing answers, and one while requests are being made
	clock uint64
	err   error
}

func (l *Session) pull(dst []float32, dim int) *Pull {
	p := l.spare.Get()
	if p.session == nil {
		p.session, p.done = l, make(chan struct{}, 1)
	}
	p.dst, p.dim, p.dups, p.parts, p.clock = dst, dim, p.dups[:0], 1, math.MaxUint64
	return p
}

func (p *Pull) more() {
	p.mu.Lock()
	p.parts++
	p.mu.Unlock()
}

// part counts an answer to the pull, or its first error.
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

// clocked records the step that an answer includes.
func (p *Pull) clocked(step uint64) {
	p.mu.Lock()
	p.clock = min(p.clock, step)
	p.mu.Unlock()
}

// WaitClocked is Wait, and returns the last step up to which the rows include all pushes.
func (p *Pull) WaitClocked() (step uint64, err error) {
	if err := p.arrive(); err != nil {
		return 0, err
	}
	step = p.clock
	p.giveBack()
	return step, nil
}

// Wait blocks until all rows or values are in dst, or the pull has failed. After an error dst is
// undefined, and after the client's end it may be written until Close returns.
func (p *Pull) Wait() error {
	err := p.arrive()
	if err == nil {
		p.giveBack()
	}
	return err
}

// arrive waits for all answers, and copies duplicate rows.
func (p *Pull) arrive() error {
	select {
	case <-p.done:
	default:
		start := time.Now()
		<-p.done // bounded: every answer has a deadline
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

func (p *Pull) giveBack() {
	p.dst = nil
	p.session.spare.Put(p)
}
