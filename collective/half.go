package collective

import (
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// ToFloat16 rounds src to float16, to nearest even. The slices must have the same length.
func ToFloat16(dst []Float16, src []float32) {
	simd.Host().ToHalf(bytesview.As[uint16](bytesview.Bytes(dst)), src)
}

// FromFloat16 is the inverse of ToFloat16, and exact.
func FromFloat16(dst []float32, src []Float16) {
	simd.Host().FromHalf(dst, bytesview.As[uint16](bytesview.Bytes(src)))
}

// ToBFloat16 rounds src to bfloat16, to nearest even. The slices must have the same length.
func ToBFloat16(dst []BFloat16, src []float32) {
	simd.Host().ToBrain(bytesview.As[uint16](bytesview.Bytes(dst)), src)
}

// FromBFloat16 is the inverse of ToBFloat16, and exact.
func FromBFloat16(dst []float32, src []BFloat16) {
	simd.Host().FromBrain(dst, bytesview.As[uint16](bytesview.Bytes(src)))
}
