package exchange

import (
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// castBlock is the number of values cast at a time, which stay in the nearest cache.
const castBlock = 4096

// startHalves casts X to 16 bits and starts the allreduce. A sum of halves would overflow at
// 65,504; a mean does not. Values are therefore divided by the number of ranks first, and the
// result is multiplied by it.
func (e *GroupReducer) startHalves(h *requestState) {
	op := h.op
	op.Sent.Algorithm = e.g.Choice("allreduce", 2*len(op.X))
	if op.Code.Code() == compress.CodeFP16 {
		h.halves = bytesview.Sized(h.halves, len(op.X))
		cast(e, h.halves, op.X, collective.ToFloat16)
		h.work = collective.StartAllReduce(e.g, h.halves, collective.Sum)
		return
	}
	h.brains = bytesview.Sized(h.brains, len(op.X))
	cast(e, h.brains, op.X, collective.ToBFloat16)
	h.work = collective.StartAllReduce(e.g, h.brains, collective.Sum)
}

func cast[T collective.Float16 | collective.BFloat16](e *GroupReducer, dst []T, x []float32, to func([]T, []float32)) {
	factor := 1 / float32(e.size)
	for len(x) > 0 {
		n := min(castBlock, len(x))
		e.kernels.Scale(x[:n], factor)
		to(dst[:n], x[:n])
		dst, x = dst[n:], x[n:]
	}
}

// fromHalves sets X to the reduced sum. The error is a *ValueError.
func (e *GroupReducer) fromHalves(h *requestState) error {
	if h.op.Code.Code() == compress.CodeFP16 {
		return uncast(e, h.op, h.halves, collective.FromFloat16)
	}
	return uncast(e, h.op, h.brains, collective.FromBFloat16)
}

func uncast[T collective.Float16 | collective.BFloat16](e *GroupReducer, op *Request, src []T, from func([]float32, []T)) error {
	factor := float32(e.size)
	for at := 0; at < len(op.X); at += castBlock {
		x := op.X[at:min(at+castBlock, len(op.X))]
		from(x, src[at:at+len(x)])
		e.kernels.Scale(x, factor) // may overflow, although the mean does not
		if e.kernels.MaxMagnitude(x) >= simd.InfMagnitude {
			return notFinite(op.Lo+at, x, op.Code)
		}
	}
	return nil
}

// notFinite returns an error for the first non-finite value of x; x[0] has index lo in the arena.
func notFinite(lo int, x []float32, q compress.Quantiser) error {
	for i, v := range x {
		if v-v != 0 {
			return &ValueError{At: lo + i, Value: v, Code: q.Name()}
		}
	}
	return nil
}
