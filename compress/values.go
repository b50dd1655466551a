package compress

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// Codes of values in payloads.
const (
	CodeFP32 byte = iota
	CodeFP16
	CodeBF16
	CodeInt8
	CodeSign
)

// ValueError is a value that cannot be sent.
type ValueError struct {
	Param string  // parameter with the value, or ""
	Index int     // index in the parameter, or in the argument
	Value float32 // NaN, or a value outside the code's range
	Code  string  // name of the code; "" for NaN
}

// Error names the parameter, the element and a remedy.
func (e *ValueError) Error() string {
	whose := "a gradient"
	if e.Param != "" {
		whose = fmt.Sprintf("the gradient of parameter %q", e.Param)
	}
	if e.Value != e.Value {
		return fmt.Sprintf("compress: %s is NaN at element %d: the loss has diverged or an input is bad; lower the learning rate or clip", whose, e.Index)
	}
	return fmt.Sprintf("compress: %s is %v at element %d, which %s has no room for: clip it, or use a code of wider range", whose, e.Value, e.Index, e.Code)
}

// reject returns an error for the first value of x with magnitude bits of at least bound, which the
// code cannot store, or nil.
func reject(x []float32, bound uint32, code string) error {
	if simd.Host().MaxMagnitude(x) < bound {
		return nil
	}
	for i, v := range x {
		if v != v {
			return &ValueError{Index: i, Value: v}
		}
	}
	for i, v := range x {
		if simd.Magnitude(v) >= bound {
			return &ValueError{Index: i, Value: v, Code: code}
		}
	}
	return nil
}

// FP32 stores values unchanged, including infinities.
type FP32 struct{ separate }

// FP16 stores values as float16, rounded to nearest, ties to even. A magnitude
// of 65,520 or more is an error.
type FP16 struct{ separate }

// BF16 stores values as bfloat16, rounded to nearest, ties to even. A value that rounds to infinity
// is an error.
type BF16 struct{ separate }

// separate has the methods of codes that store each value separately. Such codes lose little or no
// precision, and need no feedback.
type separate struct{}

// Validate returns nil.
func (separate) Validate() error { return nil }

// Block returns 1.
func (separate) Block() int { return 1 }

// Feedback returns false.
func (separate) Feedback() bool { return false }

// Name returns "fp32".
func (FP32) Name() string { return "fp32" }

// Code returns CodeFP32.
func (FP32) Code() byte { return CodeFP32 }

// Size returns 4n.
func (FP32) Size(n int) int { return 4 * n }

// Encode copies x; only NaN is an error.
func (FP32) Encode(dst []byte, x []float32) error {
	for at := 0; at < len(x); at += valueBlock {
		block := x[at:min(at+valueBlock, len(x))]
		if simd.Host().MaxMagnitude(block) > simd.InfMagnitude {
			return reject(x, simd.InfMagnitude+1, "fp32")
		}
		copy(dst[4*at:], bytesview.Bytes(block))
	}
	return nil
}

// Decode copies to dst.
func (FP32) Decode(dst []float32, src []byte) error {
	copy(bytesview.Bytes(dst), src)
	return nil
}

// Name returns "fp16".
func (FP16) Name() string { return "fp16" }

// Code returns CodeFP16.
func (FP16) Code() byte { return CodeFP16 }

// Size returns 2n.
func (FP16) Size(n int) int { return 2 * n }

// Encode rounds x; the first value out of range is the error.
func (FP16) Encode(dst []byte, x []float32) error {
	return encodeHalves(dst, x, "fp16", simd.Magnitude(65520), (*simd.Kernels).ToHalf)
}

// Decode is exact.
func (FP16) Decode(dst []float32, src []byte) error {
	decodeHalves(dst, src, (*simd.Kernels).FromHalf)
	return nil
}

// Name returns "bf16".
func (BF16) Name() string { return "bf16" }

// Code returns CodeBF16.
func (BF16) Code() byte { return CodeBF16 }

// Size returns 2n.
func (BF16) Size(n int) int { return 2 * n }

// Encode rounds x; the first value out of range is the error.
func (BF16) Encode(dst []byte, x []float32) error {
	const roundsToInf = 0x7f7f8000
	return encodeHalves(dst, x, "bf16", roundsToInf, (*simd.Kernels).ToBrain)
}

// Decode is exact.
func (BF16) Decode(dst []float32, src []byte) error {
	decodeHalves(dst, src, (*simd.Kernels).FromBrain)
	return nil
}

// valueBlock is the number of values checked and converted at a time, so that the conversion finds
// them in the nearest cache.
const valueBlock = 2048

// halves is memory for 16-bit values with bytes at odd addresses.
var halves = sync.Pool{New: func() any { return new([valueBlock]uint16) }}

// encodeHalves converts values to 16 bits by convert. It returns an error for a value with
// magnitude bits of bound or more.
func encodeHalves(dst []byte, x []float32, code string, bound uint32, convert func(*simd.Kernels, []uint16, []float32)) error {
	k, aside := simd.Host(), (*[valueBlock]uint16)(nil)
	if wholeHalves(dst[:2*len(x)]) == nil { // here, because a defer in the loop would allocate
		aside = halves.Get().(*[valueBlock]uint16)
		defer halves.Put(aside)
	}
	for at := 0; at < len(x); at += valueBlock {
		block := x[at:min(at+valueBlock, len(x))]
		if k.MaxMagnitude(block) >= bound {
			return reject(x, bound, code)
		}
		to := dst[2*at : 2*(at+len(block))]
		if whole := wholeHalves(to); whole != nil {
			convert(k, whole, block)
			continue
		}
		convert(k, aside[:len(block)], block)
		copy(to, bytesview.Bytes(aside[:len(block)]))
	}
	return nil
}

func decodeHalves(dst []float32, src []byte, convert func(*simd.Kernels, []float32, []uint16)) {
	k := simd.Host()
	if whole := wholeHalves(src[:2*len(dst)]); whole != nil {
		convert(k, dst, whole)
		return
	}
	aside := halves.Get().(*[valueBlock]uint16)
	defer halves.Put(aside)
	for len(dst) > 0 {
		n := min(len(dst), valueBlock)
		copy(bytesview.Bytes(aside[:n]), src)
		convert(k, dst[:n], aside[:n])
		dst, src = dst[n:], src[2*n:]
	}
}

// wholeHalves returns b as 16-bit values, or nil if b begins at an odd address. Memory and payloads
// are little-endian on every supported platform.
func wholeHalves(b []byte) []uint16 {
	first := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(first)&1 != 0 {
		return nil
	}
	return unsafe.Slice((*uint16)(first), len(b)/2)
}
