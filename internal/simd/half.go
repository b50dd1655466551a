package simd

import "math"

// halfLevel converts between float32 and 16-bit values: n of them, at least one, a multiple of
// vectorLevel.width. nil: portable.
type halfLevel struct {
	fromHalf, fromBrain func(dst *float32, src *uint16, n int)
	toHalf, toBrain     func(dst *uint16, src *float32, n int)
}

// ToHalf rounds src to float16 (IEEE 754 binary16), to nearest, ties to even. Values of 65,520 or
// more become infinite; NaNs stay NaN, quiet, with the upper bits of their payload.
func (k *Kernels) ToHalf(dst []uint16, src []float32) {
	convert(k, dst, src, k.half.toHalf, toHalf)
}

// FromHalf computes the float32 of float16 values exactly. Signaling NaNs become quiet.
func (k *Kernels) FromHalf(dst []float32, src []uint16) {
	convert(k, dst, src, k.half.fromHalf, fromHalf)
}

// ToBrain rounds src to bfloat16 (the upper half of a float32), to nearest, ties to even, with NaNs
// as in [Kernels.ToHalf].
func (k *Kernels) ToBrain(dst []uint16, src []float32) {
	convert(k, dst, src, k.half.toBrain, toBrain)
}

// FromBrain computes the float32 of bfloat16 values exactly.
func (k *Kernels) FromBrain(dst []float32, src []uint16) {
	convert(k, dst, src, k.half.fromBrain, fromBrain)
}

func convert[D, S float32 | uint16](k *Kernels, dst []D, src []S, vectors func(*D, *S, int), one func(S) D) {
	if len(dst) != len(src) {
		sameLength("conversion", len(dst), len(src))
	}
	for n := k.bulk(len(dst)); n > 0; n = k.bulk(len(dst)) {
		vectors(&dst[0], &src[0], n)
		dst, src = dst[n:], src[n:]
	}
	for i, v := range src {
		dst[i] = one(v)
	}
}

func toHalf(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, abs := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | uint16(abs>>13&0x1ff)
	case abs >= 0x47800000: // 65,536
		return sign | 0x7c00
	case abs < 0x38800000: // 2⁻¹⁴: subnormal. In 0.5 to 1, 2⁻²⁴ is the last place.
		return sign | uint16(math.Float32bits(math.Float32frombits(abs)+0.5)-0x3f000000)
	}
	// A carry correctly increments the exponent.
	return sign | uint16((abs-0x38000000+0xfff+abs>>13&1)>>13)
}

func fromHalf(h uint16) float32 {
	sign, exponent, fraction := uint32(h)<<16&0x80000000, h>>10&0x1f, uint32(h&0x3ff)
	switch {
	case exponent == 0: // subnormal or 0: exact
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case exponent < 31:
		return math.Float32frombits(sign | (uint32(h&0x7fff)<<13 + 0x38000000))
	case fraction == 0:
		return math.Float32frombits(sign | 0x7f800000)
	}
	return math.Float32frombits(sign | 0x7fc00000 | fraction<<13)
}

func toBrain(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func fromBrain(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
