// Package model describes models: parameters, a forward pass from a batch to outputs, a loss and
// metrics. The built-in models (package models) use it, as do custom models:
//
//	func perceptron(ps *nn.Params, o model.Options) model.Model {
//		w := ps.Dense("w", 784, o.Classes)
//		return model.Model{
//			Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
//				return model.Outputs{t.Dense(b.Values, w, nn.Identity)}
//			},
//			Loss:    model.CrossEntropy,
//			Metrics: []model.Metric{model.Accuracy()},
//		}
//	}
//
// All other properties of a model (the order of its final gradients, its tables, the work of its
// layers) come from one dry run over a sample of zeros: see Model.Arrange.
package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/nn"
)

// Batch is a model's input in one step. Fields that its Spec does not request are empty.
type Batch struct {
	N       int        // samples
	Values  *nn.Tensor // [N, Spec.Input...]
	IDs     []int32    // N*Spec.IDs: categories, or tokens, sample by sample
	Labels  []int32    // N*Spec.Labels, sample by sample
	Bags    nn.Bags    // keys of each of Spec.Slots
	Targets []float32  // N*Spec.Targets: numbers for a regression to predict, sample by sample
	// Share is the factor by which the gradient of this batch's loss is multiplied, because the
	// batches of a step differ in size. 0 means 1.
	Share float32
}

// Outputs are the final tensors of a forward pass, then nil: logits, for example, or the vectors of
// two towers. An array is returned without an allocation.
type Outputs [4]*nn.Tensor

// List returns the outputs that are not nil.
func (o *Outputs) List() []*nn.Tensor {
	for i, x := range o {
		if x == nil {
			return o[:i]
		}
	}
	return o[:]
}

// Loss is the result of a loss function.
type Loss struct {
	// Mean is a tensor with a single value, the mean over Terms; Backward starts from it.
	Mean *nn.Tensor
	// Terms is the number of samples, or tokens, in Mean: its weight in an average over batches.
	Terms int
	// Correct is the number of terms for which a classifier's largest output is the label's, a
	// by-product of CrossEntropy, for Accuracy.
	Correct int
}

// Pass is the result of one pass over a batch, for metrics, valid until the model's next pass.
type Pass struct {
	Batch   Batch
	Outputs Outputs
	Loss    Loss
}

// State is a model's state between batches, such as of a recurrent layer.
type State interface {
	// Slices returns the state's values. The caller may read and overwrite them between steps.
	Slices() [][]float32
	// Reset restores the initial state, as at the beginning of a pass over the data.
	Reset()
}

// Model is a network with its parameters. A single goroutine calls its functions.
type Model struct {
	// Forward records the network over a batch on t and returns its outputs. The batch must not
	// change until the end of Backward.
	Forward func(t *nn.Tape, b Batch) Outputs
	// Loss records the quantity to minimise, a function of the outputs and the batch's labels or
	// targets: CrossEntropy, Squared, or a custom one.
	Loss func(t *nn.Tape, b Batch, out Outputs) Loss
	// Metrics are reported in addition to the loss.
	Metrics []Metric
	// State is nil for a model without state.
	State State
}

// Pass runs the model over a batch on t.
func (m Model) Pass(t *nn.Tape, b Batch) Pass {
	out := m.Forward(t, b)
	return Pass{Batch: b, Outputs: out, Loss: m.Loss(t, b, out)}
}

// Validate reports every error of m together.
func (m Model) Validate() error {
	var errs []error
	if m.Forward == nil {
		errs = append(errs, errors.New("model: no Forward"))
	}
	if m.Loss == nil {
		errs = append(errs, errors.New("model: no Loss"))
	}
	known := map[string]bool{"loss": true}
	for _, x := range m.Metrics {
		if errs = append(errs, x.validate()); known[x.Name] {
			errs = append(errs, fmt.Errorf("model: two metrics are called %q", x.Name))
		}
		known[x.Name] = true
	}
	return errors.Join(errs...)
}

// Arrange runs the model once, without computing, over a sample from Spec.Sample, to determine the
// order in which gradients become final, and lays the parameters out in this order
// (nn.Params.Arrange). The run does not change running statistics or the model's state.
func (m Model) Arrange(ps *nn.Params, sample Batch) error {
	if err := m.Validate(); err != nil {
		return err
	}
	var before [][]float32
	for _, b := range ps.BufferList() {
		before = append(before, slices.Clone(b.Data))
	}
	err := ps.Arrange(func(t *nn.Tape) *nn.Tensor { return m.Pass(t, sample).Loss.Mean })
	for i, b := range ps.BufferList() {
		copy(b.Data, before[i])
	}
	m.Reset()
	return err
}

// Reset restores the initial state of a model with state.
func (m Model) Reset() {
	if m.State != nil {
		m.State.Reset()
	}
}
