package service

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// sharedRegions are the regions shared with a trainer on this host: each end writes one.
type sharedRegions struct {
	requests *sharedmem.View
	back     *sharedmem.Region
}

// share opens the Broker for trainers of this host, if allowed. Otherwise all data use links.
func (s *Server) share(ctx context.Context) {
	cfg := s.cfg
	if cfg.LinkOnly || !sharedmem.Supported {
		return
	}
	d, err := sharedmem.Open(ctx, sharedmem.Config{Ticket: cfg.Ticket, Version: cfg.Version, Index: cfg.Index, Trainers: cfg.Trainers})
	if err != nil {
		cfg.Report(fmt.Sprintf("heter-trainer %d shares no memory with trainers of its host, micro-batches go over links: %v", cfg.Index, err))
		return
	}
	s.desk = d
}

// unshare frees all shared memory, after all other work.
func (s *Server) unshare() {
	s.desk.Close()
	for _, m := range s.regions {
		m.requests.Close()
		m.back.Close()
	}
}

// offer returns the trainer's access to the Broker, and none for an encrypted link.
func (c *conn) offer() (name sharedmem.Name, key sharedmem.Key) {
	if nc, _ := c.io.Link().Detach(); c.s.desk == nil || isSecure(nc) {
		return name, key
	}
	c.key = c.s.desk.Register(c.hello.Trainer, c.lend)
	return c.s.desk.Name(), c.key
}

func isSecure(nc any) bool {
	_, is := nc.(*transport.SecureConn)
	return is
}

// lend takes a trainer's memory, and creates that for results.
func (c *conn) lend(theirs *sharedmem.View) (*sharedmem.Region, error) {
	slots, lent := c.s.cfg.Micros, 0
	if c.s.cfg.Stateless { // the last slot is for sums
		slots, lent = slots+1, c.s.values
	}
	_, size := c.layout.Slots(c.s.cfg.Samples, lent)
	m, err := sharedmem.New(slots, size)
	if err != nil {
		theirs.Close()
		return nil, err
	}
	s := &sharedRegions{theirs, m}
	c.s.mu.Lock()
	c.s.regions = append(c.s.regions, s)
	c.s.mu.Unlock()
	c.shared.Store(s)
	return m, nil
}

// placed handles a micro-batch in shared memory.
func (c *conn) placed(b []byte) error {
	p, err := message.ParsePlaced(b)
	if err != nil {
		return err
	}
	s := c.shared.Load()
	switch {
	case s == nil:
		return message.Malformed("a placed micro-batch, and no memory is shared")
	case p.Samples > c.s.cfg.Samples || c.layout.RequestBytes(p.Samples) > wire.MaxPayload:
		return message.Malformed("placed micro-batch %d has %d samples, the limit is %d", p.Number, p.Samples, c.s.cfg.Samples)
	}
	t, err := c.take()
	if err != nil {
		return err
	}
	body := c.layout.RequestBytes(p.Samples) - message.HeadSize
	if err := c.room(t, wire.HeaderSize+message.HeadSize+body); err != nil {
		return err
	}
	slot, err := s.requests.Slot(p.RequestSlot, message.BodyAt+body)
	if err != nil {
		return message.Malformed("placed micro-batch %d: %v", p.Number, err)
	}
	if t.back, err = s.back.Slot(p.ResultSlot, c.layout.ResultBytes(p.Samples, p.Eval)-message.HeadSize); err != nil {
		return message.Malformed("the results of placed micro-batch %d: %v", p.Number, err)
	}
	if err := c.layout.Borrow(p.Head, slot[message.BodyAt:], t.back, &t.shared); err != nil {
		return err
	}
	t.answer, t.head, t.micro = message.TypeSharedResult, p.Head, &t.shared
	c.s.count(int64(body + len(t.back)))
	return c.queue(t)
}

// sharedParams handles parameters in shared memory. Gradients may use the link.
func (c *conn) sharedParams() error {
	if err := c.idle(0, 0); err != nil {
		return err
	}
	s, own, n := c.shared.Load(), &c.borrowed, 4*c.s.values
	if s == nil {
		return message.Malformed("values to compute with in memory, and none is shared")
	}
	values, err := s.requests.Slot(0, n)
	if err != nil {
		return message.Malformed("values to compute with: %v", err)
	}
	own.values, own.sharedSum = bytesview.As[float32](values), nil
	if sum, err := s.back.Slot(s.back.Slots()-1, n); err == nil {
		own.sharedSum = bytesview.As[float32](sum)
	}
	own.have = len(own.values)
	own.number++
	c.s.count(int64(n))
	return nil
}
