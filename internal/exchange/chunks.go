package exchange

import (
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
)

// chunks sums compressed values of an encoding without addition, such as int8 with scales. The
// vector X is divided into chunks of whole blocks, one for each rank. A rank receives its chunk
// from all ranks, adds in the order of ranks and encodes the sum; all ranks gather these sums. The
// owner continues with the decoded sum, so that all ranks have the same bits, and retains the
// compression error of the sum (the second error of DoubleSqueeze, Tang et al., ICML 2019).
//
// A rank sends 2(N-1)/N S bytes in 2(N-1) messages, where S is the size of X in the code.
func (e *GroupReducer) chunks(h *requestState) error {
	op := h.op
	if err := e.dealChunks(op); err != nil {
		return err
	}
	lo, hi := e.chunk(op, e.rank)
	if err := e.addChunks(op, lo, hi); err != nil {
		return err
	}
	h.sumError = bytesview.Sized(h.sumError, hi-lo)
	copy(h.sumError, op.X[lo:hi])
	if err := e.gatherChunks(op, lo, hi); err != nil {
		return err
	}
	if lo < hi && op.Code.Feedback() {
		e.kernels.Subtract(h.sumError, op.X[lo:hi])
		op.SumError = append(op.SumError, ErrorSpan{At: lo, Values: h.sumError})
	}
	return nil
}

// chunk returns the chunk of a rank.
func (e *GroupReducer) chunk(op *Request, r int) (lo, hi int) {
	block := op.Code.Block()
	blocks := (len(op.X) + block - 1) / block
	at := func(r int) int { return min(len(op.X), int(int64(blocks)*int64(r)/int64(e.size))*block) }
	return at(r), at(r + 1)
}

// strip is the number of values that are coded together: whole blocks of the code that fit the
// nearest cache.
func strip(q compress.Quantiser) int { return (castBlock + q.Block() - 1) / q.Block() * q.Block() }

// codedSize is the number of bytes of n values, coded strip by strip.
func codedSize(q compress.Quantiser, n int) int {
	s := strip(q)
	return n/s*q.Size(s) + q.Size(n%s)
}

// encodeStrips codes x, at index lo of X, to dst, of codedSize bytes.
func encodeStrips(op *Request, dst []byte, lo int, x []float32) error {
	q := op.Code
	for s := strip(q); len(x) > 0; {
		n := min(s, len(x))
		size := q.Size(n)
		if err := q.Encode(dst[:size], x[:n]); err != nil {
			if v, ok := err.(*compress.ValueError); ok {
				return &ValueError{At: op.Lo + lo + v.Index, Value: v.Value, Code: q.Name()}
			}
			return err
		}
		dst, x, lo = dst[size:], x[n:], lo+n
	}
	return nil
}

// dealChunks sends each owner its chunk and receives this rank's chunk in e.in.
func (e *GroupReducer) dealChunks(op *Request) error {
	total := 0
	for r := range e.size {
		lo, hi := e.chunk(op, r)
		e.outs[r] = codedSize(op.Code, hi-lo)
		total += e.outs[r]
	}
	own := e.outs[e.rank]
	e.outs[e.rank] = 0
	e.out = bytesview.Sized(e.out, total-own)
	at := 0
	for r, size := range e.outs {
		if r != e.rank {
			lo, hi := e.chunk(op, r)
			if err := encodeStrips(op, e.out[at:at+size], lo, op.X[lo:hi]); err != nil {
				return err
			}
		}
		at += size
		e.counts[r] = own
	}
	e.counts[e.rank] = 0
	e.in = bytesview.Sized(e.in, own*(e.size-1))
	return collective.AllToAllV(e.dup, e.in, e.out, e.outs, e.counts)
}

// addChunks sums the chunk from lo to hi over the ranks, in order.
func (e *GroupReducer) addChunks(op *Request, lo, hi int) error {
	q := op.Code
	s := strip(q)
	e.acc, e.tmp = bytesview.Sized(e.acc, s), bytesview.Sized(e.tmp, s)
	size := codedSize(q, hi-lo)
	for from := 0; lo < hi; lo += s {
		x := op.X[lo:min(lo+s, hi)]
		bytes := q.Size(len(x))
		acc, tmp, at := e.acc[:len(x)], e.tmp[:len(x)], from
		for r := range e.size {
			theirs := x
			if r != e.rank {
				theirs = tmp
				if err := q.Decode(tmp, e.in[at:at+bytes]); err != nil {
					return &peerError{r, err}
				}
				at += size
			}
			if r == 0 {
				copy(acc, theirs)
			} else {
				e.kernels.Add(acc, theirs)
			}
		}
		copy(x, acc)
		from += bytes
	}
	return nil
}

// gatherChunks codes the sum of the chunk from lo to hi and gathers all chunks.
func (e *GroupReducer) gatherChunks(op *Request, lo, hi int) error {
	total, mine := 0, 0
	for r := range e.size {
		a, b := e.chunk(op, r)
		if r == e.rank {
			mine = total
		}
		e.counts[r] = codedSize(op.Code, b-a)
		total += e.counts[r]
	}
	e.in = bytesview.Sized(e.in, total)
	own := e.in[mine : mine+e.counts[e.rank]]
	if err := encodeStrips(op, own, lo, op.X[lo:hi]); err != nil {
		return err
	}
	if err := collective.AllGatherV(e.dup, e.in, own, e.counts); err != nil {
		return err
	}
	at := 0
	for r := range e.size {
		a, b := e.chunk(op, r)
		s := strip(op.Code)
		for ; a < b; a += s {
			x := op.X[a:min(a+s, b)]
			bytes := op.Code.Size(len(x))
			if err := op.Code.Decode(x, e.in[at:at+bytes]); err != nil {
				return &peerError{r, err}
			}
			at += bytes
		}
	}
	return nil
}
