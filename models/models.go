// Package models is the zoo: networks built from nn, a file per model, found
// by name.
package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/nn"
)

// Task is what a model is trained for. It decides what an evaluation reports.
type Task uint8

const (
	// Classify gives each sample one of the classes: accuracy.
	Classify Task = iota
	// Language predicts the next of a sequence of tokens: perplexity.
	Language
	// Click predicts whether something happens: log-loss and AUC.
	Click
)

// Batch is what a model sees in one step. What its Spec does not ask for is
// empty.
type Batch struct {
	N      int        // samples
	Values *nn.Tensor // [N, Spec.Input...]
	IDs    []int32    // N*Spec.IDs: categories, or tokens, sample after sample
	Labels []int32    // N*Spec.Labels, sample after sample
}

// Outcome is what a batch was like. Slices are good until the model's next
// call.
type Outcome struct {
	Count   int       // terms that the loss is the mean of: samples, or tokens
	Correct int       // terms whose largest output is their label
	Scores  []float32 // of a Click model: the probability of 1, by sample
}

// Model is a network with its parameters.
type Model interface {
	// Loss records the network over a batch on t and returns its mean loss, a
	// tensor of one value. The batch must stay as it is until the end of
	// Backward.
	Loss(t *nn.Tape, b Batch) (*nn.Tensor, Outcome)
}

// Stateful is a Model that carries state from one batch to the next.
type Stateful interface {
	Model
	// State returns the state as slices that the caller may read, save and
	// overwrite between steps.
	State() [][]float32
	// ResetState starts anew, as at the beginning of a pass over the data.
	ResetState()
}

// Options are what a model takes from its data and from the user. Zero values
// mean the Spec's own.
type Options struct {
	Classes    int // of a Classify model
	Vocabulary int // tokens of a Language model
	Rows       int // of a Click model's table
	Batch      int // samples of a step, for models that carry state
	// Dropout is the probability of dropping a value; negative means none.
	Dropout float64
}

// Defaults are the settings a model is usually trained with.
type Defaults struct {
	Optimizer string // "sgd", "adagrad", "adam", "adamw" or "ftrl"
	Batch     int    // samples per rank
	Epochs    int
	LR        float64
	// GlobalBatch is for how many samples of a step, of all ranks, LR is meant; 0: it is not known.
	GlobalBatch int
	// Momentum is of "sgd".
	Momentum    float64
	WeightDecay float64
	ClipNorm    float64 // 0: off
}

// Spec describes a model.
type Spec struct {
	Name     string
	Aliases  []string
	About    string // one line
	Task     Task
	Data     string // the kind of data set it is made for, as data.Open names it
	Input    []int  // shape of one sample's values, nil for none
	IDs      int    // ids per sample
	Labels   int    // labels per sample; 0 means 1
	Classes  int    // different labels, or the vocabulary
	Rows     int    // of a Click model's table
	Params   int    // number of parameters with the zero Options
	Defaults Defaults
	// Build makes the parameters in ps and returns the network.
	Build func(ps *nn.Params, o Options) Model
}

// classifier is a network whose outputs are logits, [n, classes].
type classifier func(t *nn.Tape, x *nn.Tensor) *nn.Tensor

// Loss is the softmax cross-entropy.
func (f classifier) Loss(t *nn.Tape, b Batch) (*nn.Tensor, Outcome) {
	loss, correct := t.SoftmaxCrossEntropy(f(t, b.Values), b.Labels)
	return loss, Outcome{Count: b.N, Correct: correct}
}

// classes is how many the user's data has, or the model's own number.
func classes(o Options, own int) int {
	if o.Classes > 0 {
		return o.Classes
	}
	return own
}

// All returns the known models.
func All() []Spec {
	return []Spec{mlp(), mnistCNN(), resnet20(), vgg16(), resnet50(), lstmSmall(), lstm300M(), ctrDNN(), ctrDNN4096(), gpt(), gptMini()}
}

// Names returns the names of the known models, aliases left out.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// Lookup finds a model by its name or an alias. The error of an unknown name
// lists the known ones and those that are spelt alike.
func Lookup(name string) (Spec, error) {
	for _, s := range All() {
		if s.Name == name || slices.Contains(s.Aliases, name) {
			return s, nil
		}
	}
	var known []string
	for _, s := range All() {
		known = append(append(known, s.Name), s.Aliases...)
	}
	return Spec{}, fmt.Errorf("models: unknown model %q%s: known are %s", name, spelling.Hint(name, known...), strings.Join(Names(), ", "))
}
