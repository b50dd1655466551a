package compress

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/simd"
)

// BlockLen is the number of values that share a scale factor in Int8 and Sign.
const BlockLen = simd.Int8Block

// scaleBytes is the length in bytes of a block's scale, a float32 that precedes the values.
const scaleBytes = 4

// blocked has the methods that Int8 and Sign share.
type blocked struct{}

// Validate returns nil.
func (blocked) Validate() error { return nil }

// Block returns BlockLen.
func (blocked) Block() int { return BlockLen }

// Feedback returns true.
func (blocked) Feedback() bool { return true }

// Int8 stores a value as one byte, q in -127 to 127, and for every block a scale: the largest
// magnitude divided by 127, with a fraction of 16 bits, so that a float32 holds q*scale exactly.
// Values are rounded to nearest, ties to even. A block below 1e-30 is stored as zeros. NaN and
// infinities are errors.
type Int8 struct{ blocked }

// Name returns "int8".
func (Int8) Name() string { return "int8" }

// Code returns CodeInt8.
func (Int8) Code() byte { return CodeInt8 }

// Size returns n and 4 bytes for each block.
func (Int8) Size(n int) int { return n + scaleBytes*((n+BlockLen-1)/BlockLen) }

// Encode stores blocks, each as scale and values.
func (Int8) Encode(dst []byte, x []float32) error {
	if at := simd.Host().ToInt8(dst, x); at < len(x) {
		return shifted(reject(x[at:min(at+BlockLen, len(x))], simd.InfMagnitude, "int8"), at)
	}
	return nil
}

// Decode returns an error for an invalid scale.
func (Int8) Decode(dst []float32, src []byte) error {
	if at := simd.Host().FromInt8(dst, src); at < len(dst) {
		_, err := scaleOf("int8", src[at/BlockLen*simd.Int8Stored:], at, math.MaxFloat32/127)
		return err
	}
	return nil
}

func scaleOf(code string, src []byte, at int, most float32) (float32, error) {
	bits := binary.LittleEndian.Uint32(src)
	scale := math.Float32frombits(bits)
	if bits > math.Float32bits(most) { // includes negative numbers and NaN
		return 0, fmt.Errorf("%s: the block that begins at value %d has scale %s: it was damaged, or is of another code", code, at, quantity.Exact(scale))
	}
	return scale, nil
}

func shifted(err error, at int) error {
	if e, ok := err.(*ValueError); ok {
		e.Index += at
	}
	return err
}

// Sign stores the sign of a value in one bit, and for every block a scale, the mean magnitude
// (1-bit SGD, Seide et al., Interspeech 2014; scaled as in Karimireddy et al., ICML 2019). The
// chain keeps the difference for later steps (error feedback). A zero has the sign of its sign bit.
// NaN and infinities are errors.
type Sign struct{ blocked }

// Name returns "sign".
func (Sign) Name() string { return "sign" }

// Code returns CodeSign.
func (Sign) Code() byte { return CodeSign }

// Size returns n bits in whole bytes and 4 bytes for each block.
func (Sign) Size(n int) int { return (n+7)/8 + scaleBytes*((n+BlockLen-1)/BlockLen) }

// Encode stores blocks, each as scale and signs.
func (Sign) Encode(dst []byte, x []float32) error {
	k := simd.Host()
	for at := 0; at < len(x); at += BlockLen {
		block := x[at:min(at+BlockLen, len(x))]
		if k.MaxMagnitude(block) >= simd.InfMagnitude {
			return shifted(reject(block, simd.InfMagnitude, "sign"), at)
		}
		scale := float32(k.SumMagnitudes(block) / float64(len(block)))
		binary.LittleEndian.PutUint32(dst, math.Float32bits(scale))
		bytes := (len(block) + 7) / 8
		k.ToSigns(dst[scaleBytes:scaleBytes+bytes], block)
		dst = dst[scaleBytes+bytes:]
	}
	return nil
}

// Decode returns an error for an invalid scale.
func (Sign) Decode(dst []float32, src []byte) error {
	for at := 0; at < len(dst); at += BlockLen {
		block := dst[at:min(at+BlockLen, len(dst))]
		scale, err := scaleOf("sign", src, at, math.MaxFloat32)
		if err != nil {
			return err
		}
		bytes := (len(block) + 7) / 8
		simd.Host().FromSigns(block, src[scaleBytes:scaleBytes+bytes], scale)
		src = src[scaleBytes+bytes:]
	}
	return nil
}
