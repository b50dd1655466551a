package engine

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/wal"
)

// enter begins a change of a session. If again is false and err nil, the change is the session's
// next one, and the session stays locked; otherwise it is unlocked.
func (e *Engine) enter(session int, seq uint64) (l *session, again bool, t Ticket, err error) {
	if err := e.Err(); err != nil {
		return nil, false, t, err
	}
	if session < 0 || session >= len(e.sessions) {
		return nil, false, t, fmt.Errorf("tables: session %d: want 0 to %d", session, len(e.sessions)-1)
	}
	l = &e.sessions[session]
	l.mu.Lock()
	last := l.last.Load()
	switch {
	case seq <= last:
		again, t = true, l.ticket
	case seq > last+1:
		err = &gapError{session, seq, last}
	case l.lost != nil:
		err = fmt.Errorf("tables: session %d: %w", session, l.lost)
	case l.left:
		err = fmt.Errorf("tables: session %d: change %d: %w", session, seq, ErrLeft)
	default:
		return l, false, t, nil
	}
	l.mu.Unlock()
	return l, again, t, err
}

// PushRows applies gradients to rows, len(keys)*Dim values, as Config.Mode specifies. If the
// table's rule needs counts, they follow each row's gradient, which is then a sum over samples: bsp
// adds up gradients and counts without dividing. Keys must be distinct. The push is the session's
// change number seq: a repeated number has no effect and returns the session's last Ticket.
// PushRows does not keep the slices. After an error that did not stop the engine, no value has
// changed, and the caller may repeat the push.
func (e *Engine) PushRows(session int, seq uint64, table int, step uint64, keys []uint64, grads []float32) (Ticket, error) {
	return e.do(&change{kind: kindRows, session: session, table: table, seq: seq, step: step, keys: keys, values: grads})
}

// PushDense applies gradients to values of an array, from index lo of the whole array; all must
// belong to this server. In bsp, values without a push in a step count as 0 if other values of the
// array are pushed. Otherwise as PushRows.
func (e *Engine) PushDense(session int, seq uint64, array int, step uint64, lo int, grads []float32) (Ticket, error) {
	return e.do(&change{kind: kindDense, session: session, table: array, seq: seq, step: step, at: uint64(lo), values: grads})
}

// SetDense sets initial values of an array, except those already set by an earlier SetDense or a
// checkpoint. One trainer sends a server's range from its first value, in pieces without gaps. With
// the last piece the call waits until all values are durable (Config.Durability), and then permits
// pulls: after a restart without these values, the server would reject pushes of trainers that have
// pulled. Otherwise as PushDense.
func (e *Engine) SetDense(session int, seq uint64, array, lo int, values []float32) (Ticket, error) {
	c := &change{kind: kindSet, session: session, table: array, seq: seq, at: uint64(lo), values: values}
	t, err := e.do(c)
	if err == nil && c.completed {
		if err = e.Durable(t); err == nil {
			e.clocks.arraySet()
		}
	}
	return t, err
}

// do applies a session's next change of values, or buffers it until the step is complete.
func (e *Engine) do(c *change) (Ticket, error) {
	l, again, t, err := e.enter(c.session, c.seq)
	if err != nil || again {
		return t, err
	}
	defer l.mu.Unlock()
	e.gate.RLock()
	defer e.gate.RUnlock()
	if err := e.allow(l, c); err != nil {
		return t, err
	}
	if e.cfg.Mode == BSP && c.kind != kindSet {
		return e.bufferPush(l, c)
	}
	if err := e.applyChange(c); err != nil {
		return t, fmt.Errorf("tables: session %d: change %d: %w", c.session, c.seq, err)
	}
	l.keys.Add(int64(len(c.keys)))
	return e.take(l, c)
}

func (e *Engine) applyChange(c *change) error {
	c.completed = false // reset, because replay reuses one change
	if c.kind == kindRows {
		t := e.sparse[c.table]
		if err := t.table.Push(c.session, c.seq, c.keys, c.values, e.cfg.scale()); err != nil {
			return fmt.Errorf("table %q: %w", t.Name, err)
		}
		return nil
	}
	d := e.dense[c.table]
	var err error
	if c.kind == kindSet {
		c.completed, err = d.initial(int(c.at), c.values)
	} else {
		err = d.push(c.session, c.seq, c.step, int(c.at), c.values, e.cfg.scale())
	}
	if err != nil {
		return fmt.Errorf("array %q: %w", d.Name, err)
	}
	return nil
}

// allow returns an error for an invalid change. The session is locked and the gate shared.
func (e *Engine) allow(l *session, c *change) error {
	if err := e.Err(); err != nil {
		return err
	}
	err := e.fits(c)
	if err == nil && c.kind == kindDense {
		err = e.dense[c.table].ready()
	}
	if err == nil && c.kind != kindSet {
		err = e.inStep(l, c)
	}
	if err == nil && e.log != nil && c.size() > e.most {
		err = fmt.Errorf("%d bytes: the log takes %d at once: send less, or raise its buffer", c.size(), e.most)
	}
	if err != nil {
		return fmt.Errorf("tables: session %d: change %d: %w", c.session, c.seq, err)
	}
	return nil
}

