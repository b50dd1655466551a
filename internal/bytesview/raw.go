// Package bytesview handles the memory of slices: views as bytes, and reuse.
package bytesview

import "unsafe"

// Number is the constraint of Bytes and As: types of a fixed size without pointers.
type Number interface {
	~uint8 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// Bytes is x as bytes, without a copy, in the machine's order.
func Bytes[T Number](x []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one)))
}

// As is the inverse of Bytes, without an incomplete last value. b must be aligned for T.
func As[T Number](b []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(one)))
}

// Sized is x with length n and unspecified values, in x's memory if large enough. Growing memory
// gets a spare quarter, as lengths vary slightly from step to step.
func Sized[T any](x []T, n int) []T {
	switch {
	case cap(x) >= n:
		return x[:n]
	case x == nil:
		return make([]T, n)
	}
	return make([]T, n, n+n/4)
}
