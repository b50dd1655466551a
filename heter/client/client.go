// Package client is a trainer's connections to the heter-trainers of its job: micro-batches go to whichever will be done first, as many
// at a time as these allow, and each comes back once. Package heter/service is the other end.
//
//	c, err := client.Dial(ctx, client.Config{Addrs: …, Cut: cut, …})
//	t, err := heter.NewTrainer(model, cut, 4, c, nn.TapeConfig{})
//	pass, err := t.Backward(batch, seed, ready) // of each step
//	err = t.End(rate)
//	err = c.Leave()
//
// # Who gets the next one
//
// A trainer measures how long each heter-trainer takes for a sample, from when it could begin to when its results are here, and
// gives a micro-batch to whom it expects to be done with it first, given what this trainer has under way there. One that is slow, or
// that others keep busy, so gets less. Which one it is depends on the time: the order in which gradients are added up does, too, and
// with several heter-trainers, or several trainers, two runs may differ in last bits.
//
// # Waiting
//
// Every wait ends by Config.Timeout, and at once when a heter-trainer is lost, refuses something or fails. A lost one is a
// *transport.ServerLostError that names it, with the step.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/heter"
	"github.com/ringo-ml/ringo/heter/message"
	"github.com/ringo-ml/ringo/internal/raw"
	psmessage "github.com/ringo-ml/ringo/ps/message"
	"github.com/ringo-ml/ringo/transport"
)

// Config says whom a trainer connects to. Ticket, Version, Addrs and Cut are needed.
type Config struct {
	Ticket            transport.Ticket
	Version           string
	Addrs             []string // of the heter-trainers, by number, HOST:PORT
	Trainer, Trainers int
	Cut               *heter.Cut
	// About says what the model is built for, in words that heter-trainers understand: service.Config.Open gets it.
	About []byte
	// Code is how what crosses travels, there and back: fp32, where nothing is said.
	Code psmessage.Code
	// Timeout bounds every wait: for heter-trainers that are not up yet, for room and for results. 0: 15 min.
	Timeout time.Duration
}

// Client is a heter.Remote. One goroutine uses it, but for Abort.
type Client struct {
	cfg   Config
	links []*link
	loads []load
	last  int           // the heter-trainer that got the last micro-batch
	step  atomic.Uint64 // under way, from 1

	mu      sync.Mutex
	changed sync.Cond
	flights map[*heter.Micro]*flight
	values  []float32 // wanted by Values, from the last ask on
	err     error
}

// flight is a micro-batch under way.
type flight struct {
	link   *link
	number uint64
	bytes  int
	done   bool
}

// Dial connects to all heter-trainers, and waits for those that are not up yet.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if len(cfg.Addrs) == 0 || cfg.Cut == nil || cfg.Trainers < 1 || cfg.Trainer < 0 || cfg.Trainer >= cfg.Trainers {
		return nil, fmt.Errorf("heter: trainer %d of %d, %d heter-trainers: want one at least, and a cut", cfg.Trainer, cfg.Trainers, len(cfg.Addrs))
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 15*time.Minute)
	c := &Client{cfg: cfg, loads: make([]load, len(cfg.Addrs)), last: cfg.Trainer % len(cfg.Addrs), flights: map[*heter.Micro]*flight{}}
	c.changed.L = &c.mu
	c.step.Store(1)
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	for i, addr := range cfg.Addrs {
		k, err := c.reach(ctx, i, addr)
		if err != nil {
			c.Abort(err)
			return nil, fmt.Errorf("heter: trainer %d: heter-trainer %d at %s: %w", cfg.Trainer, i, addr, err)
		}
		c.links = append(c.links, k)
	}
	for _, k := range c.links {
		k.begin()
	}
	return c, nil
}

// fail ends all waits with the first reason that is given.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.changed.Broadcast()
}

// Abort ends the connections at once, and all waits with cause. Any goroutine may call it.
func (c *Client) Abort(cause error) {
	c.fail(cmp.Or(cause, errors.New("the trainer has ended")))
	for _, k := range c.links {
		k.end()
	}
}

// wait waits, with c.mu held, until ok is true or something has failed.
func (c *Client) wait(what string, ok func() bool) error {
	late := false
	timer := time.AfterFunc(c.cfg.Timeout, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		late = true
		c.changed.Broadcast()
	})
	defer timer.Stop()
	for {
		switch {
		case c.err != nil:
			return c.err
		case ok():
			return nil
		case late:
			return fmt.Errorf("heter: trainer %d: step %d: %s: nothing for %v: %w", c.cfg.Trainer, c.step.Load(), what, c.cfg.Timeout, transport.ErrTimeout)
		}
		c.changed.Wait()
	}
}

// Send is heter.Remote's.
func (c *Client) Send(m *heter.Micro) error {
	k, f, err := c.book(m)
	if err != nil {
		return err
	}
	if err := k.micro(m, f.number, c.step.Load()); err != nil {
		err = k.lost(err)
		c.fail(err)
		return err
	}
	return nil
}

