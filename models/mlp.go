package models

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// mlp is a small network for quick trials and for tables: one hidden layer of 100 units over the
// numbers and, for each category, a vector of 16.
func mlp() model.Spec {
	return model.Spec{
		Name:     "mlp",
		About:    "dense 100, dense 10; of tables such as CSV numbers and categories, for classes or a number",
		Data:     "mnist",
		Input:    []int{28, 28, 1},
		Classes:  10,
		AnyShape: true,
		Params:   79510,
		Defaults: mnistDefaults,
		Build:    buildMLP,
	}
}

// categoryWidth is the width of a category's vector.
const categoryWidth = 16

func buildMLP(ps *nn.Params, o model.Options) model.Model {
	in := categoryWidth * o.IDs
	if values := product(o.Input); o.IDs == 0 && values == 0 {
		in = 784
	} else {
		in += values
	}
	var vectors *nn.Param
	if o.IDs > 0 {
		vectors = ps.New("categories.weight", spread(0.1), max(1, o.Rows), categoryWidth)
	}
	outputs := max(o.Targets, 0)
	if outputs == 0 {
		outputs = classes(o, 10)
	}
	hidden, out := ps.Dense("hidden", in, 100), ps.Dense("out", 100, outputs)
	m := model.Model{
		Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.Dense(t.Dense(together(t, b, vectors), hidden, nn.ReLU), out, nn.Identity)}
		},
		Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy()},
	}
	if o.Targets > 0 {
		m.Loss, m.Metrics = model.Squared, []model.Metric{model.MAE(), model.R2()}
	}
	return m
}

// product is the product of a shape's sizes; 0 for an empty shape.
func product(shape []int) int {
	if len(shape) == 0 {
		return 0
	}
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// together concatenates a batch's values and the vectors of its categories, [n, all].
func together(t *nn.Tape, b model.Batch, vectors *nn.Param) *nn.Tensor {
	if vectors == nil {
		return t.Flatten(b.Values)
	}
	x := t.Reshape(t.Embedding(b.IDs, vectors), b.N, categoryWidth*len(b.IDs)/b.N)
	if b.Values == nil {
		return x
	}
	return t.Concat(1, t.Flatten(b.Values), x)
}