// fits returns an error if the change's table, array or range is not on this server.
func (e *Engine) fits(c *change) error {
	if c.kind == kindRows {
		if c.table < 0 || c.table >= len(e.sparse) {
			return fmt.Errorf("table %d of %d", c.table, len(e.sparse))
		}
		return e.sparse[c.table].fits(c)
	}
	if c.table < 0 || c.table >= len(e.dense) {
		return fmt.Errorf("array %d of %d", c.table, len(e.dense))
	}
	d := e.dense[c.table]
	if c.at > math.MaxInt64 || len(c.keys) > 0 {
		return fmt.Errorf("array %q: values from %d on, and %d keys", d.Name, c.at, len(c.keys))
	}
	if err := d.check(int(c.at), len(c.values)); err != nil {
		return fmt.Errorf("array %q: %w", d.Name, err)
	}
	return nil
}

// inStep checks a change's step: in bsp and ssp the step after the session's clock, otherwise any
// later step.
func (e *Engine) inStep(l *session, c *change) error {
	strict := e.cfg.Mode == BSP || e.cfg.Mode == SSP
	if c.step <= l.clock || strict && c.step != l.clock+1 {
		return fmt.Errorf("step %d after step %d was clocked: want step %d", c.step, l.clock, l.clock+1)
	}
	return nil
}

// take logs an applied change and counts it.
func (e *Engine) take(l *session, c *change) (Ticket, error) {
	t, err := e.append(&l.head, c)
	if err != nil {
		return t, err
	}
	l.ticket = t
	l.last.Store(c.seq)
	l.pushes.Add(1)
	return t, nil
}

// append writes a change to the log, if the engine has one. A write error stops the engine, because
// it would no longer know which changes are in the log.
func (e *Engine) append(head *[headBytes]byte, c *change) (t Ticket, err error) {
	if e.log == nil {
		return t, nil
	}
	c.putHead(head)
	keys, values := bytesview.Bytes(c.keys), bytesview.Bytes(c.values)
	if t, err = e.log.Append(head[:], keys, values); err != nil {
		e.fail(err)
		return t, err
	}
	e.bound.add(c.size())
	return t, nil
}

// bufferPush buffers a push until its step is complete.
func (e *Engine) bufferPush(l *session, c *change) (Ticket, error) {
	p, err := e.prepare(c)
	if err != nil {
		return Ticket{}, err
	}
	t, err := e.take(l, c)
	if err != nil {
		e.steps.pushes.Put(p)
		return t, err
	}
	l.keys.Add(int64(len(c.keys)))
	e.steps.add(c.step, t.Number, p, c.kind == kindRows)
	return t, nil
}

func (e *Engine) prepare(c *change) (*push, error) {
	p := e.steps.pushes.Get()
	if c.kind == kindDense {
		p.setDense(c.session, c.seq, c.table, int(c.at), c.values)
		return p, nil
	}
	if err := p.setRows(c.session, c.seq, c.table, e.sparse[c.table].width, c.keys, c.values); err != nil {
		e.steps.pushes.Put(p)
		return nil, fmt.Errorf("tables: session %d: change %d: table %q: %w", c.session, c.seq, e.sparse[c.table].Name, err)
	}
	return p, nil
}

// Clock reports that all pushes of a step and this session have been made. rate is the learning
// rate of all rules from the next step, set by the most advanced session (in bsp by the session
// with the lowest number); below 0 the rate is unchanged. In bsp Clock returns after the steps that
// it completes are applied.
func (e *Engine) Clock(session int, seq uint64, step uint64, rate float64) (Ticket, error) {
	if math.IsNaN(rate) || math.IsInf(rate, 0) || math.IsInf(float64(float32(rate)), 0) {
		return Ticket{}, fmt.Errorf("tables: session %d: change %d: learning rate %s: want a finite number", session, seq, quantity.Exact(rate))
	}
	if rate < 0 || e.cfg.Mode == Geo {
		rate = -1
	}
	l, again, t, err := e.enter(session, seq)
	if err != nil || again {
		return t, err
	}
	defer l.mu.Unlock()
	if e.enterAs(rate) {
		defer e.gate.Unlock()
	} else {
		defer e.gate.RUnlock()
	}
	c := change{kind: kindClock, session: session, seq: seq, step: step, at: math.Float64bits(rate)}
	if err := e.Err(); err != nil {
		return t, err
	}
	if err := e.inStep(l, &c); err != nil {
		return t, fmt.Errorf("tables: session %d: change %d: %w", session, seq, err)
	}
	return e.event(l, &c)
}

// enterAs locks the gate, and alone reports whether exclusively: this is necessary if rate changes
// while other sessions may push.
func (e *Engine) enterAs(rate float64) (alone bool) {
	changes := func() bool {
		return e.cfg.Mode != BSP && rate >= 0 && math.Float64bits(rate) != e.rate.Load()
	}
	if !changes() {
		e.gate.RLock()
		if !changes() { // unchanged while the gate is held
			return false
		}
		e.gate.RUnlock()
	}
	e.gate.Lock()
	return true
}

