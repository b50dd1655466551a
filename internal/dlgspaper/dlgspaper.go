// Package dlgspaper is Algorithm 1 of the DLGS paper (Ju, Kang, Liu, Huo, J. Xi'an Jiaotong
// Univ. 2024(9)), written down naively: the oracle of the tests of compress.RulePaper.
//
// The printed algorithm begins with threshold 0; the paper's text, followed here, has an exact
// first step. Among equal magnitudes the first are sent; a NaN exceeds all numbers, so that
// receivers notice NaNs.
package dlgspaper

import (
	"cmp"
	"math"
	"slices"
)

// Layer is a layer, or a group of merged layers, of one worker.
type Layer struct {
	Ratio    float64   // share of values in an exact step
	Every    int       // steps per exact step
	Residual []float32 // e, one per value of the layer
	H        float32   // the threshold
	steps    int
}

// Step is a step with gradient grad, and returns the ascending places of sent values, and the
// values.
func (l *Layer) Step(grad []float32) (places []int, values []float32) {
	for i, v := range grad {
		l.Residual[i] += v
	}
	size := func(i int) uint32 { return math.Float32bits(l.Residual[i]) &^ (1 << 31) }
	for i := range grad {
		if l.steps%l.Every == 0 || size(i) >= math.Float32bits(l.H) && size(i) > 0 {
			places = append(places, i)
		}
	}
	if l.steps%l.Every == 0 {
		k := max(1, int(math.Ceil(l.Ratio*float64(len(grad)))))
		slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(size(b), size(a)) })
		places = slices.Clone(places[:k])
		l.H = math.Float32frombits(size(places[k-1]))
		slices.Sort(places)
	}
	for _, i := range places {
		values = append(values, l.Residual[i])
		l.Residual[i] = 0
	}
	l.steps++
	return places, values
}
