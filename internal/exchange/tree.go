package exchange

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
)

// recurse is the algorithm Tree. If N is not a power of two, N-P ranks, with P the power of two
// below N, first send their vectors to a neighbour and receive the sum at the end.
func (e *GroupReducer) recurse(op *Request) error {
	full := 1 << (bits.Len(uint(e.size)) - 1)
	extra := e.size - full
	sum := e.leaf(op.Sparse)
	switch {
	case e.rank < 2*extra && e.rank%2 == 0:
		if err := e.sendEntries(sum, e.rank+1, e.rank, e.rank+1); err != nil {
			return err
		}
		if err := e.receiveEntries(op, e.rank+1, 0, e.size); err != nil {
			return err
		}
		return e.fill(op, &e.theirs)
	case e.rank < 2*extra:
		if err := e.receiveEntries(op, e.rank-1, e.rank-1, e.rank); err != nil {
			return err
		}
		sum = e.merge(&e.theirs, sum)
	}
	first := func(place int) int { return place + min(place, extra) } // first rank of a place
	place := e.rank - min(extra, (e.rank+1)/2)
	for far := 1; far < full; far *= 2 {
		peer := place ^ far
		to := first(peer+1) - 1 // the last rank of a place continues
		mine, theirs := place&^(far-1), peer&^(far-1)
		if err := e.swap(op, sum, to, [2]int{first(mine), first(mine + far)}, [2]int{first(theirs), first(theirs + far)}); err != nil {
			return err
		}
		if peer < place {
			sum = e.merge(&e.theirs, sum)
		} else {
			sum = e.merge(sum, &e.theirs)
		}
	}
	if e.rank < 2*extra {
		if err := e.sendEntries(sum, e.rank-1, 0, e.size); err != nil {
			return err
		}
	}
	return e.fill(op, sum)
}

func (e *GroupReducer) fill(op *Request, sum *compress.Sparse) error {
	e.vectors = append(e.vectors[:0], sum)
	e.sum(op.X, e.vectors)
	return nil
}

// leaf copies a contribution, added to zero like all sums.
func (e *GroupReducer) leaf(s *compress.Sparse) *compress.Sparse {
	t := &e.tree[0]
	t.Len, t.Index, t.Value = s.Len, append(t.Index[:0], s.Index...), append(t.Value[:0], s.Value...)
	for i := range t.Value {
		t.Value[i] += 0
	}
	return t
}

// bound is the maximum number of entries in the sum of ranks lo to hi-1.
func (e *GroupReducer) bound(lo, hi, n int) int {
	sum := int64(0)
	for _, f := range e.frames[lo:hi] {
		sum += f.entries
	}
	return int(min(sum, int64(n)))
}

// eager is the maximum size of a Send that does not wait for its Receive.
const eager = 64 << 10

// swap sends s, the sum of the ranks mine, to a rank and receives e.theirs.
func (e *GroupReducer) swap(op *Request, s *compress.Sparse, peer int, mine, theirs [2]int) error {
	out := e.pack(s, e.bound(mine[0], mine[1], s.Len))
	if 4*len(out) <= eager {
		if err := collective.Send(e.dup, out, peer); err != nil {
			return err
		}
		return e.receiveEntries(op, peer, theirs[0], theirs[1])
	}
	sending := collective.StartSend(e.dup, out, peer)
	err := e.receiveEntries(op, peer, theirs[0], theirs[1])
	if sent := sending.Wait(); err == nil {
		err = sent
	}
	return err
}

// sendEntries sends s, the sum of ranks lo to hi-1.
func (e *GroupReducer) sendEntries(s *compress.Sparse, to, lo, hi int) error {
	return collective.Send(e.dup, e.pack(s, e.bound(lo, hi, s.Len)), to)
}

// pack makes a message with space for entries entries: their number, indices and values.
func (e *GroupReducer) pack(s *compress.Sparse, entries int) []int32 {
	k := s.Count()
	e.outFrame = bytesview.Sized(e.outFrame, 1+2*entries)
	out := e.outFrame
	out[0] = int32(k)
	copy(out[1:], s.Index)
	copy(bytesview.As[float32](bytesview.Bytes(out[1+k:])), s.Value)
	clear(out[1+2*k:])
	return out
}

// receiveEntries sets e.theirs to the sum of ranks lo to hi-1, from a rank.
func (e *GroupReducer) receiveEntries(op *Request, from, lo, hi int) error {
	most := e.bound(lo, hi, len(op.X))
	e.inFrame = bytesview.Sized(e.inFrame, 1+2*most)
	if err := collective.Receive(e.dup, e.inFrame, from); err != nil {
		return err
	}
	var err error
	if e.theirs, err = unpack(e.inFrame, len(op.X)); err != nil {
		return &peerError{from, err}
	}
	return nil
}

// unpack returns a message's vector of length n, in the message's memory.
func unpack(frame []int32, n int) (s compress.Sparse, err error) {
	k := int(frame[0])
	if k < 0 || 1+2*k > len(frame) {
		return s, fmt.Errorf("a message says that it has %d entries, and its bytes are enough for %d", k, len(frame)/2)
	}
	for _, spare := range frame[1+2*k:] {
		if spare != 0 {
			return s, fmt.Errorf("a message says that it has %d entries, and more bytes follow them", k)
		}
	}
	s = compress.Sparse{Len: n, Index: frame[1 : 1+k], Value: bytesview.As[float32](bytesview.Bytes(frame[1+k : 1+2*k]))}
	return s, s.Validate()
}

// merge adds two vectors, a first, in O(entries). The result is valid until the second next call.
func (e *GroupReducer) merge(a, b *compress.Sparse) *compress.Sparse {
	t := &e.tree[0]
	if a == t || b == t {
		t = &e.tree[1]
	}
	t.Reset(a.Len)
	most := min(a.Count()+b.Count(), a.Len)
	if cap(t.Index) < most {
		t.Reserve(most + most/4)
	}
	n := mergeEntries(t.Index[:most], t.Value[:most], a, b)
	t.Index, t.Value = t.Index[:n], t.Value[:n]
	return t
}

// mergeEntries writes the sum of a and b and returns its number of entries. It does not branch on
// which index is lower, because a processor cannot predict it.
func mergeEntries(index []int32, value []float32, a, b *compress.Sparse) int {
	ai, av, bi, bv := a.Index, a.Value[:len(a.Index)], b.Index, b.Value[:len(b.Index)]
	i, j, n := 0, 0, 0
	for i < len(ai) && j < len(bi) {
		x, y := ai[i], bi[j]
		after := (y - x) >> 31  // all ones if y comes first
		before := (x - y) >> 31 // all ones if x comes first
		index[n] = min(x, y)
		value[n] = masked(av[i], ^after) + masked(bv[j], ^before)
		i += int(after + 1)
		j += int(before + 1)
		n++
	}
	n += copyEntries(index[n:], value[n:], ai[i:], av[i:])
	return n + copyEntries(index[n:], value[n:], bi[j:], bv[j:])
}

func copyEntries(index []int32, value []float32, i []int32, v []float32) int {
	copy(value, v)
	return copy(index, i)
}

// masked is v, or zero for a zero mask.
func masked(v float32, mask int32) float32 {
	return math.Float32frombits(math.Float32bits(v) & uint32(mask))
}
