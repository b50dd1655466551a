package kernels

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/simd"
)

// reductionKernels are those of collectives: windows of several ranks reduced
// in place, and conversions to 16 bits.
func reductionKernels() []kernel {
	var out []kernel
	for _, ranks := range []int{2, 4} {
		const values = streamed
		each := values / ranks
		shape := fmt.Sprintf("%d windows of %d Mi values", ranks, each>>20)
		out = append(out, kernel{"reduce in place", shape, 0, 8 * values, func(k *simd.Kernels) func() {
			windows := make([][]float32, ranks)
			for i := range windows {
				windows[i] = noise(each, uint64(i))
			}
			return func() { k.ReduceAll(simd.ReduceSum, windows, windows, 1/float32(ranks)) }
		}})
		for _, f := range []struct {
			name   string
			reduce func(*simd.Kernels, simd.Reduction, [][]uint16, [][]uint16, float32)
		}{{"float16", (*simd.Kernels).ReduceAllHalf}, {"bfloat16", (*simd.Kernels).ReduceAllBrain}} {
			out = append(out, kernel{"reduce " + f.name, shape, 0, 4 * values, func(k *simd.Kernels) func() {
				windows := make([][]uint16, ranks)
				for i := range windows {
					windows[i] = make([]uint16, each)
				}
				return func() { f.reduce(k, simd.ReduceSum, windows, windows, 1/float32(ranks)) }
			}})
		}
	}
	shape := fmt.Sprintf("%d Mi values", streamed>>20)
	convert := func(name string, run func(k *simd.Kernels, x []float32, h []uint16)) {
		out = append(out, kernel{name, shape, 0, 6 * streamed, func(k *simd.Kernels) func() {
			x, h := noise(streamed, 1), make([]uint16, streamed)
			return func() { run(k, x, h) }
		}})
	}
	convert("to float16", func(k *simd.Kernels, x []float32, h []uint16) { k.ToHalf(h, x) })
	convert("from float16", func(k *simd.Kernels, x []float32, h []uint16) { k.FromHalf(x, h) })
	convert("to bfloat16", func(k *simd.Kernels, x []float32, h []uint16) { k.ToBrain(h, x) })
	convert("from bfloat16", func(k *simd.Kernels, x []float32, h []uint16) { k.FromBrain(x, h) })
	return out
}
