package collective

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/simd"
)

// ToFloat16 rounds src to float16, to the nearest and of two to the even one. The
// slices must have the same length.
func ToFloat16(dst []Float16, src []float32) { simd.Host().ToHalf(bitsOf(dst), src) }

// FromFloat16 is the inverse of ToFloat16, and exact.
func FromFloat16(dst []float32, src []Float16) { simd.Host().FromHalf(dst, bitsOf(src)) }

// ToBFloat16 rounds src to bfloat16, to the nearest and of two to the even one. The
// slices must have the same length.
func ToBFloat16(dst []BFloat16, src []float32) { simd.Host().ToBrain(bitsOf(dst), src) }

// FromBFloat16 is the inverse of ToBFloat16, and exact.
func FromBFloat16(dst []float32, src []BFloat16) { simd.Host().FromBrain(dst, bitsOf(src)) }

// bitsOf is x as bits, without a copy.
func bitsOf[T Float16 | BFloat16](x []T) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}
