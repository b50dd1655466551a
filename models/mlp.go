package models

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// mlp is a small network for quick trials and for tables: one hidden layer of 100 units over the
// numbers and, for each category, a vector of 16.
func mlp() model.Spec { return mlpOf("mlp", 100, 1) }

// Limits of mlp:WIDTHxDEPTH.
const maxWidth, maxDepth = 1 << 14, 64

// mlpOf is mlp with depth hidden layers of width units.
func mlpOf(name string, width, depth int) model.Spec {
	about := strings.Repeat(fmt.Sprintf("dense %d, ", width), min(depth, 3))
	if depth > 3 {
		about = fmt.Sprintf("%d times dense %d, ", depth, width)
	}
	return model.Spec{
		Name:     name,
		About:    about + "dense 10; of tables such as CSV numbers and categories, for classes or a number",
		Data:     "mnist",
		Input:    []int{28, 28, 1},
		Classes:  10,
		AnyShape: true,
		Params:   785*width + (depth-1)*(width+1)*width + (width+1)*10,
		Defaults: mnistDefaults,
		Build:    func(ps *nn.Params, o model.Options) model.Model { return buildMLP(ps, o, width, depth) },
	}
}

// sizedMLP returns the model of a name mlp:WIDTH or mlp:WIDTHxDEPTH; ok is false for other names.
func sizedMLP(name string) (s model.Spec, ok bool, err error) {
	size, ok := strings.CutPrefix(name, "mlp:")
	if !ok {
		return s, false, nil
	}
	first, second, hasDepth := strings.Cut(size, "x")
	width, err := strconv.Atoi(first)
	depth, canonical := 1, strconv.Itoa(width)
	if hasDepth && err == nil {
		depth, err = strconv.Atoi(second)
		canonical += "x" + strconv.Itoa(depth)
	}
	if err != nil || size != canonical || width < 1 || width > maxWidth || depth < 1 || depth > maxDepth {
		return s, true, fmt.Errorf("models: %q: want mlp:WIDTH or mlp:WIDTHxDEPTH, such as mlp:256x3, with 1 to %d units in each of 1 to %d hidden layers", name, maxWidth, maxDepth)
	}
	return mlpOf(name, width, depth), true, nil
}

// categoryWidth is the width of a category's vector.
const categoryWidth = 16

func buildMLP(ps *nn.Params, o model.Options, width, depth int) model.Model {
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
	layers := []nn.Layer{ps.Dense("hidden", in, width)}
	for k := 2; k <= depth; k++ {
		layers = append(layers, ps.Dense(fmt.Sprintf("hidden%d", k), width, width))
	}
	out := ps.Dense("out", width, outputs)
	m := model.Model{
		Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			x := together(t, b, vectors)
			for _, hidden := range layers {
				x = t.Dense(x, hidden, nn.ReLU)
			}
			return model.Outputs{t.Dense(x, out, nn.Identity)}
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
