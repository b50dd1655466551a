// Package prng generates the random numbers of data sets: the same bits on every architecture.
package prng

import "math/bits"

// Rand is SplitMix64 (Steele, Lea & Flood 2014): one add, three xor-shifts and two multiplies per
// draw. The state is one word, so a generator per image or per epoch costs no set-up.
type Rand uint64

// New returns the generator of (seed, a, b). Each value is mixed in separately, so that
// neighbouring seeds and indices are independent.
func New(seed, a, b uint64) Rand {
	r := Rand(seed)
	r = Rand(r.Next() + a)
	r = Rand(r.Next() + b)
	return Rand(r.Next())
}

// Next returns 64 random bits.
func (r *Rand) Next() uint64 {
	z := Mix(uint64(*r))
	*r += gamma
	return z
}

// gamma is the step of the state.
const gamma = 0x9e3779b97f4a7c15

// Mix is the hash of SplitMix64: the number that Next returns from state z.
func Mix(z uint64) uint64 {
	z += gamma
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below returns a number in [0, n). Its bias is under n/2^64, so that a rejection loop is not
// needed.
func (r *Rand) Below(n int) int {
	hi, _ := bits.Mul64(r.Next(), uint64(n))
	return int(hi)
}

// Between returns a number in [lo, hi], both ends included.
func (r *Rand) Between(lo, hi int) int { return lo + r.Below(hi-lo+1) }

// Unit returns a number in [0, 1).
func (r *Rand) Unit() float64 { return float64(r.Next()>>11) / (1 << 53) }
