package onnx

import (
	"strconv"

	"github.com/ringo-ml/ringo/nn"
)

// dim is a size as a function of the batch: each·batch + plus.
type dim struct{ each, plus int }

// fixed is a size independent of the batch.
func fixed(n int) dim { return dim{plus: n} }

var batch = dim{each: 1}

// String is the dimension's name in the graph.
func (d dim) String() string {
	switch {
	case d.each == 0:
		return strconv.Itoa(d.plus)
	case d.plus != 0:
		return strconv.Itoa(d.each) + "*batch+" + strconv.Itoa(d.plus)
	case d.each > 1:
		return strconv.Itoa(d.each) + "*batch"
	}
	return "batch"
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// sizes are the batch sizes of traces: two determine how a size depends on the batch, and the third
// verifies it.
var sizes = [3]int{2, 3, 1}

// fit determines how a size depends on the batch, given its values for sizes; ok is false if the
// dependence is not linear.
func fit(at [3]int) (d dim, ok bool) {
	d.each = at[1] - at[0]
	d.plus = at[0] - 2*d.each
	return d, d.each+d.plus == at[2]
}

// fitShape is fit for each axis.
func fitShape(xs [3]*nn.Tensor) ([]dim, bool) {
	var out []dim
	for i := range xs[0].Shape {
		var at [3]int
		for p, x := range xs {
			if len(x.Shape) != len(xs[0].Shape) {
				return nil, false
			}
			at[p] = x.Shape[i]
		}
		d, ok := fit(at)
		if !ok {
			return nil, false
		}
		out = append(out, d)
	}
	return out, true
}

// volume returns the product of a shape's sizes; fixed is false if a size depends on the batch.
func volume(shape []dim) (n int, fixed bool) {
	n, fixed = 1, true
	for _, d := range shape {
		n, fixed = n*d.plus, fixed && d.each == 0
	}
	return n, fixed
}
