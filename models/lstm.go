package models

import (
	"fmt"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// lstmSize is a preset of the word language model of Zaremba et al., "Recurrent
// Neural Network Regularization" (2014).
type lstmSize struct {
	vocabulary, width, layers int
	bound                     float64 // bound of the initial values
	dropout                   float64
}

// sequenceSteps is the number of tokens of a training sequence.
const sequenceSteps = 35

// lstmSmall is the paper's medium model.
func lstmSmall() model.Spec {
	return lstmSpec(model.Spec{
		Name:    "lstm",
		Aliases: []string{"lstm-small"},
		About:   "word language model: embedding, 2 LSTM layers 650 wide, softmax over the vocabulary",
		Params:  19780400,
	}, lstmSize{vocabulary: 10000, width: 650, layers: 2, bound: 0.05, dropout: 0.5})
}

// lstm300M is the paper's large model with a large vocabulary.
func lstm300M() model.Spec {
	return lstmSpec(model.Spec{
		Name:   "lstm-300m",
		About:  "word language model: embedding, 2 LSTM layers 1500 wide, softmax over 88,000 words",
		Params: 300112000,
	}, lstmSize{vocabulary: 88000, width: 1500, layers: 2, bound: 0.04, dropout: 0.65})
}

func lstmSpec(s model.Spec, size lstmSize) model.Spec {
	s.Task, s.Data = model.Language, "text"
	s.IDs, s.Labels, s.Classes, s.StepsFirst = sequenceSteps, sequenceSteps, size.vocabulary, true
	// The loss is a mean over all tokens, the paper's a sum over steps: a rate of 20 and a clip
	// norm of 0.25 here are 1 and 5 there.
	s.Defaults = model.Defaults{Optimizer: "sgd", Batch: 20, Epochs: 10, LR: 20, GlobalBatch: 20, ClipNorm: 0.25}
	s.Drops = true
	s.Build = func(ps *nn.Params, o model.Options) model.Model { return buildLSTM(ps, o, size) }
	return s
}

// lstm is a word language model. Its recurrent state continues from batch to batch, so that batches
// must continue the same texts: sequence i of a batch is followed by sequence i of the next.
type lstm struct {
	embedding *nn.Param
	layers    []nn.LSTMLayer
	output    nn.Layer
	width     int
	dropout   float64
	batch     int // the state's sequences
	state     []nn.LSTMState

	ids, labels []int32 // tokens of the batch, step by step
	now         []nn.LSTMState
}

func buildLSTM(ps *nn.Params, o model.Options, size lstmSize) model.Model {
	if o.Vocabulary > 0 {
		size.vocabulary = o.Vocabulary
	}
	init := nn.Uniform(size.bound)
	m := &lstm{
		embedding: ps.New("embedding", init, size.vocabulary, size.width),
		width:     size.width,
		dropout:   dropoutOf(o, size.dropout),
		now:       make([]nn.LSTMState, size.layers),
	}
	for i := range size.layers {
		m.layers = append(m.layers, ps.LSTM(fmt.Sprintf("lstm%d", i+1), init, size.width, size.width))
	}
	m.output = nn.Layer{
		W: ps.New("output.weight", init, size.vocabulary, size.width),
		B: ps.New("output.bias", nn.Zeros, size.vocabulary),
	}
	m.resize(max(1, o.Batch))
	return language(model.Model{Forward: m.forward, Loss: m.loss, State: m})
}

// dropoutOf returns the dropout probability of o, or by default own, the model's.
func dropoutOf(o model.Options, own float64) float64 {
	switch {
	case o.Dropout < 0:
		return 0
	case o.Dropout > 0:
		return o.Dropout
	}
	return own
}

// resize replaces the state by zeros for this number of sequences.
func (m *lstm) resize(batch int) {
	m.batch, m.state = batch, nil
	for range m.layers {
		m.state = append(m.state, nn.LSTMState{H: make([]float32, batch*m.width), C: make([]float32, batch*m.width)})
	}
}

// Slices returns, for each layer, the outputs and the cells, [batch, width] each.
func (m *lstm) Slices() [][]float32 {
	var s [][]float32
	for _, layer := range m.state {
		s = append(s, layer.H, layer.C)
	}
	return s
}

// Reset sets the state to zero.
func (m *lstm) Reset() {
	for _, s := range m.Slices() {
		clear(s)
	}
}

// forward returns the logits of all tokens, step by step. A batch of fewer sequences than the state
// uses the first ones' state; a larger batch starts a new state.
func (m *lstm) forward(t *nn.Tape, b model.Batch) model.Outputs {
	if b.N > m.batch {
		m.resize(b.N)
	}
	for i, s := range m.state {
		m.now[i] = nn.LSTMState{H: s.H[:b.N*m.width], C: s.C[:b.N*m.width]}
	}
	m.ids = byStep(m.ids, b.IDs, b.N)
	x := t.Dropout(t.Embedding(m.ids, m.embedding), m.dropout)
	for i, l := range m.layers {
		x = t.Dropout(t.LSTM(x, l, &m.now[i], len(m.ids)/b.N), m.dropout)
	}
	return model.Outputs{t.Dense(x, m.output, nn.Identity)}
}

// loss is the cross-entropy with labels in the order of steps.
func (m *lstm) loss(t *nn.Tape, b model.Batch, out model.Outputs) model.Loss {
	m.labels = byStep(m.labels, b.Labels, b.N)
	b.Labels = m.labels
	return model.CrossEntropy(t, b, out)
}

// byStep reorders n concatenated sequences so that all first tokens come first. It overwrites dst.
func byStep(dst, sequences []int32, n int) []int32 {
	dst = dst[:0]
	steps := len(sequences) / n
	for s := range steps {
		for i := range n {
			dst = append(dst, sequences[i*steps+s])
		}
	}
	return dst
}
