// Package zipf draws from Zipf's law, also for exponents of 1 and less, which
// math/rand's needs to be above 1.
package zipf

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Law gives value i of n, from 0, a probability proportional to 1/(i+1)^s.
type Law struct {
	n, s             float64
	high, span, sure float64
}

// MaxValues is the most values of a law: of more, float64s do not tell neighbours apart
// well enough.
const MaxValues = 1 << 40

// New makes a law. s is above 0 and at most 10, n from 1 to MaxValues.
func New(s float64, n uint64) (Law, error) {
	if !(s > 0 && s <= 10) || n < 1 || n > MaxValues {
		return Law{}, fmt.Errorf("zipf: exponent %s over %d values: want above 0 to 10, and 1 to %d", quantity.Exact(s), n, uint64(MaxValues))
	}
	l := Law{n: float64(n), s: s}
	l.high = l.integral(l.n + 0.5)
	l.span = l.integral(1.5) - 1 - l.high
	l.sure = 2 - l.inverse(l.integral(2.5)-l.density(2))
	return l, nil
}

// Draw turns a number drawn evenly from [0, 1) into a value. Where ok is false that one is
// used up and another is to be drawn, which happens less than once in ten times.
//
// It is rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate
// variates from monotone discrete distributions", 1996): two or three transcendental
// functions for any n.
func (l Law) Draw(unit float64) (value uint64, ok bool) {
	u := l.high + unit*l.span
	x := l.inverse(u)
	k := min(max(math.Floor(x+0.5), 1), l.n)
	return uint64(k) - 1, k-x <= l.sure || u >= l.integral(k+0.5)-l.density(k)
}

func (l Law) density(x float64) float64 { return math.Exp(-l.s * math.Log(x)) }

// integral is (x^(1-s)-1)/(1-s), and log(x) where s is 1.
func (l Law) integral(x float64) float64 {
	log := math.Log(x)
	if t := (1 - l.s) * log; math.Abs(t) > 1e-8 {
		return math.Expm1(t) / t * log
	}
	return log
}

func (l Law) inverse(y float64) float64 {
	t := max(y*(1-l.s), -1)
	if math.Abs(t) > 1e-8 {
		return math.Exp(math.Log1p(t) / t * y)
	}
	return math.Exp(y)
}
