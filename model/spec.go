package model

import "github.com/ringo-ml/ringo/nn"

// Task is the kind of a model's labels and outputs.
type Task uint8

const (
	// Classify assigns one class to each sample.
	Classify Task = iota
	// Language predicts the next of a sequence of tokens.
	Language
	// Click predicts whether an event happens.
	Click
	// Regress predicts numbers.
	Regress
)

// Options are a model's options, from the data and the user. Zero values mean the Spec's values.
type Options struct {
	// Input, IDs, Labels and Targets are the shape of the data's samples, as in Spec.
	Input   []int `json:"input"`
	IDs     int   `json:"ids"`
	Labels  int   `json:"labels"`
	Targets int   `json:"targets"`

	Slots []Slot `json:"slots"` // fields of the data's samples

	Classes    int `json:"classes"`    // classes of a Classify model
	Vocabulary int `json:"vocabulary"` // tokens of a Language model
	Rows       int `json:"rows"`       // rows of a Click model's table; the maximum if it has several
	Batch      int `json:"batch"`      // samples of a step, for models with state
	// Dropout is the probability of dropping a value; negative means none.
	Dropout float64 `json:"dropout"`
}

// Slot is a field of a sample's keys: a bag of any number of keys, or an ordered sequence.
type Slot struct {
	Name     string `json:"name"`
	Sequence bool   `json:"sequence"`
}

// Defaults are a model's default training settings.
type Defaults struct {
	Optimizer string // "sgd", "adagrad", "adam", "adamw" or "ftrl"
	Batch     int    // samples per rank
	Epochs    int
	LR        float64
	// GlobalBatch is the number of samples per step, over all ranks, that LR is for; 0: unknown.
	GlobalBatch int
	// Momentum is the momentum of the optimizer "sgd".
	Momentum    float64
	WeightDecay float64
	ClipNorm    float64 // 0: off
}

// Spec describes a model before it is built.
type Spec struct {
	Name    string
	Aliases []string
	About   string // a single line
	Task    Task
	Data    string // kind of the intended data set, as data.Open names it
	Input   []int  // shape of one sample's values, or nil
	IDs     int    // ids per sample
	Slots   []Slot // fields of keys: see Batch.Bags
	Labels  int    // labels per sample; 0 means 1, unless Targets is above 0
	Targets int    // numbers per sample for a regression to predict
	Classes int    // different labels, or the vocabulary
	Rows    int    // rows of a Click model's table; the maximum if it has several
	// AnySlots accepts samples with any slots and any number of values: Input and Slots then
	// describe the default data. A model with IDs and without Slots uses keys instead of ids if the
	// samples have keys, as for parameter servers, with a table row for each key.
	AnySlots bool
	// AnyShape accepts samples of any shape, with labels or targets: Input, IDs and so on then
	// describe the default data.
	AnyShape bool
	// AnySize accepts images of any height and width, with Input's number of channels.
	AnySize bool
	// StepsFirst reports whether the outputs of a Language model are ordered by step, beginning
	// with all samples' first tokens. Otherwise they are ordered by sample, like the labels.
	StepsFirst bool
	// Drops reports whether training uses dropout, with the probability Options.Dropout.
	Drops bool
	// PyTorch returns the name of a parameter, table or buffer in PyTorch's state_dict; nil means
	// the same name.
	PyTorch  func(name string) string
	Params   int // number of parameters with the zero Options
	Defaults Defaults
	// Build makes the parameters in ps and returns the network.
	Build func(ps *nn.Params, o Options) Model
}

// LabelsEach is the number of labels of each sample.
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
