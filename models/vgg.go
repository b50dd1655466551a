package models

import (
	"fmt"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// cifarDefaults are the default settings for small images.
var cifarDefaults = model.Defaults{Optimizer: "sgd", Batch: 32, Epochs: 10, LR: 0.05, GlobalBatch: 64, Momentum: 0.9, WeightDecay: 1e-4}

// vgg16 is VGG-16 (Simonyan and Zisserman 2015) for images of 32x32: thirteen convolutions with
// batch normalisation, and a single dense layer instead of three.
func vgg16() model.Spec {
	return model.Spec{
		Name:     "cifar-vgg16",
		Aliases:  []string{"vgg16"},
		About:    "13 convolutions 3x3 of 64 to 512 channels with batch norm, 5 pools, dense 10",
		Data:     "cifar10",
		Input:    []int{32, 32, 3},
		Classes:  10,
		Params:   14728266,
		Defaults: cifarDefaults,
		Build:    buildVGG16,
	}
}

func buildVGG16(ps *nn.Params, o model.Options) model.Model {
	blocks := [][]int{{64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}}
	type layer struct {
		conv nn.Layer
		norm nn.Norm
	}
	var layers [][]layer
	in := 3
	for b, widths := range blocks {
		var block []layer
		for i, out := range widths {
			name := fmt.Sprintf("conv%d.%d", b+1, i+1)
			block = append(block, layer{ps.Conv2D(name, in, out, 3), ps.BatchNorm(name+".norm", out)})
			in = out
		}
		layers = append(layers, block)
	}
	fc := ps.Dense("fc", in, classes(o, 10))
	return classifier(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		for _, block := range layers {
			for _, l := range block {
				x = t.BatchNorm(t.Conv2D(x, l.conv, nn.Conv{Pad: 1}), l.norm, nil, nn.ReLU)
			}
			x = t.MaxPool(x, nn.Pool{Size: 2})
		}
		return t.Dense(t.Flatten(x), fc, nn.Identity)
	})
}
