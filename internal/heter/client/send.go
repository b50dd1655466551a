package client

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// sendLoop sends all messages sequentially until the client ends: lost heter-trainers'
// micro-batches, the ends of steps, and new micro-batches as capacity allows. No other goroutine
// sends micro-batches and ends, which keeps their order.
func (c *Client) sendLoop() {
	defer close(c.posted)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && !c.over {
		switch begun := time.Now(); {
		case c.needsRecovery():
			c.recoverLost()
		case c.news:
			c.news = false
			c.sayEnd()
		case c.nextUncollected() != nil:
			c.ask(c.nextUncollected())
		case len(c.pending) == 0:
			c.changed.Wait()
			c.times.Starved += time.Since(begun)
		case c.pending[0].frame == nil:
			if err := c.pack(c.pending[0]); err != nil {
				c.end(err)
			}
			c.times.Busy += time.Since(begun)
		default:
			f := c.pending[0]
			if at := c.choosePeer(f); at >= 0 {
				c.pending = c.pending[1:]
				c.send(f, at)
				continue
			}
			c.changed.Wait()
			c.times.Blocked += time.Since(begun)
		}
	}
}

// Times returns the times of sendLoop since the last call: starved without a micro-batch, blocked
// by full heter-trainers or by the end of the previous step.
func (c *Client) Times() heter.StageTimes {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.times
	c.times = heter.StageTimes{}
	return was
}

// choosePeer returns the heter-trainer for a micro-batch, -1 if none is available. c.mu is held.
func (c *Client) choosePeer(f *request) int {
	if len(c.loads) > 1 && !c.cfg.Lent && !c.committed(f.step-1) {
		return -1
	}
	for i, k := range c.links {
		c.loads[i].transferTime = c.lacks(k)
		c.loads[i].full = len(k.inFlight) >= k.welcome.Micros || len(k.inFlight) > 0 && k.bytes+c.sizeOf(f) > k.welcome.Bytes
	}
	if c.cfg.Lent {
		return choose(c.loads, (c.last+1)%len(c.loads), f.n, 1, 0)
	}
	// For the micro-batch's home, its gradient is part of a sum; another heter-trainer must send it
	// separately.
	const patience = 2
	return choose(c.loads, (c.cfg.Trainer+f.index)%len(c.loads), f.n, patience, c.agreement)
}

// send sends a micro-batch to a heter-trainer. A loss during the send makes it an orphan. c.mu is
// held, and released during writes.
func (c *Client) send(f *request, at int) {
	k := c.links[at]
	if f.n > k.welcome.Samples {
		c.end(fmt.Errorf("heter: a micro-batch of %d samples: heter-trainer %d takes %d at most; use more micro-batches", f.n, at, k.welcome.Samples))
		return
	}
	if f.link == nil {
		c.retained = append(c.retained, f)
	}
	c.last = at
	k.number++
	f.link, f.number, k.inFlight[k.number] = k, k.number, f
	k.bytes += c.sizeOf(f)
	k.place(f)
	if c.loads[at].under == 0 {
		k.since = time.Now()
	}
	c.loads[at].under += f.n
	begun := time.Now()
	err := c.sendParams(k)
	c.mu.Unlock()
	if err == nil {
		err = k.send(f)
	}
	c.mu.Lock()
	c.times.Busy += time.Since(begun)
	if err != nil {
		c.mu.Unlock()
		c.lose(k, err)
		c.mu.Lock()
	}
}

// end ends all waits with the first error. c.mu is held.
func (c *Client) end(err error) {
	if c.err == nil {
		c.err = err
	}
	c.changed.Broadcast()
}

func (c *Client) sizeOf(f *request) int { return wire.HeaderSize + c.layout.RequestBytes(f.n) }

// pack encodes a micro-batch's frame without number. c.mu is held, but not during the encoding.
func (c *Client) pack(f *request) error {
	size := c.sizeOf(f)
	take := c.frames.get(f, size)
	c.mu.Unlock()
	defer c.mu.Lock()
	b, err := take()
	if err != nil {
		c.note(fmt.Sprintf("micro-batches go over links, no longer through memory that heter-trainers of this host have, too: %v", err))
		f.slot, b = -1, make([]byte, size)
	}
	if err := wire.PutHeader((*[wire.HeaderSize]byte)(b), wire.Header{Type: message.TypeMicroBatch, Length: len(b) - wire.HeaderSize}); err != nil {
		return err
	}
	if err := c.layout.Micro(b[wire.HeaderSize:], f.micro, 0, f.step); err != nil {
		return fmt.Errorf("heter: a micro-batch of step %d: %w", f.step, err)
	}
	f.frame = b
	return nil
}
