package models

import (
	"fmt"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

const (
	ctrSlots   = 26      // categories of a sample
	ctrNumbers = 13      // numbers of a sample
	ctrRows    = 1000001 // rows of the table shared by all slots
	ctrDim     = 10
)

// ctrDNN and ctrDNN4096 predict clicks: the concatenated embeddings of the categories and the
// numbers, then dense layers. Categories are rows of a fixed table, or keys in any slots, also
// bags.
func ctrDNN() model.Spec {
	return ctrSpec(model.Spec{
		Name:    "ctr-dnn",
		Aliases: []string{"ctr"},
		About:   "click prediction: 26 embeddings of 10 and 13 numbers, dense 400, 400, 400, 2",
		Params:  10431212,
	}, 400, 400, 400)
}

func ctrDNN4096() model.Spec {
	return ctrSpec(model.Spec{
		Name:   "ctr-dnn-4096",
		About:  "click prediction: 26 embeddings of 10 and 13 numbers, dense 4096, 2048, 1024, 2",
		Params: 21613196,
	}, 4096, 2048, 1024)
}

func ctrSpec(s model.Spec, widths ...int) model.Spec {
	s.Task, s.Data = model.Click, "criteo"
	s.Input, s.IDs, s.Classes, s.Rows, s.AnySlots = []int{ctrNumbers}, ctrSlots, 2, ctrRows, true
	s.Defaults = model.Defaults{Optimizer: "adagrad", Batch: 512, Epochs: 1, LR: 0.01, GlobalBatch: 512}
	s.Build = func(ps *nn.Params, o model.Options) model.Model { return buildCTR(ps, o, widths) }
	return s
}

type ctr struct {
	table  *nn.Table
	byKeys bool
	hidden []nn.Layer
	out    nn.Layer
	dense  nn.Stage
}

func buildCTR(ps *nn.Params, o model.Options, widths []int) model.Model {
	rows := ctrRows
	if o.Rows > 0 {
		rows = o.Rows
	}
	m := &ctr{table: ps.NewTable("embedding", nn.UniformRows(0.05), rows, ctrDim)}
	in := ctrSlots*ctrDim + ctrNumbers
	if m.byKeys = len(o.Slots) > 0; m.byKeys {
		in = len(o.Slots)*ctrDim + product(o.Input)
	}
	for i, width := range widths {
		m.hidden = append(m.hidden, ps.Dense(fmt.Sprintf("fc%d", i+1), in, width))
		in = width
	}
	m.out = ps.Dense("out", in, 2)
	m.dense = m.logits
	return model.Model{
		Forward: m.forward, Loss: model.CrossEntropy,
		Metrics: clickMetrics(),
	}
}

// forward returns two logits for each sample.
func (m *ctr) forward(t *nn.Tape, b model.Batch) model.Outputs {
	var x *nn.Tensor
	if m.byKeys {
		x = t.EmbeddingBag(b.Bags, m.table, nn.SumPool, b.Values)
	} else {
		x = t.EmbeddingTable(b.IDs, b.N, m.table, b.Values)
	}
	return model.Outputs{t.OnDevice(heter, m.dense, x)}
}

// logits returns the logits for x, concatenated rows and numbers.
func (m *ctr) logits(t *nn.Tape, x []*nn.Tensor) *nn.Tensor {
	y := x[0]
	for _, l := range m.hidden {
		y = t.Dense(y, l, nn.ReLU)
	}
	return t.Dense(y, m.out, nn.Identity)
}