// Leave ends a session's changes: no trainer waits for the session any more. In bsp the session's
// pushes of steps that it has not clocked are dropped.
func (e *Engine) Leave(session int, seq uint64) (Ticket, error) {
	l, again, t, err := e.enter(session, seq)
	if err != nil || again {
		return t, err
	}
	defer l.mu.Unlock()
	e.gate.RLock()
	defer e.gate.RUnlock()
	if err := e.Err(); err != nil {
		return t, err
	}
	return e.event(l, &change{kind: kindLeave, session: session, seq: seq})
}

// Lost reports that a trainer will not return. The engine stops with a *LostError; with ContinueJob
// it continues as if the trainer had left. For a trainer that has left or was lost before, Lost has
// no effect.
func (e *Engine) Lost(trainer int, cause error) error {
	if trainer < 0 || trainer >= e.cfg.Trainers {
		return fmt.Errorf("tables: trainer %d was lost: want 0 to %d", trainer, e.cfg.Trainers-1)
	}
	lost := &LostError{trainer, cause}
	for session := trainer * e.cfg.Sessions; session < (trainer+1)*e.cfg.Sessions; session++ {
		if err := e.markLost(session, lost); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) markLost(session int, lost *LostError) error {
	l := &e.sessions[session]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left {
		return nil
	}
	if err := e.Err(); err != nil {
		return err
	}
	if e.cfg.Lost != ContinueJob {
		e.fail(lost)
		return lost
	}
	e.gate.RLock()
	defer e.gate.RUnlock()
	if err := e.Err(); err != nil {
		return err
	}
	l.lost = lost
	_, err := e.event(l, &change{kind: kindLost, session: session})
	return err
}

// event logs a change of the clocks and applies it.
func (e *Engine) event(l *session, c *change) (t wal.LSN, err error) {
	e.control.Lock()
	t, err = e.append(&l.head, c)
	if err == nil {
		e.advanceClocks(l, c, t.Number)
	}
	e.control.Unlock()
	if err != nil {
		return t, err
	}
	l.ticket = t
	if c.kind != kindLost {
		l.last.Store(c.seq)
	}
	return t, e.applySteps()
}

// advanceClocks applies a change of the clocks. The caller holds e.control, or replays the log at
// the start.
func (e *Engine) advanceClocks(l *session, c *change, record uint64) {
	if c.kind != kindClock {
		l.left = true
		e.clocks.leave(c.session)
	} else {
		l.clock = c.step
		rate := math.Float64frombits(c.at)
		if e.cfg.Mode == BSP {
			e.steps.offer(c.step, record, c.session, rate)
		}
		if leads := e.clocks.advance(c.session, c.step); leads && e.cfg.Mode != BSP {
			e.setRate(rate)
		}
	}
	if e.cfg.Mode == BSP {
		e.steps.decide(e.clocks)
	}
}

// setRate sets the learning rate of all rules; below 0 it has no effect. No push may run
// concurrently: the gate is held exclusively, the rate is unchanged, or the mode is bsp.
func (e *Engine) setRate(rate float64) {
	if rate < 0 || math.Float64bits(rate) == e.rate.Load() {
		return
	}
	for _, t := range e.sparse {
		if t.rated != nil {
			t.rated.SetLR(rate)
		}
	}
	for _, d := range e.dense {
		d.setLR(rate)
	}
	e.rate.Store(math.Float64bits(rate))
}

// applySteps applies all complete steps, in bsp.
func (e *Engine) applySteps() error {
	if e.cfg.Mode != BSP {
		return nil
	}
	e.merging.Lock()
	defer e.merging.Unlock()
	for {
		if err := e.Err(); err != nil {
			return err
		}
		k, done := e.steps.next()
		if k == nil {
			e.clocks.setApplied(done)
			return nil
		}
		if err := e.apply(k); err != nil {
			err = fmt.Errorf("tables: step %d: applying its sum: %w", k.number, err)
			e.fail(err)
			return err
		}
		e.clocks.setApplied(k.number)
		e.steps.end(k)
	}
}

// apply applies the mean of a step's pushes. e.merging is held, and the gate shared.
func (e *Engine) apply(k *step) error {
	scale := 1 / float32(max(1, k.n))
	for i, list := range k.rows {
		list = k.chosen(list, e.cfg.Sessions)
		if len(list) == 0 {
			continue
		}
		t := e.sparse[i]
		keys, sums := e.merger.merge(list, t.width)
		if err := pushSum(t.table, k.number, t.width, keys, sums, t.scale(scale)); err != nil {
			return fmt.Errorf("table %q: %w", t.Name, err)
		}
	}
	for i, list := range k.dense {
		list = k.chosen(list, e.cfg.Sessions)
		if len(list) == 0 {
			continue
		}
		d := e.dense[i]
		e.total = bytesview.Sized(e.total, d.hi-d.lo)
		mergeDense(e.merger.kernels, list, e.cfg.Sessions, d.lo, e.total)
		if err := d.push(0, k.number, k.number, d.lo, e.total, scale); err != nil {
			return fmt.Errorf("array %q: %w", d.Name, err)
		}
	}
	e.setRate(k.rate)
	return nil
}
