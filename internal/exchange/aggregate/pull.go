package aggregate

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// pull receives the sums of pushed segments, in order, until pushing ends.
func (c *Client) pull() {
	for sl := c.toPull(); sl != nil; sl = c.toPull() {
		f := sl.f
		if err := c.pullSegment(sl); err != nil {
			c.pullFault(sl, err)
		}
		if sl.last {
			c.finish(f)
		}
		sl.f = nil
		c.mu.Lock()
		c.pulled++
		c.slotFree.Signal()
		c.mu.Unlock()
	}
}

// pullFault stores an error. For a sum that its code cannot store, only this exchange fails, on
// every rank.
func (c *Client) pullFault(sl *segmentSlot, err error) {
	if v := (*exchange.ValueError)(nil); errors.As(err, &v) {
		sl.f.err = cmp.Or(sl.f.err, err)
		return
	}
	c.fail(c.wrap("pull", sl.f, c.blame(err, sl.server), err))
}

// toPull waits for the next slot; it returns nil after the last.
func (c *Client) toPull() *segmentSlot {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pulled == c.pushed && !c.ended {
		c.pulls.Wait()
	}
	if c.pulled == c.pushed {
		return nil
	}
	return &c.slots[c.pulled%uint64(len(c.slots))]
}

// pullSegment waits for the sum of a segment and stores it. Afterwards the mesh no longer touches
// the slot or the exchange's values.
func (c *Client) pullSegment(sl *segmentSlot) error {
	f := sl.f
	if err := c.await(sl); err != nil {
		return err
	}
	x := f.op.X[sl.lo:sl.hi]
	switch {
	case f.head.kind == kindSparse:
		return c.pullSparse(sl, x)
	case f.head.code == compress.CodeFP32:
		return nil
	}
	if err := f.code.Decode(x, sl.body.bytes(f.code.Size(len(x)))); err != nil {
		return c.damaged(sl, err)
	}
	if f.head.hasSumError(f.code, c.cfg.Trainers) {
		return c.pullSumError(sl)
	}
	if !halves(f.head.code) {
		return nil
	}
	c.kernels.Scale(x, float32(c.cfg.Trainers)) // may overflow, although the mean does not
	if at := infinite(c.kernels, x); at >= 0 {
		return &exchange.ValueError{At: f.op.Lo + sl.lo + at, Value: x[at], Code: f.code.Name()}
	}
	return nil
}

// pullSumError receives this trainer's part of the sum error of a segment.
func (c *Client) pullSumError(sl *segmentSlot) error {
	f := sl.f
	first, end := f.head.errorRange(c.mesh.Rank(), c.cfg.Trainers)
	lo, hi := overlap(sl.lo, sl.hi, first, end)
	if lo >= hi {
		return nil
	}
	lost := f.lost.values(end - first)[lo-first : hi-first]
	c.mesh.Post(&sl.recv, c.member(sl.server), lostTag(f.seq, sl.k), bytesview.Bytes(lost))
	if err := c.await(sl); err != nil {
		return err
	}
	f.op.SumError = append(f.op.SumError, exchange.ErrorSpan{At: lo, Values: lost})
	return nil
}

// pullSparse adds the entries of a payload to a zeroed x.
func (c *Client) pullSparse(sl *segmentSlot, x []float32) error {
	f := sl.f
	s, err := decodeSize(&sl.size, compress.FP32{}, sl.lo, sl.hi)
	if err == nil && s.base != sl.lo {
		err = fmt.Errorf("a payload that begins at value %d, for a segment of the values %d to %d", s.base, sl.lo, sl.hi)
	}
	if err != nil {
		return c.damaged(sl, err)
	}
	body := sl.body.bytes(s.bytes)
	c.mesh.Post(&sl.recv, c.member(sl.server), bodyTag(f.seq, sl.k), body)
	if err := c.await(sl); err != nil {
		return err
	}
	coder, err := c.in.coders.of(compress.FP32{})
	if err != nil {
		return err
	}
	if dense(body) {
		if err := coder.DecodeDense(x, body); err != nil {
			return c.damaged(sl, err)
		}
	} else {
		in := &c.in.sparse
		if err := coder.Decode(in, body); err != nil {
			return c.damaged(sl, err)
		}
		if in.Len != len(x) {
			return c.damaged(sl, fmt.Errorf("a payload of %d values, for a segment of the values %d to %d", in.Len, sl.lo, sl.hi))
		}
		clear(x)
		for i, at := range in.Index {
			x[at] = in.Value[i]
		}
	}
	return nil
}

// await waits for the receive of a slot.
func (c *Client) await(sl *segmentSlot) error {
	c.wait.op = sl.f.entry
	c.wait.begin(c.member(sl.server), sl.f.seq)
	err := sl.recv.Wait(c.cfg.Timeout)
	c.wait.over(err)
	return err
}

// damaged returns an error of unreadable data from a server.
func (c *Client) damaged(sl *segmentSlot, err error) error {
	return fmt.Errorf("what %s sent for segment %d: %w", role(c.member(sl.server), c.cfg.Trainers), sl.k, err)
}
