package client

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/wire"
)

// sentParams is what a trainer lends heter-trainers, and what it collects. All but the sum belongs
// to Client.mu.
type sentParams struct {
	values     []float32 // constant while micro-batches are under way; in shared memory if placed
	placed     bool
	localCopy  []float32     // memory of this process for values
	number     uint64        // of these values, from 1
	collecting bool          // the step's last micro-batch was sent
	took       time.Duration // to send them, the last time
	copied     time.Duration // to copy them, as who reads them in shared memory does, too
	adding     int           // sums that have come whole and are not added up yet

	mu    sync.Mutex // of the sum
	sum   []float32
	begun bool // there is something in it
}

// paramState is what a heter-trainer has of it. It belongs to Client.mu, but sum and have, which
// are the reader's.
type paramState struct {
	number uint64 // of the values that it was lent last
	placed bool   // in shared memory
	asked  bool   // for its sum
	upTo   uint64 // the last micro-batch that this has
	sum    []float32
	have   int // how many values of it have come
}

// Lend is heter.StatelessStage's. Values that are as they were are not sent again.
func (c *Client) Lend(values []float32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case len(values) != c.Len():
		return fmt.Errorf("heter: %d values of the part to lend: heter-trainers compute with %d", len(values), c.Len())
	case len(c.requests) > 0 || len(c.retained) > 0:
		return fmt.Errorf("heter: values of the part for step %d, with %d micro-batches under way and %d not collected", c.step.Load(), len(c.requests), len(c.retained))
	case slices.Equal(values, c.params.values):
		return nil
	}
	l, begun := &c.params, time.Now()
	if b := c.loan(4 * len(values)); b != nil {
		l.values, l.placed = bytesview.As[float32](b), true
	} else {
		l.localCopy = bytesview.Sized(l.localCopy, len(values))
		l.values, l.placed = l.localCopy, false
	}
	copy(l.values, values)
	l.number++
	l.copied = time.Since(begun)
	return nil
}

// RequestGradients is heter.StatelessStage's.
func (c *Client) RequestGradients() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.params.collecting = true
	c.changed.Broadcast()
	return c.err
}

// Gradients is heter.StatelessStage's.
func (c *Client) Gradients(dst []float32) error {
	l := &c.params
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.collecting || len(dst) != c.Len() {
		return fmt.Errorf("heter: %d values for the gradients of step %d: want %d, and nothing to come behind it", len(dst), c.step.Load(), c.Len())
	}
	err := c.wait("the part's gradients", func() bool { return len(c.retained) == 0 && l.adding == 0 })
	if err != nil {
		return err
	}
	l.collecting = false
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		return errors.New("heter: the gradients of a step without micro-batches")
	}
	copy(dst, l.sum)
	l.begun = false
	return nil
}

// nextUncollected is a heter-trainer that has a sum, and was not asked for it. c.mu is held.
func (c *Client) nextUncollected() *link {
	if !c.params.collecting || len(c.pending) > 0 || len(c.orphans) > 0 {
		return nil
	}
	for _, k := range c.links {
		if !k.isLost && !k.lending.asked && slices.ContainsFunc(c.retained, func(f *request) bool { return f.link == k && !f.eval }) {
			return k
		}
	}
	return nil
}

// ask asks for a sum. c.mu is held, and let go meanwhile.
func (c *Client) ask(k *link) {
	k.lending.asked, k.lending.upTo = true, k.number
	e := message.End{Step: c.step.Load(), Count: k.number, Attempt: 1}
	c.mu.Unlock()
	defer c.mu.Lock()
	if err := k.io.WriteFrame(message.TypeEnd, e.Append(nil)); err != nil {
		c.lose(k, err)
	}
}

// lacks is how long it takes to send a heter-trainer what is lent, if it has it not, and as long again for the gradients. c.mu is held.
func (c *Client) lacks(k *link) time.Duration {
	if k.lending.number == c.params.number {
		return 0
	}
	if c.params.placed && k.view != nil {
		return 2 * c.params.copied
	}
	return 2 * c.params.took
}

