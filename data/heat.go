package data

import (
	"math"
	"math/bits"
	"slices"

	"github.com/ringo-ml/ringo/internal/zipf"
)

// Numbers with oddsOne for 1, for log-odds of base 2, and where they are cut to bins of 1/oddsFine. Base 2 spares a constant that
// would have to be rounded. A bin is 0.0027 of base e: rows whose odds are that near are alike to the best model, which is told of as
// if it could not tell them apart.
const (
	oddsOne  = 1 << 20
	oddsFine = 256
	oddsMost = 24 // odds beyond are those
	oddsBins = 2 * oddsMost * oddsFine
)

// odds has the probability of a click, of 2^32, for each bin of log-odds.
type odds struct{ of [oddsBins]uint64 }

// newOdds computes them with whole numbers, as floating-point powers differ in their last bits from machine to machine.
func newOdds() *odds {
	o, roots := new(odds), newPowers()
	for bin := range o.of {
		// 2^32 / (1 + 2^-x), and the same of -x is what is left.
		x := bin - oddsBins/2
		small := roots.of(int64(min(x, -x)) * (1 << 16) / oddsFine) // 2^-|x|, of 2^32
		p := divide(1<<32, 1<<32+small)
		if o.of[bin] = p; x < 0 {
			o.of[bin] = 1<<32 - p
		}
	}
	return o
}

// divide is 2^32 a / b.
func divide(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, 1<<32)
	q, _ := bits.Div64(hi, lo, b)
	return q
}

// bin is that of log-odds.
func (o *odds) bin(x int64) int {
	return int(min(max(x>>12+oddsBins/2, 0), oddsBins-1)) // oddsOne is 2^12 times oddsFine
}

func (o *odds) probability(x int64) uint64 { return o.of[o.bin(x)] }

// powers are roots of 2, of 2^62: the square root, its root, and so on.
type powers [16]uint64

func newPowers() (p powers) {
	root := uint64(1) << 63
	for i := range p {
		root = root62(root)
		p[i] = root
	}
	return p
}

// of is 2^(x/2^16), of 2^32, of x up to 0.
func (p *powers) of(x int64) uint64 {
	if x < -32<<16 {
		return 0
	}
	whole, part := x>>16, uint(x&0xffff)
	y := uint64(1) << 62
	for i, root := range p {
		if part>>(15-i)&1 == 1 {
			hi, lo := bits.Mul64(y, root)
			y = hi<<2 | lo>>62
		}
	}
	return y >> 30 >> -whole
}

// root62 is the root of x, both of 2^62, by bisection: it is called 16 times in all.
func root62(x uint64) uint64 {
	lo, hi := uint64(1)<<62, uint64(1)<<63
	for lo < hi { // the largest whose square is not above x
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

// root is the whole part of a root.
func root(x int64) int64 {
	lo, hi := int64(0), int64(3037000499)
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		if mid*mid > x {
			hi = mid - 1
		} else {
			lo = mid
		}
	}
	return lo
}

// log2 is the logarithm of x of base 2, of 2^16, x at least 1: by squaring (Knuth, TAOCP 1, 1.2.2, exercise 25's like).
func log2(x uint64) int64 {
	n := bits.Len64(x) - 1
	y := x << (63 - n) // from 1 to below 2, of 2^63
	out := int64(n)
	for range 16 {
		hi, _ := bits.Mul64(y, y) // of 2^62
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

// heat draws values by Zipf's law with whole numbers: value i, from 0, is as likely as 1/(i+1)^s. Values lie in ranges, of which the first
// ones have one value each and the others no more than a 64th of their first value; within a range all are as likely. Some 45 ranges
// stand for each doubling, so that a billion values need some 1,200, and a value is within s/128 of its share by the law.
//
// A draw takes three random numbers and no logarithm, unlike package internal/zipf's, whose draws depend on the last bits of the
// machine's: a range by a table of aliases, and a place in it.
type heat struct {
	first []uint64 // value of each range, and one more: how many there are
	keep  []uint64 // of 2^63: that a range is itself, and not its alias (Walker 1977)
	alias []int32
}

const heatFine = 64

func newHeat(values uint64, exponent float64) (*heat, error) {
	if _, err := zipf.New(exponent, values); err != nil {
		return nil, err
	}
	h, roots := new(heat), newPowers()
	s := int64(math.Round(exponent * (1 << 16))) // a multiple is exact anywhere
	var logs []int64                             // of ranges' weights
	for at := uint64(0); at < values; {
		n := min(max(1, (at+1)/heatFine), values-at)
		h.first, logs = append(h.first, at), append(logs, log2(n)-s*log2(at+1+n/2)>>16)
		at += n
	}
	h.first = append(h.first, values)
	most, total, weights := slices.Max(logs), uint64(0), make([]uint64, len(logs))
	for i, x := range logs {
		weights[i] = max(1, roots.of(x-most)<<8) // below 2^41
		total += weights[i]
	}
	h.choose(weights, total)
	return h, nil
}

// choose makes the table of aliases: ranges with less than the mean get the rest of their place from one with more. Each of n places is
// as likely, and belongs to its own range with keep, else to its alias; shares are counted in whole numbers, of total for a place, so that
// they add up exactly.
func (h *heat) choose(weights []uint64, total uint64) {
	n := uint64(len(weights))
	h.keep, h.alias = make([]uint64, n), make([]int32, n)
	var small, large []int
	share := make([]uint64, n) // of total, times n
	for i, w := range weights {
		if share[i] = w * n; share[i] < total {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		h.keep[s], _ = bits.Div64(share[s]>>1, share[s]<<63, total)
		h.alias[s] = int32(l)
		if share[l] -= total - share[s]; share[l] < total {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, i := range append(small, large...) {
		h.keep[i] = 1 << 63
	}
}

// draw is a value.
func (h *heat) draw(r *rng) uint64 {
	i := r.below(len(h.keep))
	if r.next()>>1 >= h.keep[i] {
		i = int(h.alias[i])
	}
	n := h.first[i+1] - h.first[i]
	hi, _ := bits.Mul64(r.next(), n)
	return h.first[i] + hi
}
