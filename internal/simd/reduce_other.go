//go:build !amd64

package simd

// There is only the portable level, which calls none of these.

func (reduceLevel) reduceAll(op Reduction, dst, src [][]float32, at, n int, scale float32) {}

func (reduceLevel) reduceAll16(f format, op Reduction, dst, src [][]uint16, at, n int, scale float32) {
}
