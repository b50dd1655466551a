package nn

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Limits of CheckGradients.
const (
	checkedValues = 100  // values of each tensor
	relativeError = 1e-2 // of the larger slope
	tensorError   = 1e-3 // of the largest gradient of the tensor
)

// checkSteps are the distances for differences of the loss: absolute for values up to 1, relative
// for larger ones. The smaller distance crosses fewer kinks, as of ReLU; the larger one has less
// rounding.
var checkSteps = []float64{1. / 64, 1. / 512}

// CheckGradients compares the gradients that Backward computes of a loss with differences of the
// loss, for values of all parameters that are not frozen, and of xs: at most 100 of each tensor,
// evenly spaced. It calls ps.Arrange unless it was called before. The error names each tensor with
// a wrong gradient, and its first wrong value. The loss must depend on these values alone, and
// therefore not use Dropout.
//
// A central difference over a distance of 1/64 or 1/512, relative above 1, must be within 1 % of
// the gradient, with an allowance for the rounding of float32. At a kink of the loss a difference
// is no gradient: choose other values there.
//
// Cost: 2 to 4 passes forward for each value.
//
//	err := nn.CheckGradients(ps, func(t *nn.Tape) *nn.Tensor { return t.Mean(layer(t, x)) }, x)
func CheckGradients(ps *Params, loss func(t *Tape) *Tensor, xs ...*Tensor) error {
	if ps.Slots() == nil {
		if err := ps.Arrange(loss); err != nil {
			return err
		}
	}
	t := NewTape(TapeConfig{Threads: 1})
	defer t.Close()
	for _, x := range xs {
		x.RetainGrad()
	}
	t.Backward(loss(t), func(int) {})
	c := &gradientCheck{tape: t, loss: loss}
	var all []checkedTensor
	for _, p := range ps.List() {
		if !p.Frozen() {
			all = append(all, checkedTensor{"parameter " + p.Name, p.Data, slices.Clone(p.Grad)})
		}
	}
	for i, x := range xs {
		grad := slices.Clone(x.Grad())
		if grad == nil { // the loss does not depend on it
			grad = make([]float32, len(x.Data))
		}
		all = append(all, checkedTensor{fmt.Sprint("input ", i), x.Data, grad})
	}
	var errs []error
	for _, x := range all {
		errs = append(errs, c.check(x))
	}
	return errors.Join(errs...)
}

// checkedTensor is a tensor with the gradient of the loss.
type checkedTensor struct {
	name         string
	values, grad []float32
}

type gradientCheck struct {
	tape *Tape
	loss func(t *Tape) *Tensor
}

// check compares values of a tensor, and returns an error with the first that differs.
func (c *gradientCheck) check(x checkedTensor) error {
	largest := 0.0
	for _, g := range x.grad {
		largest = max(largest, math.Abs(float64(g)))
	}
	each := max(1, (len(x.values)+checkedValues-1)/checkedValues)
	for i := 0; i < len(x.values); i += each {
		slopes := make([]float64, 0, len(checkSteps))
		for _, h := range checkSteps {
			slope, rounding := c.slope(x.values, i, h)
			g := float64(x.grad[i])
			if math.Abs(slope-g) <= relativeError*max(math.Abs(slope), math.Abs(g))+tensorError*largest+rounding {
				slopes = nil
				break
			}
			slopes = append(slopes, slope)
		}
		if slopes != nil {
			return fmt.Errorf("nn: gradient of %s: value %d (%v) has %v, and differences of the loss give %v: correct the backward pass of the operations that use it", x.name, i, x.values[i], x.grad[i], slopes)
		}
	}
	return nil
}

// slope returns a central difference of the loss at value i, and its possible error by rounding.
func (c *gradientCheck) slope(values []float32, i int, h float64) (slope, rounding float64) {
	old := values[i]
	defer func() { values[i] = old }()
	h *= max(1, math.Abs(float64(old)))
	at := func(d float64) (x, y float64) {
		values[i] = float32(float64(old) + d)
		c.tape.Reset()
		return float64(values[i]), float64(c.loss(c.tape).Data[0])
	}
	x1, y1 := at(h)
	x0, y0 := at(-h)
	const ulp = 1. / (1 << 22) // two roundings of a loss
	return (y1 - y0) / (x1 - x0), ulp * max(math.Abs(y0), math.Abs(y1)) / (x1 - x0)
}
