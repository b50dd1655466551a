package service

import (
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/internal/wire"
)

// pull is a received request. Config.Pulls limits the number of pulls of a connection.
type pull struct {
	t    wire.Type
	h    message.Head
	body message.Buffer
	keys []uint64

	entry record.Op
}

// parked has the pulls of all connections that wait until other trainers have clocked a step.
type parked struct {
	mu    sync.Mutex
	pulls map[*pull]struct{}
}

// add records the trainer that a pull waits for, until remove.
func (w *parked) add(s *Server, p *pull) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pulls == nil {
		w.pulls = map[*pull]struct{}{}
	}
	w.pulls[p] = struct{}{}
	s.book.Wait(p.entry, s.engine.WaitsFor(p.h.Step))
}

// remove removes a pull; a failed pull keeps the recorded trainer.
func (w *parked) remove(s *Server, p *pull, failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.pulls, p); !failed {
		s.book.Wait(p.entry, -1)
	}
}

// look updates the recorded trainers after a trainer's progress.
func (w *parked) look(s *Server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.pulls {
		if t := s.engine.WaitsFor(p.h.Step); t >= 0 { // otherwise the pull is about to continue
			s.book.Wait(p.entry, t)
		}
	}
}

// pull reads a request and answers it, or parks it until the step may begin.
func (c *conn) pull(t wire.Type, h message.Head, n int) error {
	p := c.pulls.try(n)
	if p == nil {
		return fmt.Errorf("%w: a %s while %d wait for their answers, which is the limit", message.ErrMalformed, message.Name(t), c.s.cfg.Pulls)
	}
	p.t, p.h = t, h
	body := p.body.Sized(n)
	if err := c.io.Read(body); err != nil {
		return err
	}
	p.keys, p.entry = bytesview.As[uint64](body), c.begin(t, h, n)
	if c.engine.Await(c.s.tried, c.hello.Trainer, h.Step) != nil {
		c.park(p)
		return nil
	}
	if c.out.free.inUse() && c.handOver(p) {
		return nil
	}
	return c.answer(p, nil)
}

// handOver passes a pull to the connection's helper goroutine, if it is idle, so that two pulls are
// answered in parallel. Before the next change, the reading goroutine waits for the helper.
func (c *conn) handOver(p *pull) bool {
	c.pullsBefore.Add(1)
	select {
	case c.helper <- p:
		return true
	default:
		c.pullsBefore.Done()
		return false
	}
}

// help answers pulls passed by handOver.
func (c *conn) help() {
	for {
		select {
		case p := <-c.helper:
			err := c.answer(p, nil)
			c.pullsBefore.Done()
			if err != nil {
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// park passes a pull to an idle parker, a goroutine that waits for its step, or to a new parker.
func (c *conn) park(p *pull) {
	c.s.count.parked.Add(1)
	select {
	case c.parking <- p:
	default:
		c.parkers.Go(func() { c.parker(p) })
	}
}

func (c *conn) parker(p *pull) {
	for {
		c.s.parked.add(c.s, p)
		if p.t == message.TypePullRows && p.h.At != message.Peek {
			c.engine.Prefetch(c.ctx, p.h.Table, p.keys)
		}
		err := c.engine.Await(c.ctx, c.hello.Trainer, p.h.Step)
		c.s.parked.remove(c.s, p, err != nil || c.ctx.Err() != nil)
		if c.ctx.Err() != nil {
			c.s.book.End(p.entry, true)
			return // the trainer retries after it reconnects
		}
		if c.answer(p, err) != nil {
			return
		}
		select {
		case p = <-c.parking:
		case <-c.ctx.Done():
			return
		}
	}
}

// answer gathers the values of a pull into the frame to send, or sends the cause of its failure. It
// waits for the trainer to read earlier answers, and fails only when the connection ends.
func (c *conn) answer(p *pull, cause error) error {
	r := c.out.free.take(c.ctx, message.Front+p.h.Code.Size(c.requestedRows(p)))
	if r == nil {
		c.s.book.End(p.entry, true)
		return message.ErrInterrupted
	}
	if cause == nil {
		cause = c.gather(r, p)
	}
	if cause != nil {
		r.fail(p.h, cause)
	}
	c.s.book.End(p.entry, cause != nil)
	c.s.count.pulls.Add(1)
	c.pulls.give(p) // before the answer: it permits the trainer's next pull
	c.out.put(r)
	return nil
}

func (c *conn) requestedRows(p *pull) int {
	if p.t == message.TypePullRows {
		return p.h.Count * c.limits.Dims[p.h.Table]
	}
	return p.h.Count
}

func (c *conn) gather(r *reply, p *pull) error {
	h, t, n := p.h, message.TypeValues, c.requestedRows(p)
	if p.t == message.TypePullRows {
		t = message.TypeRows
		c.s.count.rowsPulled.Add(int64(h.Count))
	}
	r.frame = r.buf.Sized(message.Front + h.Code.Size(n))
	body := r.frame[message.Front:]
	var values []float32
	if h.Code == message.FP32 {
		values = bytesview.As[float32](body)
	} else {
		r.values = bytesview.Sized(r.values, n)
		values = r.values
	}
	var err error
	switch {
	case p.t != message.TypePullRows:
		err = c.engine.PullDense(h.Table, int(h.At), values)
	case h.At == message.Peek:
		err = c.engine.PeekRows(h.Table, p.keys, values)
	default:
		id := rows.PullID{Session: c.session, Process: c.hello.Incarnation, Number: h.Number, Oldest: h.At >> 1}
		h.At = c.engine.Clocked()
		err = c.engine.PullRows(id, h.Table, p.keys, values)
	}
	if err == nil && h.Code != message.FP32 {
		err = h.Code.Encode(body, values)
	}
	if err != nil {
		return err
	}
	return message.PutFront(r.frame, t, h)
}
