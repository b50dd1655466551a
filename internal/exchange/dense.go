package exchange

import (
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// castBlock is how many values are cast at a time: they stay in the nearest cache.
const castBlock = 4096

// startHalves casts X to 16 bits and starts their allreduce. A sum of halves would
// overflow at 65,504, and a mean does not: values are divided by the number of
// ranks first, and what comes back is multiplied by it.
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

// fromHalves makes X the sum that was reduced. The error is a *ValueError.
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
		e.kernels.Scale(x, factor) // which may be too much for a mean that has room
		if e.kernels.MaxMagnitude(x) >= simd.InfMagnitude {
			return notFinite(op.Lo+at, x, op.Code)
		}
	}
	return nil
}

// notFinite is the error of the first value that is none, of those from place lo of
// the arena on.
func notFinite(lo int, x []float32, q compress.Quantiser) error {
	for i, v := range x {
		if v-v != 0 {
			return &ValueError{At: lo + i, Value: v, Code: q.Name()}
		}
	}
	return nil
}
