package onnx

import (
	"fmt"

	"github.com/ringo-ml/ringo/nn"
)

const normEpsilon = 1e-5 // equal to nn's

// exports reports whether this package can express an activation in ONNX.
func exports(act nn.Activation) bool { return act <= nn.GELU }

// activate applies an activation that exports accepts to a result.
func (b *builder) activate(name string, act nn.Activation) string {
	switch act {
	case nn.ReLU:
		return b.add("Relu", []string{name})
	case nn.Tanh:
		return b.add("Tanh", []string{name})
	case nn.Sigmoid:
		return b.add("Sigmoid", []string{name})
	case nn.GELU: // GPT-2's form, a single operation in some runtimes
		cube := b.add("Pow", []string{name, b.scalar(3)})
		sum := b.add("Add", []string{name, b.add("Mul", []string{cube, b.scalar(0.044715)})})
		tanh := b.add("Tanh", []string{b.add("Mul", []string{sum, b.scalar(0.7978845608028654)})})
		half := b.add("Mul", []string{name, b.scalar(0.5)})
		return b.add("Mul", []string{half, b.add("Add", []string{tanh, b.scalar(1)})})
	}
	return name
}

// dense adds a product with rows of weights. After a flatten of images, weights are reordered by
// channel.
func (b *builder) dense() error {
	n, x := b.node(), b.input(0)
	w := n.Params[0]
	name, weight := "", ""
	if x.lies == flatChannels {
		h, wide, c := x.image[1].plus, x.image[2].plus, x.image[3].plus
		dims := []int{w.Shape[0], c, h, wide}
		strides := []int{w.Shape[1], 1, wide * c, c}
		name = x.names[flatChannels]
		weight = b.constant(b.weightName(w.Name), [2]any{w, "channels"}, w.Shape, strided(w.Data, dims, strides))
	} else {
		name, weight = b.asHere(x), b.param(w)
	}
	in := []string{name, weight}
	if n.Params[1] != nil {
		in = append(in, b.param(n.Params[1]))
	}
	b.result(b.activate(b.add("Gemm", in, intOf("transB", 1)), n.Activation), asHere)
	return nil
}

// conv2d adds a convolution with weights [out, in, kh, kw], then max-pooling and the activation,
// which are part of the same operation in nn.
func (b *builder) conv2d() error {
	n := b.node()
	w, pad := n.Params[0], int(n.Attrs["pad"])
	kh, kw, in, out := w.Shape[0], w.Shape[1], w.Shape[2], w.Shape[3]
	weight := b.constant(b.weightName(w.Name), [2]any{w, "convolution"}, []int{out, in, kh, kw},
		strided(w.Data, []int{out, in, kh, kw}, []int{1, out, kw * in * out, in * out}))
	inputs := []string{b.channelsFirst(b.input(0)), weight}
	if n.Params[1] != nil {
		inputs = append(inputs, b.param(n.Params[1]))
	}
	stride := int(n.Attrs["stride"])
	name := b.add("Conv", inputs, intsOf("kernel_shape", kh, kw), intsOf("strides", stride, stride), intsOf("pads", pad, pad, pad, pad))
	if n.Attrs["maxpool2"] != 0 {
		name = b.add("MaxPool", []string{name}, intsOf("kernel_shape", 2, 2), intsOf("strides", 2, 2))
	}
	b.result(b.activate(name, n.Activation), channelsFirst)
	return nil
}

// pool adds a maximum, which ignores padding, or a mean, which counts padding as zeros, as in nn.
func (b *builder) pool() error {
	n := b.node()
	size, stride, pad := int(n.Attrs["size"]), int(n.Attrs["stride"]), int(n.Attrs["pad"])
	op, attrs := "MaxPool", []attribute{intsOf("kernel_shape", size, size), intsOf("strides", stride, stride), intsOf("pads", pad, pad, pad, pad)}
	if n.Op == "avgpool" {
		op, attrs = "AveragePool", append(attrs, intOf("count_include_pad", 1))
	}
	b.result(b.add(op, []string{b.channelsFirst(b.input(0))}, attrs...), channelsFirst)
	return nil
}

// globalAvgPool adds a mean over pixels, [n, c]; ONNX's result has two more axes of length 1.
func (b *builder) globalAvgPool() error {
	name := b.add("GlobalAveragePool", []string{b.channelsFirst(b.input(0))})
	b.result(b.add("Flatten", []string{name}, intOf("axis", 1)), asHere)
	return nil
}

// subsamplePad takes every stride-th pixel, and adds channels of zeros on both sides.
func (b *builder) subsamplePad() error {
	n, in, out := b.node(), b.input(0), b.shapes[b.node().Output]
	name, stride := b.channelsFirst(in), int(n.Attrs["stride"])
	if stride != 1 {
		h, w := in.shape[1].plus, in.shape[2].plus
		name = b.add("Slice", []string{name, b.list(0, 0), b.list(h, w), b.list(2, 3), b.list(stride, stride)})
	}
	if more := out[3].plus - in.shape[3].plus; more > 0 {
		name = b.add("Pad", []string{name, b.list(0, more/2, 0, 0, 0, more-more/2, 0, 0)})
	}
	b.result(name, channelsFirst)
	return nil
}

