package service

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// trainerParams has the parameters of a trainer, and its gradient sum.
//
// The device has the parameters and the sum of one trainer at a time. This trainer's micro-batches
// precede other trainers', to minimise switches: one per step of a trainer, unless none is ready.
type trainerParams struct {
	// values belong to the connection's reader while none of its micro-batches is queued, otherwise
	// to the working goroutine.
	values    []float32
	room      []float32 // memory for parameters by link
	have      int       // number received
	sharedSum []float32 // slot for the sum in shared memory; nil: by link
	// waiting is the number of its queued or running micro-batches. The server's lock guards it.
	waiting int
	number  uint64    // version of the parameters, from 1
	sum     []float32 // sum while the device has another trainer's
	summed  bool      // sum has values
	written chan error
}

// loan reads a piece of the parameters. An empty piece means that they are in shared memory.
func (c *conn) loan(n int) error {
	if n == 0 {
		return c.sharedParams()
	}
	own := &c.borrowed
	if err := c.idle(n, message.AskSize); err != nil {
		return err
	}
	if own.have == len(own.values) {
		own.room = bytesview.Sized(own.room, c.s.values)
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

// idle returns an error for parameters of fewer than least bytes, or for any while micro-batches
// are in flight, because these use the present parameters.
func (c *conn) idle(n, least int) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if busy := c.borrowed.waiting; n < least || busy > 0 {
		return message.Malformed("%d bytes of values to compute with, while %d micro-batches are under way", n, busy)
	}
	return nil
}

// lendable returns an error for a micro-batch without complete parameters.
func (c *conn) lendable(t *task) error {
	if own := &c.borrowed; own.number == 0 || own.have < len(own.values) {
		return message.Malformed("micro-batch %d with %d values of the part, of %d", t.head.Number, own.have, c.s.values)
	}
	return nil
}

// collect writes the sum at the end of a step. The trainer's next messages wait for the end: it
// sends none that need an answer.
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
	case <-c.stopped: // the reader returns the cause
		return nil
	}
}

// loadParams loads a micro-batch's parameters and, unless Eval, its connection's sum.
func (s *Server) loadParams(t *task) {
	c := t.conn
	own := &c.borrowed
	if s.summing != c && !t.micro.Eval {
		s.saveSum()
		if own.summed {
			copy(s.device.Gradients(), own.sum)
		} else {
			s.device.Reset()
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

// belong stores which trainer's parameters the device has.
func (s *Server) belong(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = c
}

// saveSum copies the device's sum to its trainer.
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

// collected completes the sum of a trainer and passes it to the trainer's connection.
func (s *Server) collected(t *task) error {
	c := t.conn
	if s.owner == c { // the next step has new parameters
		s.belong(nil)
	}
	own := &c.borrowed
	to := own.sharedSum
	if to == nil {
		own.sum = bytesview.Sized(own.sum, s.values)
		to = own.sum
	}
	switch {
	case s.summing == c:
		copy(to, s.device.Gradients())
		s.summing = nil
	case own.summed:
		copy(to, own.sum)
	default:
		clear(to)
	}
	own.summed = false
	if err := s.device.Err(); err != nil {
		return fmt.Errorf("the gradients for trainer %d: %w", c.hello.Trainer, err)
	}
	s.mu.Lock()
	s.figures.Steps++
	s.mu.Unlock()
	c.out <- t
	return nil
}

// writeSum writes a sum in pieces, or a reference to shared memory.
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

func (c *conn) writeFrame(typ wire.Type, head, rest []byte) error {
	var h [wire.HeaderSize]byte
	if err := wire.PutHeader(&h, wire.Header{Type: typ, Length: len(head) + len(rest)}); err != nil {
		return err
	}
	return c.io.Write([][]byte{h[:], head, rest})
}

// ready returns the next runnable task in the queue, or -1. Stateless tasks are always runnable,
// those of the device's current trainer first. s.mu is held.
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
