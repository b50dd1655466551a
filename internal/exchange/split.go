package exchange

import (
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
)

// split: rank i owns the part of the vector from border i to border i+1. Every rank sends each
// owner the entries of its part, the owner adds them in the order of ranks, and all ranks gather
// the sums of the parts.
//
// Sums are sent as float32, because the code may not store a sum exactly. Parts are sent as float32
// if the code stores blocks of values, which cannot be cut.
func (e *GroupReducer) split(h *requestState) error {
	op := h.op
	if err := e.partition(h); err != nil {
		return err
	}
	b := h.part.borders
	parts, code := e.coder, op.code()
	if code.Block() > 1 {
		parts, code = e.floats, compress.FP32{}
	}
	if err := e.deal(op, b, parts, code); err != nil {
		return err
	}
	lo, hi := b[e.rank], b[e.rank+1]
	received, err := e.addParts(op, lo, hi, parts)
	if err != nil {
		return err
	}
	e.collect(op, op.X[lo:hi], received)
	return e.hand(op, b)
}

// deal sends the parts of op.Sparse to their owners, and receives this rank's part in e.in.
func (e *GroupReducer) deal(op *Request, b []int, coder *compress.Coder, code compress.Quantiser) (err error) {
	s := op.Sparse
	e.cut(s, b)
	e.index = bytesview.Sized(e.index, len(s.Index))
	e.out = e.out[:0]
	own := e.memory.localWords[:e.size]
	for r := range own {
		from, to := e.cuts[r], e.cuts[r+1]
		own[r] = 0
		if r == e.rank || from == to {
			continue
		}
		e.piece = compress.Sparse{Len: b[r+1] - b[r], Index: e.index[from:to], Value: s.Value[from:to]}
		for i, at := range s.Index[from:to] {
			e.piece.Index[i] = at - int32(b[r])
		}
		start := len(e.out)
		e.out = slices.Grow(e.out, payloadRoom(&e.piece, code))
		if e.out, err = coder.Encode(e.out, &e.piece); err != nil {
			return valueAt(err, op.Lo+b[r], &e.piece)
		}
		own[r] = int64(len(e.out) - start)
	}
	theirs := e.words[:e.size]
	if err := collective.AllToAll(e.dup, theirs, own); err != nil {
		return err
	}
	width := b[e.rank+1] - b[e.rank]
	total, err := e.lengths(theirs, func(int) int { return compress.PayloadBound(width, code) })
	if err != nil {
		return err
	}
	for r, n := range own {
		e.outs[r] = int(n)
	}
	e.in = bytesview.Sized(e.in, total)
	return collective.AllToAllV(e.dup, e.in, e.out, e.outs, e.counts)
}

// cut sets e.cuts to the beginnings of the parts in s.
func (e *GroupReducer) cut(s *compress.Sparse, b []int) {
	at := 0
	for r := range e.size {
		e.cuts[r] = at
		n, _ := slices.BinarySearch(s.Index[at:], int32(b[r+1]))
		if b[r+1] >= s.Len {
			n = len(s.Index) - at
		}
		at += n
	}
	e.cuts[e.size] = at
}

// lengths sets e.counts to the lengths from the ranks, bounded by most, and returns their sum.
func (e *GroupReducer) lengths(given []int64, most func(rank int) int) (total int, err error) {
	for r, n := range given {
		if n < 0 || n > int64(most(r)) {
			return 0, damaged(r, "it says that it sends %d bytes, at most %d make sense", n, most(r))
		}
		e.counts[r] = int(n)
		total += int(n)
	}
	return total, nil
}

// addParts sums the received parts, of the values lo to hi, and returns their number of entries.
func (e *GroupReducer) addParts(op *Request, lo, hi int, coder *compress.Coder) (received int, err error) {
	e.vectors = e.vectors[:0]
	at := 0
	for r, n := range e.counts {
		v := &e.parts[r]
		switch {
		case r == e.rank:
			e.ownPart(v, op.Sparse, lo, hi)
		case n > 0:
			if err := e.decode(v, coder, e.in[at:at+n], hi-lo, r); err != nil {
				return 0, err
			}
		}
		at += n
		if n > 0 || r == e.rank && v.Count() > 0 {
			e.vectors = append(e.vectors, v)
			received += v.Count()
		}
	}
	e.sum(op.X[lo:hi], e.vectors)
	return received, nil
}

// ownPart sets v to the values lo to hi of this rank's vector s.
func (e *GroupReducer) ownPart(v, s *compress.Sparse, lo, hi int) {
	from, to := e.cuts[e.rank], e.cuts[e.rank+1]
	v.Reset(hi - lo)
	v.Value = append(v.Value, s.Value[from:to]...)
	v.Index = append(v.Index, s.Index[from:to]...)
	for i := range v.Index {
		v.Index[i] -= int32(lo)
	}
}

// payloadRoom is at least the length of the payload of s.
func payloadRoom(s *compress.Sparse, q compress.Quantiser) int {
	k := s.Count()
	return headerBytes + min((s.Len+7)/8, 4*k+k/128+1) + q.Size(k)
}

// collect sets e.total to those entries of the sum x that are sent: all nonzero values or, with a
// limit in op, the largest up to this part's quota.
func (e *GroupReducer) collect(op *Request, x []float32, received int) {
	t := &e.total
	t.Reset(len(x))
	most := min(received, len(x))
	if op.MaxEntries > 0 {
		most = min(most, quota(op.MaxEntries, e.size, e.rank))
	}
	if most == 0 {
		return
	}
	if cap(t.Index) < most {
		t.Reserve(most + most/4)
	}
	if e.picker.Reaching(t, 0, x, nil, 0, most) > most {
		e.picker.Exact(t, 0, x, nil, most)
	}
}

// quota is the maximum number of entries in a rank's part.
func quota(most, size, rank int) int {
	return int(int64(most)*int64(rank+1)/int64(size) - int64(most)*int64(rank)/int64(size))
}

// hand sends the sum of this rank's part to all ranks, and gathers the sums of all parts in op.X.
func (e *GroupReducer) hand(op *Request, b []int) (err error) {
	e.out = e.out[:0]
	if e.total.Count() > 0 {
		e.out = slices.Grow(e.out, payloadRoom(&e.total, compress.FP32{}))
		if e.out, err = e.floats.Encode(e.out, &e.total); err != nil {
			return valueAt(err, op.Lo+b[e.rank], &e.total)
		}
	}
	own, theirs := e.memory.localWords[:1], e.words[:e.size]
	own[0] = int64(len(e.out))
	if err := collective.AllGather(e.dup, theirs, own); err != nil {
		return err
	}
	total, err := e.lengths(theirs, func(r int) int { return compress.PayloadBound(b[r+1]-b[r], compress.FP32{}) })
	if err != nil {
		return err
	}
	e.in = bytesview.Sized(e.in, total)
	if err := collective.AllGatherV(e.dup, e.in, e.out, e.counts); err != nil {
		return err
	}
	at := 0
	for r, n := range e.counts {
		x, v := op.X[b[r]:b[r+1]], &e.total
		if r != e.rank && n > 0 {
			v = &e.parts[r]
			if err := e.decode(v, e.floats, e.in[at:at+n], len(x), r); err != nil {
				return err
			}
		}
		e.vectors = e.vectors[:0]
		if n > 0 {
			e.vectors = append(e.vectors, v)
		}
		e.sum(x, e.vectors)
		at += n
	}
	return nil
}
