// Package model says what a model is: parameters, a forward pass from a batch to outputs, a loss and metrics. The zoo
// (package models) is written in it, and so is a model of one's own:
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
// Everything else about it (in which order its gradients become final, which tables it reads, how much work its
// layers are) is found by one dry run over a sample of zeros: see Model.Arrange.
package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/nn"
)

// Batch is what a model sees in one step. What its Spec does not ask for is
// empty.
type Batch struct {
	N       int        // samples
	Values  *nn.Tensor // [N, Spec.Input...]
	IDs     []int32    // N*Spec.IDs: categories, or tokens, sample after sample
	Labels  []int32    // N*Spec.Labels, sample after sample
	Bags    nn.Bags    // keys of each of Spec.Slots
	Targets []float32  // N*Spec.Targets: what a regression is to find, sample after sample
	// Share is the factor of the loss in the gradient, for a step whose batches have unequal
	// numbers of samples. 0 means 1.
	Share float32
}

// Outputs are the tensors that a forward pass ends in, the first ones of as many as there are:
// logits, say, or the vectors of two towers. It is an array so that to return it costs no memory.
type Outputs [4]*nn.Tensor

// List is the outputs that there are.
func (o *Outputs) List() []*nn.Tensor {
	for i, x := range o {
		if x == nil {
			return o[:i]
		}
	}
	return o[:]
}

// Loss is what a loss makes of outputs.
type Loss struct {
	// Mean is a tensor of one value, the mean over Terms, from which backward begins.
	Mean *nn.Tensor
	// Terms is how many samples, or tokens, Mean is the mean of: means of batches are weighted by
	// it.
	Terms int
	// Correct is how many terms of a classifier have their largest output at their label, which
	// CrossEntropy finds out on its way; Accuracy is made of it.
	Correct int
}

// Pass is what one pass over a batch was like: what metrics are made of. It is good until the
// model's next pass.
type Pass struct {
	Batch   Batch
	Outputs Outputs
	Loss    Loss
}

// State is what a model carries from one batch to the next, such as that of a recurrent layer.
type State interface {
	// Slices are the state's values, which the caller may read, save and overwrite between steps.
	Slices() [][]float32
	// Reset starts anew, as at the beginning of a pass over the data.
	Reset()
}

// Model is a network with its parameters. Its functions are called by one goroutine.
type Model struct {
	// Forward records the network over a batch on t and returns its outputs. The batch must stay as
	// it is until the end of Backward.
	Forward func(t *nn.Tape, b Batch) Outputs
	// Loss records what is to become small, a function of the outputs and the batch's labels or
	// targets: CrossEntropy, Squared, or one's own.
	Loss func(t *nn.Tape, b Batch, out Outputs) Loss
	// Metrics are told besides the loss.
	Metrics []Metric
	// State is nil for a model that carries none.
	State State
}

// Pass runs the model over a batch on t.
func (m Model) Pass(t *nn.Tape, b Batch) Pass {
	out := m.Forward(t, b)
	return Pass{Batch: b, Outputs: out, Loss: m.Loss(t, b, out)}
}

// Validate reports every fault of m at once.
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

// Arrange runs the model once, without computing, over samples that Spec.Sample made: it finds out
// in which order gradients become final, and lays the parameters out in that order
// (nn.Params.Arrange). Running statistics and what the model carries do not keep that run.
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

// Reset makes a model that carries state start anew.
func (m Model) Reset() {
	if m.State != nil {
		m.State.Reset()
	}
}
