// Package zipf draws from Zipf's law and other discrete distributions, in constant time for each
// draw.
//
// A Law uses only whole numbers, for equal draws on every machine: floating-point powers and
// logarithms differ in the last bits.
package zipf

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Law gives value i of n, from 0, a probability proportional to 1/(i+1)^s. Values form ranges of
// equally likely values: the first ranges have one value, later ranges at most a 64th of the first
// value. About 45 ranges cover each doubling: a billion values need about 1,200. A value's
// probability is within s/128 of the law's share.
type Law struct {
	first []uint64 // value of each range, and n
	alias Alias
}

// rangeFine is the ratio of a range's first value to the largest range size.
const rangeFine = 64

// maxValues is the largest n of a law: the logarithms below have 16 bits after the point.
const maxValues = 1 << 40

// New makes a law. s is above 0 and at most 10, n from 1 to 2^40.
func New(s float64, n uint64) (*Law, error) {
	if !(s > 0 && s <= 10) || n < 1 || n > maxValues {
		return nil, fmt.Errorf("zipf: exponent %s over %d values: want above 0 to 10, and 1 to %d", quantity.Exact(s), n, uint64(maxValues))
	}
	l := new(Law)
	exponent := int64(math.Round(s * (1 << 16))) // multiples are exact on every machine
	var logs []int64                             // log weights of the ranges
	for at := uint64(0); at < n; {
		size := min(max(1, (at+1)/rangeFine), n-at)
		l.first, logs = append(l.first, at), append(logs, log2(size)-exponent*log2(at+1+size/2)>>16)
		at += size
	}
	l.first = append(l.first, n)
	most, total, weights := slices.Max(logs), uint64(0), make([]uint64, len(logs))
	for i, x := range logs {
		weights[i] = max(1, Exp2(x-most)<<8) // below 2^41
		total += weights[i]
	}
	for i := range weights {
		weights[i] *= uint64(len(weights))
	}
	l.alias = NewAlias(weights, total, func(x uint64) uint64 {
		part, _ := bits.Div64(x>>1, x<<63, total)
		return part
	})
	return l, nil
}

// Draw turns three numbers, each drawn evenly from all of 64 bits, into a value.
func (l *Law) Draw(a, b, c uint64) uint64 {
	i := l.alias.Draw(a, b)
	hi, _ := bits.Mul64(c, l.first[i+1]-l.first[i])
	return l.first[i] + hi
}

// Alias is an alias table (Walker 1977), which draws an outcome of n in constant time. All n places
// are equally likely: a place gives its outcome with probability keep, else its alias.
type Alias struct {
	keep  []uint64 // in units of 2^-63
	alias []int32
}

// NewAlias makes the table of outcomes by shares with the given mean. part returns a share below
// the mean as a fraction of the mean, in units of 2^-63. NewAlias overwrites share.
func NewAlias[T uint64 | float64](share []T, mean T, part func(T) uint64) Alias {
	t := Alias{make([]uint64, len(share)), make([]int32, len(share))}
	var small, large []int32
	for i, s := range share {
		if s < mean {
			small = append(small, int32(i))
		} else {
			large = append(large, int32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 { // fill a small share's place from a large share
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		t.keep[s], t.alias[s] = part(share[s]), l
		if share[l] -= mean - share[s]; share[l] < mean {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, i := range append(small, large...) {
		t.keep[i] = 1 << 63
	}
	return t
}

// Draw turns two numbers, each drawn evenly from all of 64 bits, into an outcome.
func (t *Alias) Draw(a, b uint64) int {
	i, _ := bits.Mul64(a, uint64(len(t.keep)))
	if b>>1 >= t.keep[i] {
		return int(t.alias[i])
	}
	return int(i)
}
