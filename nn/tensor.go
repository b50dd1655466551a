// Package nn is a small automatic differentiation engine for the CPU: tensors,
// a tape that records operations and runs them backwards, and the layers of
// convolutional networks. It tells when the gradient of each parameter is
// final, and knows nothing of networks.
//
// Parameters belong to a registry, Params, whose Arrange lays them out in one
// arena in the order in which backward finishes their gradients, and the
// gradients in a twin arena. A Tape owns every intermediate value and reuses
// its memory: a steady training step allocates nothing.
//
//	params := nn.NewParams(seed)
//	fc := params.Dense("fc", 784, 10)
//	forward := func(t *nn.Tape) *nn.Tensor {
//		loss, _ := t.SoftmaxCrossEntropy(t.Dense(x, fc, nn.Identity), labels)
//		return loss
//	}
//	err := params.Arrange(forward)
//	for ... {
//		tape.Reset()
//		tape.Backward(forward(tape), ready)
//	}
//
// Operands of impossible shapes are faults of the program: operations panic
// with a *ShapeError, and Arrange, which records the model for the first time,
// returns it as an error.
package nn

import (
	"fmt"
	"slices"
)

// Tensor is an array of float32 in row-major order. Images are
// [samples, height, width, channels]. Tensors made by a Tape are valid until
// its next Reset.
type Tensor struct {
	Shape []int
	Data  []float32

	needs bool      // something upstream is a parameter
	live  bool      // the loss depends on it (set by Backward)
	has   bool      // grad holds a contribution
	grad  []float32 // d loss / d this

	made         bool      // by an operation
	retained     bool      // its gradient shall be readable
	cut          bool      // retained, and nothing upstream needs it
	retainedGrad []float32 // the gradient of an operation's result that is retained
}

// NewTensor makes a tensor of zeros.
func NewTensor(shape ...int) *Tensor {
	x := &Tensor{}
	x.Resize(shape...)
	return x
}

// Resize changes the shape. Memory is reused when it is large enough; the
// values are then unspecified. It panics on a negative dimension.
func (x *Tensor) Resize(shape ...int) {
	x.Shape = append(x.Shape[:0], shape...)
	x.Data = sized(x.Data, volume(x.Shape))
}

// Len is the number of values.
func (x *Tensor) Len() int { return len(x.Data) }

// RetainGrad makes Grad return the gradient after Backward. It is called before: on a
// tensor of one's own, such as a model's input, once and for all; on an operation's result
// after each recording. Of a result it costs a copy.
func (x *Tensor) RetainGrad() {
	x.cut = x.made && !x.needs
	x.needs, x.retained = true, true
}

// Grad is what the last Backward found as the gradient of the loss with respect to x, as
// many values as x has, good until the next Backward. It is nil where RetainGrad was not
// called in time, or where the loss does not depend on x.
func (x *Tensor) Grad() []float32 {
	switch {
	case !x.retained:
		return nil
	case !x.made && x.has:
		return x.grad
	case len(x.retainedGrad) > 0:
		return x.retainedGrad
	}
	return nil
}

// keep copies the gradient of a result that is retained: backward may destroy it.
func (x *Tensor) keep() {
	if x.retained {
		x.retainedGrad = append(x.retainedGrad[:0], x.grad...)
	}
}

// volume is the number of values of a shape.
func volume(shape []int) int {
	n := 1
	for _, d := range shape {
		if d < 0 {
			panic(&ShapeError{Op: "shape", Required: "no negative dimension", Got: slices.Clone(shape)})
		}
		n *= d
	}
	return n
}

// sized returns a slice of n values that reuses buf's memory when it can. New
// memory is aligned to cache lines.
func sized(buf []float32, n int) []float32 {
	if cap(buf) >= n {
		return buf[:n]
	}
	return aligned(n)
}

// ShapeError says that an operation was given operands that do not fit.
type ShapeError struct {
	Op       string // the operation
	Required string // what it wants
	Got      []int  // the shape, or the value, it got
}

// Error returns one line.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("nn: %s: got %v, want %s", e.Op, e.Got, e.Required)
}

// shapeText is what is wanted of another operand beside one of this shape.
func shapeText(need string, shape []int) string { return fmt.Sprintf("%s %v", need, shape) }

// require panics unless ok.
func require(ok bool, op, need string, got ...int) {
	if !ok {
		panic(&ShapeError{Op: op, Required: need, Got: slices.Clone(got)})
	}
}

// want is as above, of an operation with this layer's parameters.
func (l Layer) want(ok bool, op, need string, got ...int) {
	if !ok {
		panic(&ShapeError{Op: op + " " + l.W.Name, Required: need, Got: slices.Clone(got)})
	}
}
