package zipf

import "math/bits"

// roots are repeated square roots of 2, in units of 2^-62.
var roots = func() (p [16]uint64) {
	root := uint64(1) << 63
	for i := range p {
		root = root62(root)
		p[i] = root
	}
	return p
}()

// Exp2 is 2^(x/2^16), in units of 2^-32, for x of at most 0.
func Exp2(x int64) uint64 {
	if x < -32<<16 {
		return 0
	}
	whole, part := x>>16, uint(x&0xffff)
	y := uint64(1) << 62
	for i, root := range roots {
		if part>>(15-i)&1 == 1 {
			hi, lo := bits.Mul64(y, root)
			y = hi<<2 | lo>>62
		}
	}
	return y >> 30 >> -whole
}

// root62 is the square root of x, both in units of 2^-62, by bisection.
func root62(x uint64) uint64 {
	lo, hi := uint64(1)<<62, uint64(1)<<63
	for lo < hi { // largest root with a square of at most x
		mid := lo + (hi-lo+1)/2
		h, l := bits.Mul64(mid, mid)
		if h<<2|l>>62 > x || h>>62 > 0 {
			hi = mid - 1
		} else {
			lo = mid
		}
	}
	return lo
}

// log2 is the logarithm of x to base 2, in units of 2^-16, for x of at least 1: by squaring (Knuth,
// TAOCP 1, 1.2.2, like exercise 25).
func log2(x uint64) int64 {
	n := bits.Len64(x) - 1
	y := x << (63 - n) // from 1 to below 2, in units of 2^-63
	out := int64(n)
	for range 16 {
		hi, _ := bits.Mul64(y, y) // in units of 2^-62
		out <<= 1
		if hi>>63 == 1 {
			out |= 1
			y = hi
		} else {
			y = hi << 1
		}
	}
	return out
}
