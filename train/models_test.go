package train

import (
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
)

// A model of each kind that is trained in a moment.

// custom is a run of a model of the tests.
func custom(s models.Spec) Config {
	cfg := small()
	cfg.Model, cfg.Custom = s.Name, s
	cfg.SetOptimizer(s.Defaults.Optimizer)
	cfg.LR = s.Defaults.LR
	return cfg
}

// tinyClick is click prediction with a table.
func tinyClick() models.Spec {
	return models.Spec{
		Name: "tiny-click", Task: models.Click, Data: "criteo", Input: []int{13}, IDs: 26, Classes: 2, Rows: 300,
		Defaults: models.Defaults{Optimizer: "adagrad", LR: 0.05},
		Build: func(ps *nn.Params, o models.Options) models.Model {
			m := &clickModel{table: ps.NewTable("table", nn.UniformRows(0.05), o.Rows, 3)}
			m.hidden, m.out = ps.Dense("hidden", 26*3+13, 8), ps.Dense("out", 8, 2)
			return m
		},
	}
}

type clickModel struct {
	table       *nn.Table
	hidden, out nn.Layer
	scores      []float32
}

func (m *clickModel) Loss(t *nn.Tape, b models.Batch) (*nn.Tensor, models.Outcome) {
	x := t.Dense(t.EmbeddingTable(b.IDs, b.N, m.table, b.Values), m.hidden, nn.ReLU)
	logits := t.Dense(x, m.out, nn.Identity)
	m.scores = m.scores[:0]
	for i := range b.N { // any increasing function gives the same area
		m.scores = append(m.scores, max(0, 100+logits.Data[2*i+1]-logits.Data[2*i]))
	}
	loss, correct := t.SoftmaxCrossEntropy(logits, b.Labels)
	return loss, models.Outcome{Count: b.N, Correct: correct, Scores: m.scores}
}

// tinyLSTM is a language model with dropout that carries its state.
func tinyLSTM() models.Spec {
	return models.Spec{
		Name: "tiny-lstm", Task: models.Language, Data: "text", IDs: 7, Labels: 7, Classes: 50,
		Defaults: models.Defaults{Optimizer: "sgd", LR: 1},
		Build: func(ps *nn.Params, o models.Options) models.Model {
			init := nn.Uniform(0.1)
			m := &lstmModel{embedding: ps.New("embedding", init, o.Vocabulary, 8), layer: ps.LSTM("lstm", init, 8, 8)}
			m.out = ps.Dense("out", 8, o.Vocabulary)
			m.h, m.c = make([]float32, o.Batch*8), make([]float32, o.Batch*8)
			return m
		},
	}
}

type lstmModel struct {
	embedding   *nn.Param
	layer       nn.LSTMLayer
	out         nn.Layer
	h, c        []float32
	state       nn.LSTMState
	ids, labels []int32
}

func (m *lstmModel) State() [][]float32 { return [][]float32{m.h, m.c} }

func (m *lstmModel) ResetState() {
	clear(m.h)
	clear(m.c)
}

func (m *lstmModel) Loss(t *nn.Tape, b models.Batch) (*nn.Tensor, models.Outcome) {
	m.ids, m.labels = m.ids[:0], m.labels[:0]
	for s := range 7 {
		for i := range b.N {
			m.ids, m.labels = append(m.ids, b.IDs[i*7+s]), append(m.labels, b.Labels[i*7+s])
		}
	}
	m.state = nn.LSTMState{H: m.h[:b.N*8], C: m.c[:b.N*8]}
	x := t.Dropout(t.LSTM(t.Embedding(m.ids, m.embedding), m.layer, &m.state, 7), 0.3)
	loss, correct := t.SoftmaxCrossEntropy(t.Dense(x, m.out, nn.Identity), m.labels)
	return loss, models.Outcome{Count: len(m.labels), Correct: correct}
}

// tinyNorm is a classifier with running statistics.
func tinyNorm() models.Spec {
	return models.Spec{
		Name: "tiny-norm", Data: "mnist", Input: []int{28, 28, 1}, Classes: 10,
		Defaults: models.Defaults{Optimizer: "sgd", LR: 0.05},
		Build: func(ps *nn.Params, _ models.Options) models.Model {
			m := &normModel{hidden: ps.Dense("hidden", 784, 12), out: ps.Dense("out", 12, 10)}
			m.norm = ps.BatchNorm("norm", 12)
			return m
		},
	}
}

type normModel struct {
	hidden, out nn.Layer
	norm        nn.Norm
}

func (m *normModel) Loss(t *nn.Tape, b models.Batch) (*nn.Tensor, models.Outcome) {
	x := t.Dense(t.Flatten(b.Values), m.hidden, nn.Identity)
	x = t.BatchNorm(t.Reshape(x, b.N, 1, 1, 12), m.norm, nil, nn.ReLU)
	loss, correct := t.SoftmaxCrossEntropy(t.Dense(t.Flatten(x), m.out, nn.Identity), b.Labels)
	return loss, models.Outcome{Count: b.N, Correct: correct}
}
