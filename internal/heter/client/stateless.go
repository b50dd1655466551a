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

// sentParams has the parameters sent to heter-trainers, and the gradients collected from them.
// Client.mu guards all except the sum.
type sentParams struct {
	values     []float32 // constant while micro-batches are in flight; in shared memory if placed
	placed     bool
	localCopy  []float32     // private memory for values
	number     uint64        // version of values, from 1
	collecting bool          // the step's last micro-batch was sent
	took       time.Duration // last time to send values
	copied     time.Duration // time to copy values, equal for a reader of shared memory
	adding     int           // complete sums not yet added

	mu    sync.Mutex // guards sum
	sum   []float32
	begun bool // sum has values
}

// paramState is a heter-trainer's part of the exchange. Client.mu guards it, except sum and have,
// which belong to the reader.
type paramState struct {
	number uint64 // version of its parameters
	placed bool   // parameters are in shared memory
	asked  bool   // sum requested
	upTo   uint64 // last micro-batch in the sum
	sum    []float32
	have   int // received values of sum
}

// Lend implements heter.StatelessStage. Unchanged values are not sent again.
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

// RequestGradients implements heter.StatelessStage.
func (c *Client) RequestGradients() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.params.collecting = true
	c.changed.Broadcast()
	return c.err
}

// Gradients implements heter.StatelessStage.
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

// nextUncollected returns a heter-trainer with a sum that was not requested yet. c.mu is held.
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

// ask requests k's sum of gradients. c.mu is held, and released during the write.
func (c *Client) ask(k *link) {
	k.lending.asked, k.lending.upTo = true, k.number
	e := message.End{Step: c.step.Load(), Count: k.number, Attempt: 1}
	c.mu.Unlock()
	defer c.mu.Lock()
	if err := k.io.WriteFrame(message.TypeEnd, e.Append(nil)); err != nil {
		c.lose(k, err)
	}
}

// lacks returns the time to send a heter-trainer the parameters that it does not have yet, and the
// same time for its gradients. c.mu is held.
func (c *Client) lacks(k *link) time.Duration {
	if k.lending.number == c.params.number {
		return 0
	}
	if c.params.placed && k.view != nil {
		return 2 * c.params.copied
	}
	return 2 * c.params.took
}

// sendParams sends the parameters if the heter-trainer lacks them. c.mu is held, and released
// during writes: no other goroutine sends micro-batches, and values do not change then.
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

// summed reads a piece of a sum; an empty piece means that the sum is in shared memory.
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

// gathered adds a complete sum. Its micro-batches are then no longer resent after a loss of the
// heter-trainer; a sum from an already lost heter-trainer is dropped. own: the link owns the sum's
// memory, otherwise the heter-trainer reuses it after the next request.
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

// add adds a sum. It keeps the memory of the first owned sum, and returns memory for the next one.
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
