package simd

import (
	"testing"
	"unsafe"
)

// Each call of the kernels of sequence models does a bounded amount of work.
func TestSequenceCallsAreShort(t *testing.T) {
	for _, level := range Levels() {
		if level.vec.width == 0 {
			continue // Go code can be preempted anywhere
		}
		most, k := calls{}, *level
		k.seq = countedSequence(level.seq, most)
		const n = 3*callFloats + 5
		x, y := make([]float32, n), make([]float32, n)
		k.Dropout(x, y, DropoutKey{}, 0, 1, 1)
		k.SoftmaxGrad(x, y, 1, 1)
		const columns = 3*lstmFloats + 5
		gates := make([]float32, 4*columns)
		k.LSTM(x[:columns], y[:columns], gates, columns, y[columns:2*columns])
		k.LSTMGrad(gates, columns, x[:columns], y[:columns], x[columns:2*columns], y[columns:2*columns])
		ids := make([]int32, 3*lookupRows+5)
		k.Lookup(x[:2*len(ids)], y, ids, 2)
		k.Lookup(make([]float32, 50*1000), y, ids[:50], 1000)
		offsets, scales := make([]int32, len(ids)+1), make([]float32, len(ids))
		for i := range offsets {
			offsets[i] = int32(i)
		}
		k.Bags(x[:2*len(ids)], 2, y, ids, offsets, scales, 2)
		k.Bags(make([]float32, 50*1000), 1000, y, ids, offsets[:51], scales[:50], 1000)

		limits := calls{
			"dropout": callFloats, "softmaxGrad": callFloats, "lstm": lstmFloats, "lstmGrad": lstmFloats,
			"lookup rows": lookupRows, "lookup floats": callFloats,
			"bags rows and bags": 2 * lookupRows, "bags floats": callFloats,
		}
		for kernel, limit := range limits {
			if got := most[kernel]; got > limit || got < limit/2 {
				t.Errorf("%s: one call of %s was given %d: want at most %d, and nearly as many here", level.Name(), kernel, got, limit)
			}
		}
	}
}

func countedSequence(s seqLevel, c calls) seqLevel {
	out := s
	out.dropout = func(dst, src *float32, n int, first, key0, key1, threshold uint32, scale float32) {
		c.note("dropout", n)
		s.dropout(dst, src, n, first, key0, key1, threshold, scale)
	}
	out.softmaxGrad = func(dp, p *float32, n int, dot, scale float32) {
		c.note("softmaxGrad", n)
		s.softmaxGrad(dp, p, n, dot, scale)
	}
	out.lstm = func(h, cell, gates *float32, gap int, c0 *float32, n int) {
		c.note("lstm", n)
		s.lstm(h, cell, gates, gap, c0, n)
	}
	out.lstmGrad = func(gates *float32, gap int, dc, dh, cell, c0 *float32, n int) {
		c.note("lstmGrad", n)
		s.lstmGrad(gates, gap, dc, dh, cell, c0, n)
	}
	out.lookup = func(dst, table *float32, ids *int32, n, dim int) {
		c.note("lookup rows", n)
		c.note("lookup floats", n*dim)
		s.lookup(dst, table, ids, n, dim)
	}
	out.bags = func(dst *float32, gap int, table *float32, ids, offsets *int32, scales *float32, n, dim int) {
		of := unsafe.Slice(offsets, n+1)
		c.note("bags rows and bags", int(of[n]-of[0])+n)
		c.note("bags floats", int(of[n]-of[0])*dim)
		s.bags(dst, gap, table, ids, offsets, scales, n, dim)
	}
	return out
}
