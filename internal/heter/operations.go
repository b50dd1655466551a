package heter

import (
	"slices"

	"github.com/ringo-ml/ringo/nn"
)

// StageOp is an operation of a stage as data, for programs without the model's code.
type StageOp struct {
	// Op and Name are those of nn.Node.
	Op, Name string `json:",omitempty"`
	// In are the operation's inputs: inputs of the stage from 0, then results of operations in
	// order; -1 for a tensor that is omitted, or made of labels and targets.
	In []int
	// Params are the names of the operation's parameters, "" for one that is omitted.
	Params []string `json:",omitempty"`
	// Activation is applied to the result: "relu", "tanh", "sigmoid", "gelu" or none.
	Activation string             `json:",omitempty"`
	Attrs      map[string]float64 `json:",omitempty"`
	Axes       []int              `json:",omitempty"`
	// Shape is the shape of the result for one sample.
	Shape []int
}

// describeOps returns the operations of the stage and those of the loss.
func (f *finder) describeOps(nodes []nn.Node) (stage, loss []StageOp) {
	known := slices.Clone(f.x)
	for i, n := range nodes[f.lo:] {
		o := StageOp{Op: n.Op, Name: n.Name, Attrs: n.Attrs, Axes: n.Axes, Shape: slices.Clone(n.Output.Shape)}
		o.Activation = [...]string{"", "relu", "tanh", "sigmoid", "gelu"}[n.Activation]
		if len(o.Shape) > 0 && o.Shape[0] == samples {
			o.Shape = o.Shape[1:]
		}
		for _, x := range n.Inputs {
			o.In = append(o.In, slices.Index(known, x))
		}
		for _, p := range n.Params {
			name := ""
			if p != nil {
				name = p.Name
			}
			o.Params = append(o.Params, name)
		}
		if known = append(known, n.Output); f.lo+i < f.hi {
			stage = append(stage, o)
		} else {
			loss = append(loss, o)
		}
	}
	return stage, loss
}
