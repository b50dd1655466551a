package collective

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/simd"
)

// Number is what can be reduced. Values cross the wire as they lie in memory,
// little-endian on every supported platform.
type Number interface {
	~float32 | ~float64 | ~int32 | ~int64 | ~uint8
}

// element is the representation of a Number. Beneath the generic functions
// everything works on bytes and an element: one copy of the algorithms, and
// nothing to allocate.
type element uint8

const (
	float32s element = iota
	float64s
	int32s
	int64s
	uint8s
)

var elementNames = [...]string{"float32", "float64", "int32", "int64", "uint8"}

func (e element) String() string { return elementNames[e] }

func (e element) float() bool { return e <= float64s }

// size is in bytes.
func (e element) size() int { return [...]int{4, 8, 4, 8, 1}[e] }

// elementOf finds T's representation by what sets it apart: its size, and
// whether it has fractions.
func elementOf[T Number]() element {
	var zero T
	fraction := T(1)/T(2) != 0
	switch size := unsafe.Sizeof(zero); {
	case size == 1:
		return uint8s
	case size == 4 && fraction:
		return float32s
	case size == 4:
		return int32s
	case fraction:
		return float64s
	}
	return int64s
}

// bytesOf is x as bytes, without a copy.
func bytesOf[T Number](x []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}

// valuesOf is the inverse of bytesOf. b must be aligned for T.
func valuesOf[T Number](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// add does dst += src. Integers wrap around.
func (e element) add(k *simd.Kernels, dst, src []byte) {
	switch e {
	case float32s:
		k.Add(valuesOf[float32](dst), valuesOf[float32](src))
	case float64s:
		addTo(valuesOf[float64](dst), valuesOf[float64](src))
	case int32s:
		addTo(valuesOf[int32](dst), valuesOf[int32](src))
	case int64s:
		addTo(valuesOf[int64](dst), valuesOf[int64](src))
	case uint8s:
		addTo(dst, src)
	}
}

// scale does x *= 1/n. Integers have no mean.
func (e element) scale(k *simd.Kernels, x []byte, n int) {
	switch e {
	case float32s:
		k.Scale(valuesOf[float32](x), 1/float32(n))
	case float64s:
		multiply(valuesOf[float64](x), 1/float64(n))
	}
}

func addTo[T Number](dst, src []T) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += src[i]
	}
}

func multiply(x []float64, factor float64) {
	for i := range x {
		x[i] *= factor
	}
}
