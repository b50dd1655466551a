package models

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// mlp is a small network for quick trials: one hidden layer of 100 units.
func mlp() model.Spec {
	return model.Spec{
		Name:     "mlp",
		About:    "dense 100, dense 10",
		Data:     "mnist",
		Input:    []int{28, 28, 1},
		Classes:  10,
		Params:   79510,
		Defaults: mnistDefaults,
		Build:    buildMLP,
	}
}

func buildMLP(ps *nn.Params, o model.Options) model.Model {
	hidden, out := ps.Dense("hidden", 784, 100), ps.Dense("out", 100, classes(o, 10))
	return classifier(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		return t.Dense(t.Dense(t.Flatten(x), hidden, nn.ReLU), out, nn.Identity)
	})
}