// sendParams sends what is lent to who has it not yet. c.mu is held, and let go meanwhile: nobody
// else writes micro-batches, and values stay while some are under way.
func (c *Client) sendParams(k *link) error {
	values, number := c.params.values, c.params.number
	if k.lending.number == number {
		return nil
	}
	k.lending.number, k.lending.placed = number, c.params.placed && k.view != nil
	if k.lending.placed {
		c.mu.Unlock()
		defer c.mu.Lock()
		return k.io.WriteFrame(message.TypePut, nil)
	}
	begun := time.Now()
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.params.took = time.Since(begun)
	}()
	for lo := 0; lo < len(values); lo += message.MaxValues {
		x := values[lo:min(lo+message.MaxValues, len(values))]
		b := make([]byte, wire.HeaderSize, wire.HeaderSize+message.AskSize)
		if err := wire.PutHeader((*[wire.HeaderSize]byte)(b), wire.Header{Type: message.TypePut, Length: message.AskSize + 4*len(x)}); err != nil {
			return err
		}
		b = message.Ask{Step: c.step.Load(), Lo: lo, Count: len(x)}.Append(b)
		if err := k.io.Write(net.Buffers{b, bytesview.Bytes(x)}); err != nil {
			return err
		}
	}
	return nil
}

// summed reads a piece of a sum; one of no bytes says that all of it lies in shared memory.
func (k *link) summed(n int) error {
	if n == 0 {
		return k.placedSum()
	}
	own := &k.lending
	k.c.mu.Lock()
	asked := own.asked
	k.c.mu.Unlock()
	if !asked || n < message.AskSize {
		return message.Malformed("%d bytes of a sum that nobody has asked for", n)
	}
	head, err := k.io.ReadAll(message.AskSize)
	if err != nil {
		return err
	}
	own.sum = bytesview.Sized(own.sum, k.c.Len())
	a, err := message.ParsePiece(head, n, len(own.sum))
	if err == nil && a.Lo != own.have {
		err = message.Malformed("gradients from %d on, where those from %d on must come", a.Lo, own.have)
	}
	if err != nil {
		return err
	}
	if err := k.io.Read(bytesview.Bytes(own.sum[a.Lo:][:a.Count])); err != nil {
		return err
	}
	if own.have += a.Count; own.have < len(own.sum) {
		return nil
	}
	own.have = 0
	return k.c.gathered(k, own.sum, true)
}

// gathered takes a sum that is whole. From when it is noted that micro-batches are in it they are not sent again, whatever becomes of the
// heter-trainer; one that was lost before has computed them in vain. The sum is the link's own, or others may write it when it is asked for again.
func (c *Client) gathered(k *link, sum []float32, own bool) error {
	c.mu.Lock()
	if k.isLost {
		c.mu.Unlock()
		return nil
	}
	in := func(f *request) bool { return f.link == k && !f.eval && f.number <= k.lending.upTo }
	if slices.ContainsFunc(c.retained, func(f *request) bool { return in(f) && k.inFlight[f.number] != nil }) {
		c.mu.Unlock()
		return message.Malformed("a sum of gradients ahead of the results of its micro-batches")
	}
	c.retained = slices.DeleteFunc(c.retained, func(f *request) bool {
		if in(f) {
			c.frames.put(f)
		}
		return in(f)
	})
	c.params.adding++
	c.mu.Unlock()
	if room := c.params.add(sum, own); own {
		k.lending.sum = room
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k.lending.asked = false
	c.params.adding--
	c.changed.Broadcast()
	return nil
}

// add adds a sum up. It keeps the memory of one that is the link's own, and returns other memory for the next one.
func (l *sentParams) add(x []float32, own bool) (room []float32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		if own {
			room, l.sum = l.sum, x
			return room
		}
		l.sum = bytesview.Sized(l.sum, len(x))
		copy(l.sum, x)
		return nil
	}
	simd.Host().Add(l.sum, x)
	return x
}
