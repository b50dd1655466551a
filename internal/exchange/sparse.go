package exchange

import (
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
)

// frame describes a rank's contribution: its number of entries, and a hash of the exchange. A
// sparse exchange begins with an allgather of the frames. All ranks then choose the same algorithm
// and expect the same sizes, or detect that their exchanges differ.
type frame struct{ entries, bytes, what int64 }

const frameWords = 3

func (m *memory) init(ranks int) {
	m.frames, m.counts, m.outs, m.cuts = make([]frame, ranks), make([]int, ranks), make([]int, ranks), make([]int, ranks+1)
	m.words, m.localWords = make([]int64, frameWords*ranks), make([]int64, max(frameWords, ranks))
	m.parts, m.vectors = make([]compress.Sparse, ranks), make([]*compress.Sparse, 0, ranks)
	m.coder, m.floats, m.picker = compress.NewCoder(compress.FP32{}), compress.NewCoder(compress.FP32{}), compress.NewWorkspace(nil)
}

// what is a hash of the parameters that all ranks must agree on.
func (op *Request) what() int64 {
	h := uint64(len(op.X))*0x9e3779b97f4a7c15 ^ uint64(op.MaxEntries)*0xc2b2ae3d27d4eb4f ^ uint64(op.Lo)*0x165667b19e3779f9
	return int64(h<<8 | uint64(op.code().Code()))
}

func (op *Request) code() compress.Quantiser {
	if op.Code == nil {
		return compress.FP32{}
	}
	return op.Code
}

// sparse sums sparse vectors.
func (e *GroupReducer) sparse(h *requestState) (what string, err error) {
	op := h.op
	e.coder.Use(op.code())
	op.Sent = Result{Entries: op.Sparse.Count()}
	s, err := e.introduce(op)
	if err != nil {
		return "counts", err
	}
	name := e.choose(s)
	op.Sent.Algorithm, op.Sent.Dense = name, name == Dense
	switch name {
	case AllGather:
		err = e.allGather(op)
	case Tree:
		err = e.recurse(op)
	case Split:
		err = e.split(h)
	case Dense:
		clear(op.X)
		op.Sparse.AddTo(op.X)
		err = collective.AllReduce(e.dup, op.X, collective.Sum)
	default:
		err = fmt.Errorf("the algorithm that was chosen, %q, is not known", name)
	}
	if err == nil && op.MaxEntries > 0 && name == Split {
		op.moveExcluded()
	}
	return name, err
}

// moveExcluded moves those entries that the sum excluded to the front of op.Sparse.
func (op *Request) moveExcluded() {
	s, left := op.Sparse, 0
	for i, at := range s.Index {
		if op.X[at] == 0 {
			s.Index[left], s.Index[i] = at, s.Index[left]
			s.Value[left], s.Value[i] = s.Value[i], s.Value[left]
			left++
		}
	}
	if op.Sent.Excluded = left; left > 0 {
		s.Index, s.Value = s.Index[:left], s.Value[:left]
	}
}

// introduce gathers the frames.
func (e *GroupReducer) introduce(op *Request) (Situation, error) {
	s := Situation{Ranks: e.size, Len: len(op.X), Most: op.MaxEntries, Blocks: op.code().Block() > 1}
	own := e.memory.localWords[:frameWords]
	own[0], own[1], own[2] = int64(op.Sparse.Count()), int64(e.coder.Size(op.Sparse)), op.what()
	if err := collective.AllGather(e.dup, e.words, own); err != nil {
		return s, err
	}
	for r := range e.frames {
		f := frame{e.words[frameWords*r], e.words[frameWords*r+1], e.words[frameWords*r+2]}
		if err := e.checkFrame(op, f, r); err != nil {
			return s, err
		}
		e.frames[r] = f
		s.Entries += int(f.entries)
		s.Payload += int(f.bytes)
	}
	return s, nil
}

// checkFrame reports a rank's frame of another exchange, or with impossible numbers.
func (e *GroupReducer) checkFrame(op *Request, f frame, rank int) error {
	switch {
	case f.what != op.what():
		return damaged(rank, "it exchanges another bucket, or in another way: all ranks must start the same exchanges in the same order; here %d values in code %s, at most %d entries", len(op.X), op.code().Name(), op.MaxEntries)
	case f.entries < 0 || f.entries > int64(len(op.X)) || f.bytes < 0 || f.bytes > int64(compress.PayloadBound(len(op.X), op.code())):
		return damaged(rank, "it says that it sends %d of %d entries in %d bytes", f.entries, len(op.X), f.bytes)
	}
	return nil
}

// allGather sends every rank the payloads of all ranks, which each adds in the order of ranks:
// every rank sends (N-1)/N of all payloads, and decodes all.
func (e *GroupReducer) allGather(op *Request) error {
	total, mine := 0, 0
	for r, f := range e.frames {
		if r == e.rank {
			mine = total
		}
		e.counts[r] = int(f.bytes)
		total += int(f.bytes)
	}
	e.in = bytesview.Sized(e.in, total)
	own := e.in[mine : mine+e.counts[e.rank]]
	if _, err := e.coder.Encode(own[:0], op.Sparse); err != nil {
		return valueAt(err, op.Lo, op.Sparse)
	}
	if err := collective.AllGatherV(e.dup, e.in, own, e.counts); err != nil {
		return err
	}
	e.vectors = e.vectors[:0]
	at := 0
	for r := range e.frames {
		v := op.Sparse
		if r != e.rank {
			v = &e.parts[r]
			if err := e.decode(v, e.coder, e.in[at:at+e.counts[r]], len(op.X), r); err != nil {
				return err
			}
		}
		e.vectors = append(e.vectors, v)
		at += e.counts[r]
	}
	e.sum(op.X, e.vectors)
	return nil
}

// decode sets v to a rank's payload, a vector of length n.
func (e *GroupReducer) decode(v *compress.Sparse, c *compress.Coder, payload []byte, n, rank int) error {
	if err := c.Decode(v, payload); err != nil {
		return &peerError{rank, err}
	}
	if v.Len != n {
		return damaged(rank, "a payload for %d values, want %d", v.Len, n)
	}
	return nil
}

// valueAt changes the index in a code's error, which counts the entries of s, to an index of all
// gradients; s begins at lo of these.
func valueAt(err error, lo int, s *compress.Sparse) error {
	if e, ok := err.(*compress.ValueError); ok && e.Index < len(s.Index) {
		return &ValueError{At: lo + int(s.Index[e.Index]), Value: e.Value, Code: e.Code}
	}
	return err
}
