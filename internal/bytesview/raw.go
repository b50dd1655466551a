// Package bytesview deals with the memory under slices: it shows it as bytes, and uses it again.
package bytesview

import "unsafe"

// Number is what Bytes and As see: types of a fixed size without pointers.
type Number interface {
	~uint8 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// Bytes is x as bytes, without a copy, in the machine's order.
func Bytes[T Number](x []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one)))
}

// As is the inverse of Bytes; what is left over of a value at the end is cut off. b must lie as T has to.
func As[T Number](b []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(one)))
}

// Sized is x with length n, in its own memory where that is large enough. What it holds is unspecified. Memory that
// has to grow again gets a quarter to spare: lengths differ a little from step to step.
func Sized[T any](x []T, n int) []T {
	switch {
	case cap(x) >= n:
		return x[:n]
	case x == nil:
		return make([]T, n)
	}
	return make([]T, n, n+n/4)
}
