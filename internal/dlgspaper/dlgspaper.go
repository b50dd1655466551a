// Package dlgspaper is Algorithm 1 of the DLGS paper (Ju, Kang, Liu, Huo, J. Xi'an Jiaotong
// Univ. 2024(9)), written down naively: the oracle of the tests of compress.RulePaper.
//
// Printed, it begins with a threshold of 0; its text says that the first step is exact, which
// is what happens here. Of equal magnitudes those in front are sent; a NaN is larger than all
// numbers, so that whoever is sent one notices.
package dlgspaper

import (
	"cmp"
	"math"
	"slices"
)

// Layer is a layer, or a group of merged ones, of one worker.
type Layer struct {
	Ratio    float64   // of the values that an exact step sends
	Every    int       // steps from one exact step to the next
	Residual []float32 // e, as many as the layer has values
	H        float32   // the threshold
	steps    int
}

// Step is a step with gradient grad: it returns the places of what is sent, ascending, and the
// values there.
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
