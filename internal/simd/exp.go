package simd

import "math"

// The exponential and functions based on it, for float32 without fused multiply-add, so that every
// level gives the same bits. gen/exp.go emits the same operations in the same order.
//
// exp(x) = 2ⁿ exp(r), with n the whole number nearest to x/ln 2. Adding 3·2²² rounds to a whole
// number, in the low bits. ln 2 is split in two so that n·ln2hi is exact and the error of r is
// negligible. exp(r) is Cephes' polynomial (S. Moshier, expf.c), of degree 7 on |r| <= ln 2 / 2.
// Subnormal results are flushed to 0: denormals cost a hundred times as much.
const (
	log2e              = 1.44269504088896341
	roundWhole         = 3 << 22
	ln2hi              = 0.693359375
	ln2lo              = -2.12194440e-4
	expLow     float32 = -87.33654 // below, results are under 2⁻¹²⁶
	expHigh    float32 = 88.72283  // above, results are over MaxFloat32
	expP0              = 1.9875691500e-4
	expP1              = 1.3981999507e-3
	expP2              = 8.3334519073e-3
	expP3              = 4.1665795894e-2
	expP4              = 1.6666665459e-1
	expP5              = 5.0000001201e-1
	tanhMax    float32 = 10 // tanh is 1 from 9.02 on

	// geluLinear and geluCubic are for GPT-2's GELU: x·sigmoid(2·sqrt(2/π)·(x + 0.044715 x³)).
	geluLinear = 2 * 0.797884560802865355879892119868763737
	geluCubic  = geluLinear * 0.044715
)

// reduce returns n + magic and expm1(r) for x = n·ln 2 + r.
func reduce(x, magic float32) (t, q float32) {
	t = float32(x*log2e) + magic
	n := t - magic
	r := x - float32(n*ln2hi)
	r -= float32(n * ln2lo)
	r2 := float32(r * r)
	q = float32((float32(expP0*r)+expP1)*r2) + (float32(expP2*r) + expP3)
	q = float32(q*r2) + (float32(expP4*r) + expP5)
	q = float32(q*r2) + r
	return t, q
}

// exp is within 1.5 units in the last place of the exponential, 0 below -87.33654 (where the result
// would not be normal), +Inf above 88.72283, and NaN of NaN.
func exp(x float32) float32 {
	switch {
	case !(x <= expHigh): // NaN included
		return x + float32(math.Inf(1))
	case x < expLow:
		return 0
	}
	t, q := reduce(x, roundWhole)
	return math.Float32frombits(math.Float32bits(q+1) + math.Float32bits(t)<<23)
}

func sigmoid(x float32) float32 { return 1 / (exp(-x) + 1) }

// tanh is e/(e+2) with e = expm1(2|x|) = 2ⁿ expm1(r) + (2ⁿ - 1), which is precise near 0.
func tanh(x float32) float32 {
	z := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	if z > tanhMax {
		z = tanhMax
	}
	t, q := reduce(z+z, roundWhole+127)
	scale := math.Float32frombits(math.Float32bits(t) << 23) // 2ⁿ
	q = float32(q*scale) + (scale - 1)
	q /= q + 2
	return math.Float32frombits(math.Float32bits(q) | math.Float32bits(x)&(1<<31))
}

func geluExp(x float32) float32 {
	return exp(-float32(x * (float32(float32(x*x)*geluCubic) + geluLinear)))
}

func gelu(x float32) float32 { return x / (geluExp(x) + 1) }

// geluSlope is s + x·s(1-s)·u', for gelu = x·s and s = sigmoid(u).
func geluSlope(x float32) float32 {
	s := 1 / (geluExp(x) + 1)
	d := float32(x * (float32(float32(x*x)*(3*geluCubic)) + geluLinear))
	return s + float32(d*float32(s*(1-s)))
}
