package clicks

import (
	"math/bits"

	"github.com/ringo-ml/ringo/internal/zipf"
)

// Log-odds of base 2 in units of 1/oddsOne, in bins of 1/oddsFine. Base 2 needs no rounded
// constant. A bin is 0.0027 wide in base e. The best model scores all rows of a bin alike.
const (
	OddsOne  = 1 << 20
	OddsFine = 256
	OddsMost = 24 // limit of log-odds
	OddsBins = 2 * OddsMost * OddsFine
)

// odds has the probability of a click, in units of 2^-32, for each bin of log-odds.
type odds struct{ of [OddsBins]uint64 }

// NewOdds computes the table with integers, because floating-point powers differ in the last bits
// between machines.
func NewOdds() *odds {
	o := new(odds)
	for bin := range o.of {
		// 2^32 / (1 + 2^-x); the complement for -x.
		x := bin - OddsBins/2
		small := zipf.Exp2(int64(min(x, -x)) * (1 << 16) / OddsFine) // 2^-|x| in units of 2^-32
		p := divide(1<<32, 1<<32+small)
		if o.of[bin] = p; x < 0 {
			o.of[bin] = 1<<32 - p
		}
	}
	return o
}

// divide returns 2^32 a / b.
func divide(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, 1<<32)
	q, _ := bits.Div64(hi, lo, b)
	return q
}

// bin returns the bin of log-odds.
func (o *odds) bin(x int64) int {
	return int(min(max(x>>12+OddsBins/2, 0), OddsBins-1)) // oddsOne = 2^12 oddsFine
}

func (o *odds) Probability(x int64) uint64 { return o.of[o.bin(x)] }

// root returns the integer part of a square root.
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