// batchNorm uses the running statistics. Runtimes fuse it with the convolution before.
func (b *builder) batchNorm() error {
	n, x := b.node(), b.input(0)
	lies := asHere
	switch {
	case len(x.shape) == 4:
		lies = channelsFirst
	case len(x.shape) != 2:
		return b.refuse("of a tensor of %d axes: batch normalisation is exported of [n, c] and of images", len(x.shape))
	}
	names := []string{b.in(x, lies), b.param(n.Params[0]), b.param(n.Params[1])}
	for _, of := range n.Buffers {
		names = append(names, b.floats(b.weightName(of.Name), of, []int{len(of.Data)}, of.Data))
	}
	name := b.add("BatchNormalization", names, floatOf("epsilon", normEpsilon))
	if n.Inputs[1] != nil {
		name = b.add("Add", []string{name, b.in(b.input(1), lies)})
	}
	b.result(b.activate(name, n.Activation), lies)
	return nil
}

// in returns the name of v in layout lies.
func (b *builder) in(v *value, lies layout) string {
	if lies == channelsFirst {
		return b.channelsFirst(v)
	}
	return b.asHere(v)
}

// layerNorm normalises over the last axis, in nn as in ONNX, whose operator exists since opset 17.
func (b *builder) layerNorm() error {
	n := b.node()
	b.result(b.add("LayerNormalization", []string{b.localInput(0), b.param(n.Params[0]), b.param(n.Params[1])}, intOf("axis", -1), floatOf("epsilon", normEpsilon)), asHere)
	return nil
}

// groupNorm is an instance normalisation of the groups as channels, followed by the channels'
// factors: opset 17 has no group normalisation.
func (b *builder) groupNorm() error {
	n, x := b.node(), b.input(0)
	groups, channels := int(n.Attrs["groups"]), n.Params[0].Shape[0]
	rank := len(x.shape)
	perm, back, shape, beside := []int{0, rank - 1}, []int{0}, []dim{x.shape[0], x.shape[rank-1]}, []int{channels}
	for i := 1; i < rank-1; i++ {
		perm, back, shape, beside = append(perm, i), append(back, i+1), append(shape, x.shape[i]), append(beside, 1)
	}
	back = append(back, 1)
	name := ""
	switch {
	case rank == 4:
		name = b.channelsFirst(x)
	case rank == 2:
		name = b.asHere(x)
	default:
		name = b.add("Transpose", []string{b.asHere(x)}, intsOf("perm", perm...))
	}
	ones, zeros := make([]float32, groups), make([]float32, groups)
	nn.Ones(nil, ones)
	all, is := volume(shape[1:])
	if !is {
		return b.refuse("of channels of a size that depends on the batch")
	}
	name = b.reshape(name, []dim{shape[0], fixed(groups), fixed(all / groups)})
	name = b.add("InstanceNormalization", []string{name, b.floats("ones", fmt.Sprint("ones", groups), []int{groups}, ones), b.floats("zeros", fmt.Sprint("zeros", groups), []int{groups}, zeros)}, floatOf("epsilon", normEpsilon))
	name = b.reshape(name, shape)
	for i, op := range []string{"Mul", "Add"} {
		p := n.Params[i]
		name = b.add(op, []string{name, b.floats(b.weightName(p.Name), [2]any{p, rank}, beside, p.Data)})
	}
	if rank == 4 {
		b.result(name, channelsFirst)
		return nil
	}
	if rank > 2 {
		name = b.add("Transpose", []string{name}, intsOf("perm", back...))
	}
	b.result(name, asHere)
	return nil
}

// attention is causal: the scores of later steps are minus infinity. Concatenated queries, keys and
// values, [n*steps, 3*width], become [n, heads, steps, dim], keys with the last two axes exchanged.
// Queries are scaled instead of scores, which are more numerous.
func (b *builder) attention() error {
	n := b.node()
	heads, steps := int(n.Attrs["heads"]), int(n.Attrs["steps"])
	y := b.shapes[n.Output]
	width := y[1].plus
	rows := dim{each: y[0].each / steps, plus: y[0].plus / steps}
	parts := b.addAll("Split", []string{b.localInput(0), b.list(width, width, width)}, 3, intOf("axis", 1))
	for i := range parts {
		perm := []int{0, 2, 1, 3}
		if i == 1 {
			perm = []int{0, 2, 3, 1} // keys, as columns
		}
		parts[i] = b.reshape(parts[i], []dim{rows, fixed(steps), fixed(heads), fixed(width / heads)})
		parts[i] = b.add("Transpose", []string{parts[i]}, intsOf("perm", perm...))
	}
	query := b.add("Mul", []string{parts[0], b.scalar(attentionScale(width / heads))})
	scores := b.add("Add", []string{b.add("MatMul", []string{query, parts[1]}), b.later(steps)})
	name := b.add("MatMul", []string{b.add("Softmax", []string{scores}, intOf("axis", -1)), parts[2]})
	b.result(b.reshape(b.add("Transpose", []string{name}, intsOf("perm", 0, 2, 1, 3)), y), asHere)
	return nil
}

// later is [steps, steps]: 0 for visible steps, and minus infinity for later ones.
func (b *builder) later(steps int) string {
	mask := make([]float32, steps*steps)
	for i := range steps {
		for j := i + 1; j < steps; j++ {
			mask[i*steps+j] = minusInfinity
		}
	}
	return b.floats("causal", fmt.Sprint("causal", steps), []int{steps, steps}, mask)
}
