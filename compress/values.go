package compress

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/simd"
)

// The codes of values in payloads.
const (
	CodeFP32 byte = iota
	CodeFP16
	CodeBF16
	CodeInt8
	CodeSign
)

// ValueError is a value that cannot be sent.
type ValueError struct {
	Param string  // the parameter it belongs to, "" where that is not known
	Index int     // in the parameter, or in what was given
	Value float32 // NaN, or what the code has no room for
	Code  string  // the name of the code; "" of NaN
}

// Error says whose value it is, where, and what to do.
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

// reject returns the error of the first value whose magnitude's bits are at least
// bound, of a code that has room for smaller ones only; nil: none.
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

// FP32 stores values as they are, infinities too.
type FP32 struct{}

// FP16 stores values as float16, rounded to nearest, ties to even. A magnitude
// of 65,520 or more is an error.
type FP16 struct{}

// BF16 stores values as bfloat16, rounded to nearest, ties to even. What rounds
// to infinity is an error.
type BF16 struct{}

// Name returns "fp32".
func (FP32) Name() string { return "fp32" }

// Validate returns nil.
func (FP32) Validate() error { return nil }

// Code returns CodeFP32.
func (FP32) Code() byte { return CodeFP32 }

// Block returns 1.
func (FP32) Block() int { return 1 }

// Size returns 4n.
func (FP32) Size(n int) int { return 4 * n }

// Feedback returns false: nothing is lost.
func (FP32) Feedback() bool { return false }

// Encode copies x; only NaN is an error.
func (FP32) Encode(dst []byte, x []float32) error {
	if err := reject(x, simd.InfMagnitude+1, "fp32"); err != nil {
		return err
	}
	if littleEndian {
		copy(dst, bytesOf(x))
		return nil
	}
	for i, v := range x {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
	return nil
}

// Decode copies to dst.
func (FP32) Decode(dst []float32, src []byte) error {
	if littleEndian {
		copy(bytesOf(dst), src)
		return nil
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	return nil
}

// Name returns "fp16".
func (FP16) Name() string { return "fp16" }

// Validate returns nil.
func (FP16) Validate() error { return nil }

// Code returns CodeFP16.
func (FP16) Code() byte { return CodeFP16 }

// Block returns 1.
func (FP16) Block() int { return 1 }

// Size returns 2n.
func (FP16) Size(n int) int { return 2 * n }

// Feedback returns false: what rounding loses is small.
func (FP16) Feedback() bool { return false }

// Encode rounds x; the first value out of range is the error.
func (FP16) Encode(dst []byte, x []float32) error {
	if err := reject(x, simd.Magnitude(65520), "fp16"); err != nil {
		return err
	}
	encodeHalves(dst, x, simd.Host().ToHalf)
	return nil
}

// Decode is exact.
func (FP16) Decode(dst []float32, src []byte) error {
	decodeHalves(dst, src, simd.Host().FromHalf)
	return nil
}

// Name returns "bf16".
func (BF16) Name() string { return "bf16" }

// Validate returns nil.
func (BF16) Validate() error { return nil }

// Code returns CodeBF16.
func (BF16) Code() byte { return CodeBF16 }

// Block returns 1.
func (BF16) Block() int { return 1 }

// Size returns 2n.
func (BF16) Size(n int) int { return 2 * n }

// Feedback returns false: what rounding loses is small.
func (BF16) Feedback() bool { return false }

// Encode rounds x; the first value out of range is the error.
func (BF16) Encode(dst []byte, x []float32) error {
	const roundsToInf = 0x7f7f8000
	if err := reject(x, roundsToInf, "bf16"); err != nil {
		return err
	}
	encodeHalves(dst, x, simd.Host().ToBrain)
	return nil
}

// Decode is exact.
func (BF16) Decode(dst []float32, src []byte) error {
	decodeHalves(dst, src, simd.Host().FromBrain)
	return nil
}

// halfBlock is how many 16-bit values are converted at a time.
const halfBlock = 2048

// halves is memory for the conversion: bytes may lie at odd addresses.
var halves = sync.Pool{New: func() any { return new([halfBlock]uint16) }}

func encodeHalves(dst []byte, x []float32, convert func([]uint16, []float32)) {
	block := halves.Get().(*[halfBlock]uint16)
	defer halves.Put(block)
	for len(x) > 0 {
		n := min(len(x), halfBlock)
		convert(block[:n], x[:n])
		if littleEndian {
			copy(dst, bytesOf(block[:n]))
		} else {
			for i, h := range block[:n] {
				binary.LittleEndian.PutUint16(dst[2*i:], h)
			}
		}
		x, dst = x[n:], dst[2*n:]
	}
}

func decodeHalves(dst []float32, src []byte, convert func([]float32, []uint16)) {
	block := halves.Get().(*[halfBlock]uint16)
	defer halves.Put(block)
	for len(dst) > 0 {
		n := min(len(dst), halfBlock)
		if littleEndian {
			copy(bytesOf(block[:n]), src)
		} else {
			for i := range n {
				block[i] = binary.LittleEndian.Uint16(src[2*i:])
			}
		}
		convert(dst[:n], block[:n])
		dst, src = dst[n:], src[2*n:]
	}
}

// littleEndian tells whether values lie in memory as they do in payloads.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

func bytesOf[T float32 | uint16](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
}
