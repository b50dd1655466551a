package aggregate

import (
	"errors"
	"slices"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/transport"
)

// push pushes started requests, in order, until the client is closing.
func (c *Client) push() {
	for f := c.toPush(); f != nil; f = c.toPush() {
		c.pushFlight(f)
	}
	c.mu.Lock()
	c.ended = true
	c.pulls.Broadcast()
	c.mu.Unlock()
}

// toPush waits for the next request; it returns nil after the last.
func (c *Client) toPush() *pendingRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.next == nil && !c.closing {
		c.pushes.Wait()
	}
	f := c.next
	if f != nil {
		c.next = f.queued
	}
	return f
}

// pushFlight pushes the head and all segments of f. After an error it sends no more data, but
// passes the slots to pull, which ends the request.
func (c *Client) pushFlight(f *pendingRequest) {
	c.pushHeads(f)
	left := 0
	for s := range c.servers {
		left += f.layout.segments(s)
	}
	if left == 0 {
		c.finish(f)
		return
	}
	for k := range f.layout.rounds() {
		for s := range c.servers {
			if k >= f.layout.segments(s) {
				continue
			}
			left--
			sl := c.freeSlot()
			sl.f, sl.server, sl.k, sl.last = f, s, k, left == 0
			sl.lo, sl.hi = f.layout.at(s, k)
			if c.fault.Load() == nil {
				if err := c.pushSegment(sl); err != nil {
					c.fail(c.wrap("push", f, c.blame(err, s), err))
				}
			}
			c.expect(sl)
			c.publish()
		}
	}
}

// blame returns the member to name for an error of pushing to a server: the server for an error of
// the link, else this rank.
func (c *Client) blame(err error, server int) int {
	if link := (*transport.Error)(nil); errors.As(err, &link) {
		return c.member(server)
	}
	return c.mesh.Rank()
}

func (c *Client) pushHeads(f *pendingRequest) {
	f.head.encode(&c.out.head)
	for s := range c.servers {
		if c.fault.Load() != nil {
			return
		}
		if err := c.mesh.Send(c.member(s), headTag(f.seq), c.out.head[:], c.cfg.Timeout); err != nil {
			c.fail(c.wrap("push", f, c.member(s), err))
		}
		f.sent += headBytes
	}
}

// freeSlot waits for a slot.
func (c *Client) freeSlot() *segmentSlot {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pushed-c.pulled == uint64(len(c.slots)) {
		c.slotFree.Wait()
	}
	return &c.slots[c.pushed%uint64(len(c.slots))]
}

// publish passes the filled slot to pull.
func (c *Client) publish() {
	c.mu.Lock()
	c.pushed++
	c.pulls.Signal()
	c.mu.Unlock()
}

// expect starts the first receive of a slot. Dense float32 arrives directly in the request's X,
// which push no longer needs.
func (c *Client) expect(sl *segmentSlot) {
	f := sl.f
	tag, dst := bodyTag(f.seq, sl.k), []byte(nil)
	switch {
	case f.head.kind == kindSparse:
		tag, dst = sizeTag(f.seq, sl.k), sl.size[:]
	case f.head.code == compress.CodeFP32:
		dst = bytesview.Bytes(f.op.X[sl.lo:sl.hi])
	default:
		dst = sl.body.bytes(f.code.Size(sl.hi - sl.lo))
	}
	c.mesh.Post(&sl.recv, c.member(sl.server), tag, dst)
}

func (c *Client) pushSegment(sl *segmentSlot) error {
	f := sl.f
	x := f.op.X[sl.lo:sl.hi]
	switch {
	case f.head.kind == kindSparse:
		return c.pushSparse(sl)
	case f.head.code == compress.CodeFP32:
		return c.send(sl, bodyTag(f.seq, sl.k), bytesview.Bytes(x))
	}
	b := c.out.body.bytes(f.code.Size(len(x)))
	if halves(f.head.code) {
		c.kernels.Scale(x, 1/float32(c.cfg.Trainers))
		roundHalves(c.kernels, f.head.code, b, x)
	} else if err := f.code.Encode(b, x); err != nil {
		return valueFault(err, f.op.Lo+sl.lo, nil)
	}
	return c.send(sl, bodyTag(f.seq, sl.k), b)
}

// pushSparse sends the entries of a segment. Values coded in blocks travel with their whole blocks,
// because blocks with other beginnings would have other scales and a second rounding error; the
// server skips entries outside the segment.
func (c *Client) pushSparse(sl *segmentSlot) error {
	f, s := sl.f, sl.f.op.Sparse
	first, _ := slices.BinarySearch(s.Index, int32(sl.lo))
	behind, _ := slices.BinarySearch(s.Index, int32(sl.hi))
	if b := f.code.Block(); b > 1 && first < behind {
		first, behind = first/b*b, min(len(s.Index), (behind+b-1)/b*b)
	}
	base, end := sl.lo, sl.hi
	if first < behind {
		base, end = min(base, int(s.Index[first])), max(end, int(s.Index[behind-1])+1)
	}
	part := compress.Sparse{Len: end - base, Index: c.out.shifted(s.Index[first:behind], int32(base)), Value: s.Value[first:behind]}
	coder, err := c.out.coders.of(f.code)
	if err != nil {
		return err
	}
	c.out.sparse = part
	if c.out.bytes, err = coder.Encode(c.out.bytes[:0], &c.out.sparse); err != nil {
		return valueFault(err, f.op.Lo, s.Index[first:behind])
	}
	c.out.sparse = compress.Sparse{}
	size{bytes: len(c.out.bytes), base: base}.encode(&c.out.size)
	if err := c.send(sl, sizeTag(f.seq, sl.k), c.out.size[:]); err != nil {
		return err
	}
	return c.send(sl, bodyTag(f.seq, sl.k), c.out.bytes)
}

func (c *Client) send(sl *segmentSlot, tag transport.Tag, b []byte) error {
	sl.f.sent += int64(len(b))
	return c.mesh.Send(c.member(sl.server), tag, b, c.cfg.Timeout)
}

// shifted is index counted from base.
func (t *codecState) shifted(index []int32, base int32) []int32 {
	if cap(t.index) < len(index) {
		t.index = make([]int32, len(index))
	}
	out := t.index[:len(index)]
	for i, at := range index {
		out[i] = at - base
	}
	return out
}
