//go:build !amd64

package simd

// floats is never called: there is only the portable level.
func (reduceLevel) floats(op Reduction, dst, src [][]float32, at, n int, scale float32) {}
