package table

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// naiveBins counts all numbers at once: by the finest width with at most maxBins bins.
func naiveBins(all []float64) (b bins) {
	low, high := slices.Min(all), slices.Max(all)
	for b.Exp = -1074; ; b.Exp++ {
		first, last := binOf(low, b.Exp), binOf(high, b.Exp)
		if math.Abs(first) < 1<<53 && math.Abs(last) < 1<<53 && last-first < maxBins {
			b.First, b.Counts = int64(first), make([]int64, int64(last-first)+1)
			break
		}
	}
	for _, x := range all {
		b.Counts[int64(binOf(x, b.Exp))-b.First]++
	}
	return b
}

// binOf returns the bin of x. A negative number may be too small for a quotient.
func binOf(x float64, exp int) float64 {
	if at := math.Floor(math.Ldexp(x, -exp)); at != 0 || x >= 0 {
		return at
	}
	return -1
}

// TestHistogramEqualsNaiveBins: bins equal those of a naive count in any order, and merged from any
// division of the numbers.
func TestHistogramEqualsNaiveBins(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := map[string]func() float64{
		"normal": r.NormFloat64, "wide": func() float64 { return r.NormFloat64() * math.Pow(10, float64(r.IntN(600)-300)) },
		"integers": func() float64 { return float64(r.IntN(7) - 3) }, "large": func() float64 { return 1e300 * r.NormFloat64() },
		"money": func() float64 { return math.Round(1e5 + 1e4*r.NormFloat64()) },
	}
	for name, next := range draw {
		for range 40 {
			all := make([]float64, 2+r.IntN(300))
			for i := range all {
				all[i] = next()
			}
			var whole, merged, part bins
			for i, x := range all {
				whole.add(x)
				part.add(x)
				if r.IntN(50) == 0 || i == len(all)-1 {
					merged.merge(part)
					part = bins{}
				}
			}
			if slices.Min(all) == slices.Max(all) {
				continue // the width of a single number is any
			}
			if want := naiveBins(all); !reflect.DeepEqual(whole, want) || !reflect.DeepEqual(merged, want) {
				t.Fatalf("%s, %d numbers: got %+v, merged %+v, want %+v", name, len(all), whole, merged, want)
			}
		}
	}
	var none bins
	none.merge(bins{})
	if h := none.histogram(); h != nil {
		t.Errorf("without numbers: %+v", h)
	}
	var b bins
	for _, x := range []float64{-1, 0, 1, 2} {
		b.add(x)
	}
	sum := int64(0)
	h := b.histogram()
	for _, n := range h.Counts {
		sum += n
	}
	if sum != 4 || h.Start > -1 || h.Start+h.Width*float64(len(h.Counts)) <= 2 {
		t.Errorf("got %+v", h)
	}
}
