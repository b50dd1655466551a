package data

import "math/bits"

// rng is SplitMix64 (Steele, Lea & Flood 2014): one add, three xor-shifts and
// two multiplies per draw, the same bits on every architecture. It is the
// whole state, so a stream per image or per epoch costs nothing to start.
type rng uint64

// stream starts the generator that belongs to (seed, a, b). Each value is
// mixed in by itself, so that neighbouring seeds and indices share nothing.
func stream(seed, a, b uint64) rng {
	r := rng(seed)
	r = rng(r.next() + a)
	r = rng(r.next() + b)
	return rng(r.next())
}

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number in [0, n). The bias, under n/2^64, is nothing at our
// sizes and spares the rejection loop.
func (r *rng) below(n int) int {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int(hi)
}

// between returns a number in [lo, hi], both ends included.
func (r *rng) between(lo, hi int) int { return lo + r.below(hi-lo+1) }
