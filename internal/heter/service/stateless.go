package service

import (
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// trainerParams is what a trainer has lent, and what is summed up for it.
//
// The device has the values and the sum of one trainer at a time. Micro-batches of that one go before others, so that these change places as
// rarely as can be: once for each step of a trainer, unless it has none ready.
type trainerParams struct {
	// values belong to the connection's reader while none of its micro-batches is queued, and to who works otherwise; so does near.
	values    []float32
	room      []float32 // for those that come by the link
	have      int       // how many of them have come
	sharedSum []float32 // where the sum is wanted in shared memory; nil: by the link
	// waiting is how many of its micro-batches are queued or computed. It belongs to the server's lock.
	waiting int
	number  uint64    // of what was lent, from 1
	sum     []float32 // while the device has another's: of who works, and of the connection's writer while it writes it
	summed  bool      // there is something in sum
	written chan error
}

// loan reads a piece of what the trainer lends; one of no bytes says that all of it lies in shared memory.
func (c *conn) loan(n int) error {
	if n == 0 {
		return c.sharedParams()
	}
	own := &c.borrowed
	if err := c.idle(n, message.AskSize); err != nil {
		return err
	}
	if own.have == len(own.values) {
		own.room = bytesview.Sized(own.room, len(c.s.device.Values()))
		own.values, own.sharedSum, own.have = own.room, nil, 0
	}
	head, err := c.io.ReadAll(message.AskSize)
	if err != nil {
		return err
	}
	a, err := message.ParsePiece(head, n, len(own.values))
	if err == nil && a.Lo != own.have {
		err = message.Malformed("values from %d on, where those from %d on must come", a.Lo, own.have)
	}
	if err != nil {
		return err
	}
	if err := c.io.Read(bytesview.Bytes(own.values[a.Lo:][:a.Count])); err != nil {
		return err
	}
	if own.have += a.Count; own.have == len(own.values) {
		own.number++
	}
	return nil
}

// idle refuses values of so many bytes that are fewer than least, and any while micro-batches are under way, which are computed with those that there are.
func (c *conn) idle(n, least int) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if busy := c.borrowed.waiting; n < least || busy > 0 {
		return message.Malformed("%d bytes of values to compute with, while %d micro-batches are under way", n, busy)
	}
	return nil
}

// lendable reports a micro-batch that there is nothing to compute with.
func (c *conn) lendable(t *task) error {
	if own := &c.borrowed; own.number == 0 || own.have < len(own.values) {
		return message.Malformed("micro-batch %d with %d values of the part, of %d", t.head.Number, own.have, len(c.s.device.Values()))
	}
	return nil
}

// collect lets the sum be written at the end of a step. Until it is the trainer is not heard: it has nothing to say that it needs an answer to.
func (c *conn) collect(b []byte) error {
	e, err := c.counted(b)
	if err != nil {
		return err
	}
	if err := c.wants(message.TypeValues, message.Ask{Step: e.Step, Count: 1}, nil); err != nil {
		return err
	}
	select {
	case err = <-c.borrowed.written:
		return err
	case <-c.stopped: // as who reads the next frame is told
		return nil
	}
}

// loadParams makes the device compute for a micro-batch's trainer. An evaluation adds to no sum.
func (s *Server) loadParams(t *task) {
	c := t.conn
	own := &c.borrowed
	if s.summing != c && !t.micro.Eval {
		s.saveSum()
		if g := s.device.Gradients(); own.summed {
			copy(g, own.sum)
		} else {
			clear(g)
		}
		s.summing = c
	}
	if s.owner == c && s.loaded == own.number {
		return
	}
	copy(s.device.Values(), own.values)
	s.loaded = own.number
	s.belong(c)
}

// belong notes whose values the device has.
func (s *Server) belong(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = c
}

// saveSum takes the sum that the device has from it.
func (s *Server) saveSum() {
	if s.summing == nil {
		return
	}
	own, g := &s.summing.borrowed, s.device.Gradients()
	if own.sum == nil {
		own.sum = make([]float32, len(g))
	}
	copy(own.sum, g)
	own.summed = true
	s.summing = nil
}

// collected is the end of a trainer's sum, which its connection writes.
func (s *Server) collected(t *task) {
	c := t.conn
	if s.owner == c { // its next step brings others, and has waited for nothing yet
		s.belong(nil)
	}
	own, g := &c.borrowed, s.device.Gradients()
	to := own.sharedSum
	if to == nil {
		own.sum = bytesview.Sized(own.sum, len(g))
		to = own.sum
	}
	switch {
	case s.summing == c:
		copy(to, g)
		s.summing = nil
	case own.summed:
		copy(to, own.sum)
	default:
		clear(to)
	}
	own.summed = false
	s.mu.Lock()
	s.figures.Steps++
	s.mu.Unlock()
	c.out <- t
}

// writeSum writes a sum, in pieces, or that it lies in shared memory.
func (c *conn) writeSum(t *task) (err error) {
	own := &c.borrowed
	if own.sharedSum != nil {
		c.s.count(4 * int64(len(own.sharedSum)))
		err = c.io.WriteFrame(message.TypeValues, nil)
	} else {
		err = c.writePieces(t, own.sum)
	}
	c.free <- t
	own.written <- err
	return err
}

func (c *conn) writePieces(t *task, sum []float32) (err error) {
	for ; t.ask.Lo < len(sum) && err == nil; t.ask.Lo += t.ask.Count {
		t.ask.Count = min(message.MaxValues, len(sum)-t.ask.Lo)
		err = c.writeFrame(message.TypeValues, t.ask.Append(t.frame[:0]), bytesview.Bytes(sum[t.ask.Lo:][:t.ask.Count]))
	}
	return err
}

// writeFrame writes a frame whose payload has two parts.
func (c *conn) writeFrame(typ wire.Type, head, rest []byte) error {
	var h [wire.HeaderSize]byte
	if err := wire.PutHeader(&h, wire.Header{Type: typ, Length: len(head) + len(rest)}); err != nil {
		return err
	}
	return c.io.Write([][]byte{h[:], head, rest})
}

// ready is the next task in the queue that can be done, -1: there is none. Where trainers lend the part any can, and those for whom the device
// computes go first. s.mu is held.
func (s *Server) ready() int {
	first := -1
	for i, t := range s.queue {
		switch {
		case s.cfg.Stateless && t.conn == s.owner, !s.cfg.Stateless && t.step <= s.step:
			return i
		case s.cfg.Stateless && first < 0:
			first = i
		}
	}
	return first
}