// book finds room for a micro-batch, and notes that it is under way there.
func (c *Client) book(m *heter.Micro) (*link, *flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[m] != nil {
		return nil, nil, errors.New("heter: the micro-batch is under way already")
	}
	at := -1
	size := c.links[0].layout.There(m.N)
	err := c.wait("room for a micro-batch", func() bool {
		for i, k := range c.links {
			c.loads[i].full = len(k.under) >= k.welcome.Micros || len(k.under) > 0 && k.bytes+size > k.welcome.Bytes
		}
		at = choose(c.loads, c.last, m.N)
		return at >= 0
	})
	if err != nil {
		return nil, nil, err
	}
	k := c.links[at]
	if m.N > k.welcome.Samples {
		return nil, nil, fmt.Errorf("heter: a micro-batch of %d samples: heter-trainer %d takes %d at most; use more micro-batches", m.N, at, k.welcome.Samples)
	}
	c.last = at
	k.number++
	f := &flight{link: k, number: k.number, bytes: size}
	c.flights[m], k.under[f.number] = f, m
	k.bytes += size
	if c.loads[at].under == 0 {
		k.since = time.Now()
	}
	c.loads[at].under += m.N
	return k, f, nil
}

// Wait is heter.Remote's.
func (c *Client) Wait(m *heter.Micro) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flights[m]
	if f == nil {
		return errors.New("heter: the micro-batch was not sent")
	}
	err := c.wait(fmt.Sprintf("the results of micro-batch %d from heter-trainer %d", f.number, f.link.index), func() bool { return f.done })
	if err == nil {
		delete(c.flights, m)
	}
	return err
}

// End is heter.Remote's.
func (c *Client) End(rate float64) error {
	c.mu.Lock()
	err, under := c.err, len(c.flights)
	c.mu.Unlock()
	if err == nil && under > 0 {
		err = fmt.Errorf("heter: the end of step %d with %d micro-batches under way", c.step.Load(), under)
	}
	if err != nil {
		return err
	}
	for _, k := range c.links {
		e := message.End{Step: c.step.Load(), Count: k.number, Rate: rate}
		if err := k.io.WriteFrame(message.TypeEnd, e.Append(nil)); err != nil {
			return k.lost(err)
		}
	}
	c.step.Add(1)
	return nil
}

// Len is how many values the part's parameters have in their arena.
func (c *Client) Len() int { return c.links[0].welcome.Values }

// Values reads the part's parameters as they are after all steps that have ended, into Len values. It is called between steps.
func (c *Client) Values(dst []float32) error {
	if len(dst) != c.Len() {
		return fmt.Errorf("heter: %d values of the part are wanted, it has %d", len(dst), c.Len())
	}
	for lo := 0; lo < len(dst); lo += message.MaxValues {
		hi := min(lo+message.MaxValues, len(dst))
		c.mu.Lock()
		c.values = dst[lo:hi]
		c.mu.Unlock()
		k := c.links[0]
		if err := k.io.WriteFrame(message.TypeAsk, message.Ask{Step: c.step.Load(), Lo: lo, Count: hi - lo}.Append(nil)); err != nil {
			return k.lost(err)
		}
		c.mu.Lock()
		err := c.wait("the part's parameters", func() bool { return c.values == nil })
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Leave says goodbye to all heter-trainers and ends the connections.
func (c *Client) Leave() error {
	var errs []error
	for _, k := range c.links {
		k.leaving.Store(true)
		errs = append(errs, k.io.WriteFrame(message.TypeGoodbye, nil))
	}
	for _, k := range c.links {
		errs = append(errs, k.io.Link().CloseWrite(c.cfg.Timeout, io.EOF))
		select {
		case <-k.over:
		case <-time.After(c.cfg.Timeout):
			errs = append(errs, k.lost(transport.ErrTimeout))
		}
		k.end()
	}
	return errors.Join(errs...)
}

// took notes that a link's micro-batch has come back. c.mu is held.
func (c *Client) took(k *link, m *heter.Micro, f *flight) {
	now := time.Now()
	l := &c.loads[k.index]
	each := now.Sub(k.since) / time.Duration(max(1, m.N))
	if l.each == 0 {
		l.each = each
	}
	l.each += (each - l.each) / 4
	l.under -= m.N
	k.since, k.bytes = now, k.bytes-f.bytes
	delete(k.under, f.number)
	f.done = true
	c.changed.Broadcast()
}

// wanted reads the answer to an ask.
func (c *Client) wanted(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil || len(b) != message.AskSize+4*len(c.values) {
		return message.Malformed("%d bytes of values, %d are wanted", len(b)-message.AskSize, 4*len(c.values))
	}
	copy(raw.Bytes(c.values), b[message.AskSize:])
	c.values = nil
	c.changed.Broadcast()
	return nil
}
