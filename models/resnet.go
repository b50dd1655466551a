package models

import (
	"fmt"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// resnet20 is the residual network of He et al. (2016) for images of 32x32: three groups of three
// blocks of 16, 32 and 64 channels, with shortcuts without parameters.
func resnet20() model.Spec {
	return model.Spec{
		Name:     "cifar-resnet20",
		Aliases:  []string{"resnet20"},
		About:    "19 convolutions 3x3 of 16 to 64 channels with batch norm and identity shortcuts, dense 10",
		Data:     "cifar10",
		Input:    []int{32, 32, 3},
		AnySize:  true,
		Classes:  10,
		Params:   269722,
		Defaults: cifarDefaults,
		Build:    buildResNet20,
	}
}

// resnet50 is the same authors' network of bottleneck blocks, but with the stride in the 3x3
// convolution, as in torchvision.
func resnet50() model.Spec {
	return model.Spec{
		Name:     "resnet50",
		About:    "residual bottleneck blocks for images of 224x224, dense 100",
		Data:     "images",
		Input:    []int{224, 224, 3},
		AnySize:  true,
		Classes:  100,
		Params:   23712932,
		Defaults: model.Defaults{Optimizer: "sgd", Batch: 32, Epochs: 90, LR: 0.1, GlobalBatch: 256, Momentum: 0.9, WeightDecay: 1e-4},
		Build:    buildResNet50,
	}
}

// convNorm is a convolution without bias and the normalisation after it.
type convNorm struct {
	conv nn.Layer
	norm nn.Norm
	cfg  nn.Conv
}

func newConvNorm(ps *nn.Params, name string, in, out, kernel, stride int, init nn.Init) convNorm {
	return convNorm{
		conv: nn.Layer{W: ps.New(name+".weight", init, kernel, kernel, in, out)},
		norm: ps.BatchNorm(name+".norm", out),
		cfg:  nn.Conv{Stride: stride, Pad: kernel / 2},
	}
}

func (l convNorm) forward(t *nn.Tape, x, residual *nn.Tensor, act nn.Activation) *nn.Tensor {
	return t.BatchNorm(t.Conv2D(x, l.conv, l.cfg), l.norm, residual, act)
}

// residualBlock adds its layers' result to its input, projected by project to the same shape;
// without project the input is subsampled and padded with zeros.
type residualBlock struct {
	layers      []convNorm
	project     *convNorm
	stride, out int
}

func (b residualBlock) forward(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
	shortcut := x
	switch {
	case b.project != nil:
		shortcut = b.project.forward(t, x, nil, nn.Identity)
	case b.stride != 1 || x.Shape[3] != b.out:
		shortcut = t.SubsamplePad(x, b.stride, b.out)
	}
	last := len(b.layers) - 1
	for _, l := range b.layers[:last] {
		x = l.forward(t, x, nil, nn.ReLU)
	}
	return b.layers[last].forward(t, x, shortcut, nn.ReLU)
}

func buildResNet20(ps *nn.Params, o model.Options) model.Model {
	conv := func(name string, in, out, stride int) convNorm {
		return newConvNorm(ps, name, in, out, 3, stride, nn.FanIn(9*in))
	}
	stem := conv("stem", 3, 16, 1)
	var blocks []residualBlock
	in := 16
	for g, out := range []int{16, 32, 64} {
		for i := range 3 {
			b := residualBlock{stride: 1, out: out}
			if g > 0 && i == 0 {
				b.stride = 2
			}
			name := fmt.Sprintf("block%d.%d", g+1, i+1)
			b.layers = []convNorm{conv(name+".conv1", in, out, b.stride), conv(name+".conv2", out, out, 1)}
			blocks = append(blocks, b)
			in = out
		}
	}
	fc := ps.Dense("fc", in, classes(o, 10))
	return classifier(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		x = stem.forward(t, x, nil, nn.ReLU)
		for _, b := range blocks {
			x = b.forward(t, x)
		}
		return t.Dense(t.GlobalAvgPool(x), fc, nn.Identity)
	})
}

func buildResNet50(ps *nn.Params, o model.Options) model.Model {
	conv := func(name string, in, out, kernel, stride int) convNorm {
		return newConvNorm(ps, name, in, out, kernel, stride, nn.FanOut(kernel*kernel*out))
	}
	stem := conv("stem", 3, 64, 7, 2)
	var blocks []residualBlock
	in := 64
	for g, n := range []int{3, 4, 6, 3} {
		mid, out := 64<<g, 256<<g
		for i := range n {
			b := residualBlock{stride: 1, out: out}
			if g > 0 && i == 0 {
				b.stride = 2
			}
			name := fmt.Sprintf("block%d.%d", g+1, i+1)
			b.layers = []convNorm{conv(name+".conv1", in, mid, 1, 1), conv(name+".conv2", mid, mid, 3, b.stride), conv(name+".conv3", mid, out, 1, 1)}
			if i == 0 {
				p := conv(name+".shortcut", in, out, 1, b.stride)
				b.project = &p
			}
			blocks = append(blocks, b)
			in = out
		}
	}
	fc := ps.Dense("fc", in, classes(o, 100))
	return classifier(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		x = stem.forward(t, x, nil, nn.ReLU)
		x = t.MaxPool(x, nn.Pool{Size: 3, Stride: 2, Pad: 1})
		for _, b := range blocks {
			x = b.forward(t, x)
		}
		return t.Dense(t.GlobalAvgPool(x), fc, nn.Identity)
	})
}
