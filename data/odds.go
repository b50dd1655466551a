package data

import (
	"math/bits"

	"github.com/ringo-ml/ringo/internal/zipf"
)

// Numbers with oddsOne for 1, for log-odds of base 2, and where they are cut to bins of 1/oddsFine.
// Base 2 spares a constant that would have to be rounded. A bin is 0.0027 of base e: rows whose
// odds are that near are alike to the best model, which is told of as if it could not tell them
// apart.
const (
	oddsOne  = 1 << 20
	oddsFine = 256
	oddsMost = 24 // odds beyond are those
	oddsBins = 2 * oddsMost * oddsFine
)

// odds has the probability of a click, of 2^32, for each bin of log-odds.
type odds struct{ of [oddsBins]uint64 }

// newOdds computes them with whole numbers, as floating-point powers differ in their last bits from
// machine to machine.
func newOdds() *odds {
	o := new(odds)
	for bin := range o.of {
		// 2^32 / (1 + 2^-x), and the same of -x is what is left.
		x := bin - oddsBins/2
		small := zipf.Exp2(int64(min(x, -x)) * (1 << 16) / oddsFine) // 2^-|x|, of 2^32
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
