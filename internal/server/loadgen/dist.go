package loadgen

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/zipf"
)

// Dist is the distribution of requested keys. The zero value is uniform.
type Dist struct {
	// Skew is Zipf's exponent: the key of rank k, from 1, is requested k^-Skew times as often as
	// that of rank 1. 0 is uniform.
	Skew float64
}

// maxSkew is the skew at which all but the first few ranks are almost never drawn.
const maxSkew = 4

// ParseDist parses "uniform" or "zipf:S", with S above 0 and at most 4.
func ParseDist(text string) (Dist, error) {
	if text == "uniform" {
		return Dist{}, nil
	}
	s, isZipf := strings.CutPrefix(text, "zipf:")
	skew, err := strconv.ParseFloat(s, 64)
	if !isZipf || err != nil || !(skew > 0 && skew <= maxSkew) {
		return Dist{}, fmt.Errorf("%q: want uniform, or zipf:S with S above 0 and at most %d, such as zipf:0.99", text, maxSkew)
	}
	return Dist{Skew: skew}, nil
}

// String returns a text for ParseDist.
func (d Dist) String() string {
	if d.Skew == 0 {
		return "uniform"
	}
	return "zipf:" + strconv.FormatFloat(d.Skew, 'g', -1, 64)
}

// ranks returns a function that draws ranks below n, the most frequent first.
func (d Dist) ranks(n uint64, r *rand.Rand) (func() uint64, error) {
	if d.Skew == 0 {
		return func() uint64 { return r.Uint64N(n) }, nil
	}
	law, err := zipf.New(d.Skew, n)
	return func() uint64 { return law.Draw(r.Uint64(), r.Uint64(), r.Uint64()) }, err
}

// beyond returns the approximate probability that a draw from n ranks is not among the first.
func (d Dist) beyond(first, n float64) float64 {
	integral := func(lo, hi float64) float64 { // integral of the density
		if d.Skew == 1 {
			return math.Log(hi / lo)
		}
		return (math.Pow(hi, 1-d.Skew) - math.Pow(lo, 1-d.Skew)) / (1 - d.Skew)
	}
	return integral(first+0.5, n+0.5) / (1 + integral(1.5, n+0.5))
}
