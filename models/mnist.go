package models

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// mnistCNN is the network of the reference run: 20 and 50 filters of 5x5, each followed by a 2x2
// max-pool and ReLU (in any order), then 500 and 10 units.
func mnistCNN() model.Spec {
	return model.Spec{
		Name:     "mnist-cnn",
		Aliases:  []string{"mnist"},
		About:    "conv 5x5x20, pool, conv 5x5x50, pool, dense 500, dense 10",
		Data:     "mnist",
		Input:    []int{28, 28, 1},
		Classes:  10,
		Params:   431080,
		Defaults: mnistDefaults,
		Build:    buildMNIST,
	}
}

// mnistDefaults are the reference run's.
var mnistDefaults = model.Defaults{Optimizer: "sgd", Batch: 64, Epochs: 10, LR: 0.005, GlobalBatch: 64, Momentum: 0.9, WeightDecay: 1e-5}

func buildMNIST(ps *nn.Params, o model.Options) model.Model {
	conv1, conv2 := ps.Conv2D("conv1", 1, 20, 5), ps.Conv2D("conv2", 20, 50, 5)
	fc1, fc2 := ps.Dense("fc1", 4*4*50, 500), ps.Dense("fc2", 500, classes(o, 10))
	pooled := nn.Conv{MaxPool2: true, Activation: nn.ReLU}
	return classifier(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		x = t.Conv2D(t.Conv2D(x, conv1, pooled), conv2, pooled)
		return t.Dense(t.Dense(t.Flatten(x), fc1, nn.ReLU), fc2, nn.Identity)
	})
}
