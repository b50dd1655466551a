//go:build !amd64

package simd

func hostLevels() []*Kernels { return nil }

func hostBF16() *Kernels { return nil }

// Never called: only the portable level exists.

func (reduceLevel) reduceAll(op Reduction, dst, src [][]float32, at, n int, scale float32) {}

func (reduceLevel) reduceAll16(f format, op Reduction, dst, src [][]uint16, at, n int, scale float32) {
}
