// Package nn is a small automatic differentiation engine for the CPU: tensors, a tape that records
// operations and runs them backwards, and the layers of neural networks. It reports when the
// gradient of each parameter is final, and does no communication.
//
// Parameters belong to a registry, Params. Its method Arrange lays them out in an arena, in the
// order of final gradients in backward, and the gradients in a second arena. A Tape owns every
// intermediate value and reuses its memory: a steady training step allocates no memory.
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
// Operands of impossible shapes are errors of the program: operations panic with a *ShapeError, and
// Arrange, the first recording of the model, returns it as an error.
package nn

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/hugepage"
)

// Tensor is an array of float32 in row-major order. Images are [samples, height, width, channels].
// Tensors of a Tape are valid until its next Reset.
type Tensor struct {
	Shape []int
	Data  []float32

	needs bool      // depends on a parameter
	live  bool      // the loss depends on it (set by Backward)
	has   bool      // grad holds a contribution
	grad  []float32 // d loss / d x

	made         bool      // result of an operation
	retained     bool      // RetainGrad was called
	cut          bool      // retained, but no parameter upstream
	retainedGrad []float32 // retained gradient of a result
}

// NewTensor makes a tensor of zeros.
func NewTensor(shape ...int) *Tensor {
	x := &Tensor{}
	x.Resize(shape...)
	return x
}

// Resize changes the shape. Memory is reused if large enough; the values are then unspecified. It
// panics on a negative dimension.
func (x *Tensor) Resize(shape ...int) {
	x.Shape = append(x.Shape[:0], shape...)
	x.Data = sized(x.Data, volume(x.Shape))
}

// Len is the number of values.
func (x *Tensor) Len() int { return len(x.Data) }

// RetainGrad makes Grad return the gradient after Backward. Call it before Backward: for the
// caller's tensors, such as a model's input, once; for an operation's result after each recording,
// at the cost of a copy.
func (x *Tensor) RetainGrad() {
	x.cut = x.made && !x.needs
	x.needs, x.retained = true, true
}

// Grad is the gradient of the loss with respect to x in the last Backward, of x's size, valid until
// the next Backward. It is nil without RetainGrad before, or if the loss does not depend on x.
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

// keep copies the gradient of a retained result, because backward may destroy it.
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

// sized returns n values, in buf's memory if possible. New memory is aligned to cache lines.
func sized(buf []float32, n int) []float32 {
	if cap(buf) >= n {
		return buf[:n]
	}
	return aligned(n)
}

// ShapeError reports operands that do not fit an operation.
type ShapeError struct {
	Op       string // the operation
	Required string // requirement
	Got      []int  // actual shape or value
}

// Error returns a single line.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("nn: %s: got %v, want %s", e.Op, e.Got, e.Required)
}

// require panics with a *ShapeError unless ok.
func require(ok bool, op, need string, got ...int) {
	if !ok {
		panic(&ShapeError{Op: op, Required: need, Got: slices.Clone(got)})
	}
}

// requireOf is require with the required shape relative to another shape.
func requireOf(ok bool, op, need string, shape []int, got ...int) {
	if !ok {
		require(false, op, fmt.Sprintf("%s %v", need, shape), got...)
	}
}

// want is require for an operation with this layer's parameters.
func (l Layer) want(ok bool, op, need string, got ...int) {
	if !ok {
		require(false, op+" "+l.W.Name, need, got...)
	}
}

// aligned returns n zeros at a multiple of 64 bytes; many values are in large pages.
func aligned(n int) []float32 { return hugepage.Floats(n) }

func isAligned(x []float32) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(x)))%(4*lineValues) == 0
}
