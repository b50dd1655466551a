package models

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/nn"
)

const (
	ctrSlots   = 26      // categories of a sample
	ctrNumbers = 13      // numbers of a sample
	ctrRows    = 1000001 // of the table that all slots share
	ctrDim     = 10
)

// ctrDNN and ctrDNN4096 predict clicks: the categories' embeddings and the
// numbers side by side, then dense layers.
func ctrDNN() Spec {
	return ctrSpec(Spec{
		Name:    "ctr-dnn",
		Aliases: []string{"ctr"},
		About:   "click prediction: 26 embeddings of 10 and 13 numbers, dense 400, 400, 400, 2",
		Params:  10431212,
	}, 400, 400, 400)
}

func ctrDNN4096() Spec {
	return ctrSpec(Spec{
		Name:   "ctr-dnn-4096",
		About:  "click prediction: 26 embeddings of 10 and 13 numbers, dense 4096, 2048, 1024, 2",
		Params: 21613196,
	}, 4096, 2048, 1024)
}

func ctrSpec(s Spec, widths ...int) Spec {
	s.Task, s.Data = Click, "criteo"
	s.Input, s.IDs, s.Classes, s.Rows = []int{ctrNumbers}, ctrSlots, 2, ctrRows
	s.Defaults = Defaults{Optimizer: "adagrad", Batch: 512, Epochs: 1, LR: 0.01, GlobalBatch: 512}
	s.Build = func(ps *nn.Params, o Options) Model { return buildCTR(ps, o, widths) }
	return s
}

type ctr struct {
	table  *nn.Table
	hidden []nn.Layer
	out    nn.Layer
	scores []float32
}

func buildCTR(ps *nn.Params, o Options, widths []int) Model {
	rows := ctrRows
	if o.Rows > 0 {
		rows = o.Rows
	}
	m := &ctr{table: ps.NewTable("embedding", nn.UniformRows(0.05), rows, ctrDim)}
	in := ctrSlots*ctrDim + ctrNumbers
	for i, width := range widths {
		m.hidden = append(m.hidden, ps.Dense(fmt.Sprintf("fc%d", i+1), in, width))
		in = width
	}
	m.out = ps.Dense("out", in, 2)
	return m
}

// Loss is the mean over samples; Scores are the probabilities of label 1.
func (m *ctr) Loss(t *nn.Tape, b Batch) (*nn.Tensor, Outcome) {
	x := t.EmbeddingTable(b.IDs, b.N, m.table, b.Values)
	for _, l := range m.hidden {
		x = t.Dense(x, l, nn.ReLU)
	}
	logits := t.Dense(x, m.out, nn.Identity)
	m.scores = m.scores[:0]
	for i := range b.N {
		difference := float64(logits.Data[2*i]) - float64(logits.Data[2*i+1])
		m.scores = append(m.scores, float32(1/(1+math.Exp(difference))))
	}
	loss, correct := t.SoftmaxCrossEntropy(logits, b.Labels)
	return loss, Outcome{Count: b.N, Correct: correct, Scores: m.scores}
}
