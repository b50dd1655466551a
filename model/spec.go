package model

import "github.com/ringo-ml/ringo/nn"

// Task is what a model is trained for: what its labels are.
type Task uint8

const (
	// Classify gives each sample one of the classes.
	Classify Task = iota
	// Language predicts the next of a sequence of tokens.
	Language
	// Click predicts whether something happens.
	Click
	// Regress predicts numbers.
	Regress
)

// Options are what a model takes from its data and from the user. Zero values
// mean the Spec's own.
type Options struct {
	// Input, IDs, Labels and Targets are the shape of the data's samples, as in Spec.
	Input                []int
	IDs, Labels, Targets int

	Slots []Slot // of the data's samples

	Classes    int // of a Classify model
	Vocabulary int // tokens of a Language model
	Rows       int // of a Click model's table; of several, of each at most
	Batch      int // samples of a step, for models that carry state
	// Dropout is the probability of dropping a value; negative means none.
	Dropout float64
}

// Slot is a field of a sample's keys: a bag of any number of them, or a sequence, whose order
// counts.
type Slot struct {
	Name     string
	Sequence bool
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

// Spec describes a model before it is built.
type Spec struct {
	Name    string
	Aliases []string
	About   string // one line
	Task    Task
	Data    string // the kind of data set it is made for, as data.Open names it
	Input   []int  // shape of one sample's values, nil for none
	IDs     int    // ids per sample
	Slots   []Slot // fields of keys: see Batch.Bags
	Labels  int    // labels per sample; 0 means 1, unless there are Targets
	Targets int    // numbers per sample that a regression is to find
	Classes int    // different labels, or the vocabulary
	Rows    int    // of a Click model's table; of several, of each at most
	// AnySlots says that it takes samples with any slots and any number of values: Input and Slots
	// are those of its usual data. One that has IDs and no Slots takes keys in their place where
	// there are some, as samples on servers have, whose tables have a row for each key.
	AnySlots bool
	// AnyShape says that it takes samples of any shape, and what is to be found as labels or
	// targets: Input, IDs and so on are those of its usual data.
	AnyShape bool
	// AnySize says that it takes images of any height and width, with as many channels as Input
	// has.
	AnySize bool
	// StepsFirst says that the outputs of a Language model are in the order of steps: those of all
	// samples' first tokens first. Else they are sample after sample, as the labels.
	StepsFirst bool
	// Drops says that it drops values while it is trained, with the probability Options.Dropout.
	Drops bool
	// PyTorch is the name that a parameter, table or buffer has in PyTorch's state_dict; nil: the
	// same.
	PyTorch  func(name string) string
	Params   int // number of parameters with the zero Options
	Defaults Defaults
	// Build makes the parameters in ps and returns the network.
	Build func(ps *nn.Params, o Options) Model
}

// LabelsEach is how many labels each sample has.
func (s Spec) LabelsEach() int {
	if s.Labels == 0 && s.Targets == 0 {
		return 1
	}
	return s.Labels
}

// Sample is n samples of zeros and empty bags in the model's shape, such as Arrange takes.
func (s Spec) Sample(n int) Batch {
	b := Batch{N: n, IDs: make([]int32, n*s.IDs), Labels: make([]int32, n*s.LabelsEach()), Targets: make([]float32, n*s.Targets)}
	if len(s.Slots) > 0 {
		b.Bags = nn.Bags{Offsets: make([]int32, len(s.Slots)*n+1), N: n}
	}
	if s.Input != nil {
		b.Values = nn.NewTensor(append([]int{n}, s.Input...)...)
	}
	return b
}
