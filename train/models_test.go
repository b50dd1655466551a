package train

import (
	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
)

// A model of each kind that is trained in a moment.

// zoo is one of the models that come with ringo.
func zoo(name string) model.Spec {
	s, err := models.Lookup(name)
	if err != nil {
		panic(err)
	}
	return s
}

// custom is a run of a model of the tests.
func custom(s model.Spec) Config {
	cfg := small()
	cfg.Model = s
	cfg.SetOptimizer(s.Defaults.Optimizer)
	cfg.LR = s.Defaults.LR
	return cfg
}

// tinyClick is click prediction with a table.
func tinyClick() model.Spec {
	return model.Spec{
		Name: "tiny-click", Task: model.Click, Data: "criteo", Input: []int{13}, IDs: 26, Classes: 2, Rows: 300,
		Defaults: model.Defaults{Optimizer: "adagrad", LR: 0.05},
		Build: func(ps *nn.Params, o model.Options) model.Model {
			m := &clickModel{table: ps.NewTable("table", nn.UniformRows(0.05), o.Rows, 3)}
			m.hidden, m.out = ps.Dense("hidden", 26*3+13, 8), ps.Dense("out", 8, 2)
			// Any increasing function gives the same area.
			area := model.AUC(func(p model.Pass, i int) float32 {
				logits := p.Outputs[0].Data
				return max(0, 100+logits[2*i+1]-logits[2*i])
			})
			return model.Model{Forward: m.forward, Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy(), model.LogLoss(), area}}
		},
	}
}

// tinyBags is click prediction by keys, with two tables of different widths.
func tinyBags() model.Spec {
	s := tinyClick()
	s.Name, s.IDs, s.AnySlots = "tiny-bags", 0, true
	s.Slots = []model.Slot{{Name: "any"}}
	s.Build = func(ps *nn.Params, o model.Options) model.Model {
		wide, deep := ps.NewTable("wide", nn.UniformRows(0.05), o.Rows, 1), ps.NewTable("deep", nn.UniformRows(0.05), o.Rows, 3)
		out := ps.Dense("out", len(o.Slots)*4+13, 1)
		return model.Model{
			Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
				x := t.EmbeddingBag(b.Bags, wide, nn.MeanPool, t.EmbeddingBag(b.Bags, deep, nn.SqrtPool, b.Values))
				return model.Outputs{t.Dense(x, out, nn.Identity)}
			},
			Loss: model.BinaryCrossEntropy, Metrics: []model.Metric{model.Accuracy(), model.LogLoss(), model.AUC(model.Probability)},
		}
	}
	return s
}

type clickModel struct {
	table       *nn.Table
	hidden, out nn.Layer
}

func (m *clickModel) forward(t *nn.Tape, b model.Batch) model.Outputs {
	x := t.Dense(t.EmbeddingTable(b.IDs, b.N, m.table, b.Values), m.hidden, nn.ReLU)
	return model.Outputs{t.Dense(x, m.out, nn.Identity)}
}

// tinyLSTM is a language model with dropout that carries its state.
func tinyLSTM() model.Spec {
	return model.Spec{
		Name: "tiny-lstm", Task: model.Language, Data: "text", IDs: 7, Labels: 7, Classes: 50,
		Defaults: model.Defaults{Optimizer: "sgd", LR: 1},
		Build: func(ps *nn.Params, o model.Options) model.Model {
			init := nn.Uniform(0.1)
			m := &lstmModel{embedding: ps.New("embedding", init, o.Vocabulary, 8), layer: ps.LSTM("lstm", init, 8, 8)}
			m.out = ps.Dense("out", 8, o.Vocabulary)
			m.h, m.c = make([]float32, o.Batch*8), make([]float32, o.Batch*8)
			return model.Model{Forward: m.forward, Loss: m.loss, Metrics: []model.Metric{model.Perplexity()}, State: m}
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

func (m *lstmModel) Slices() [][]float32 { return [][]float32{m.h, m.c} }

func (m *lstmModel) Reset() {
	clear(m.h)
	clear(m.c)
}

func (m *lstmModel) forward(t *nn.Tape, b model.Batch) model.Outputs {
	m.ids = m.ids[:0]
	for s := range 7 {
		for i := range b.N {
			m.ids = append(m.ids, b.IDs[i*7+s])
		}
	}
	m.state = nn.LSTMState{H: m.h[:b.N*8], C: m.c[:b.N*8]}
	x := t.Dropout(t.LSTM(t.Embedding(m.ids, m.embedding), m.layer, &m.state, 7), 0.3)
	return model.Outputs{t.Dense(x, m.out, nn.Identity)}
}

func (m *lstmModel) loss(t *nn.Tape, b model.Batch, out model.Outputs) model.Loss {
	m.labels = m.labels[:0]
	for s := range 7 {
		for i := range b.N {
			m.labels = append(m.labels, b.Labels[i*7+s])
		}
	}
	b.Labels = m.labels
	return model.CrossEntropy(t, b, out)
}

// tinyNorm is a classifier with running statistics.
func tinyNorm() model.Spec {
	return model.Spec{
		Name: "tiny-norm", Data: "mnist", Input: []int{28, 28, 1}, Classes: 10,
		Defaults: model.Defaults{Optimizer: "sgd", LR: 0.05},
		Build: func(ps *nn.Params, _ model.Options) model.Model {
			m := &normModel{hidden: ps.Dense("hidden", 784, 12), out: ps.Dense("out", 12, 10)}
			m.norm = ps.BatchNorm("norm", 12)
			return model.Model{Forward: m.forward, Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy()}}
		},
	}
}

type normModel struct {
	hidden, out nn.Layer
	norm        nn.Norm
}

func (m *normModel) forward(t *nn.Tape, b model.Batch) model.Outputs {
	x := t.Dense(t.Flatten(b.Values), m.hidden, nn.Identity)
	x = t.BatchNorm(t.Reshape(x, b.N, 1, 1, 12), m.norm, nil, nn.ReLU)
	return model.Outputs{t.Dense(t.Flatten(x), m.out, nn.Identity)}
}

// observed runs a configuration as it is, and tells of it.
func observed(job *ringo.Job, cfg Config, obs Observer) (Summary, error) {
	return runOn(job.Context(), job, watched(cfg, obs), nil)
}

func watched(cfg Config, obs Observer) Config {
	cfg.Observer = obs
	return cfg
}
