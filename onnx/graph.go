package onnx

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/weights"
)

// layout is the order of a tensor's values in the graph.
type layout uint8

const (
	// asHere is ringo's layout.
	asHere layout = iota
	// channelsFirst is [n, c, h, w] of ringo's [n, h, w, c], as ONNX's convolutions require.
	channelsFirst
	// flatChannels is a flat row for each image, channel by channel; ringo's is pixel by pixel.
	flatChannels
)

// value is a tensor in the graph. The first operation that needs it in another layout adds a
// conversion, and all later ones use the result: a network of convolutions has at most one
// transposition, at its end.
type value struct {
	shape []dim // shape in ringo's layout
	image []dim // shape before a flatten, for flatChannels
	lies  layout
	names map[layout]string
}

// builder converts a graph operation by operation, in recorded order, so that operands precede
// their uses, as the format requires.
type builder struct {
	*traced
	weightName weights.Names
	elsewhere  map[*nn.Table]bool // tables with rows outside the model
	rows       map[int]string     // input with such a table's rows, or their numbers, by operation
	sums       map[int]string     // input with sums of rows, by operation
	single     func(slot int) bool
	bags       []Bag
	raw        *rawInputs // nil: encoded inputs
	idsFrom    string     // value with the batch's ids

	operators []operator
	constants []constant
	inputs    []port
	outputs   []port
	carried   []port // outputs that the next run begins with

	names  map[string]bool
	made   map[any]string // shared constants and parts of the graph
	of     map[*nn.Tensor]*value
	states int

	stepsLast map[*nn.Tensor]bool // results of recurrent layers to reorder by sample
	i         int                 // operation in progress
}

// unique returns an unused name.
func (b *builder) unique(name string) string {
	at := name
	for k := 2; b.names[at]; k++ {
		at = fmt.Sprintf("%s_%d", name, k)
	}
	b.names[at] = true
	return at
}

// node is the operation in progress.
func (b *builder) node() nn.Node { return b.passes[0].nodes[b.i] }

// add adds an operator with a single result, and returns the result's name.
func (b *builder) add(op string, in []string, attrs ...attribute) string {
	return b.addAll(op, in, 1, attrs...)[0]
}

// addAll is add for an operator with several results.
func (b *builder) addAll(op string, in []string, results int, attrs ...attribute) []string {
	name := b.unique(fmt.Sprintf("%s_%d", op, b.i))
	out := []string{name}
	for range results - 1 {
		out = append(out, b.unique(name))
	}
	b.operators = append(b.operators, operator{op: op, name: name, in: in, out: slices.Clone(out), attrs: attrs})
	return out
}

// ints is a constant of integers.
func (b *builder) ints(shape []int, vs ...int) string {
	key := fmt.Sprint("ints", shape, vs)
	if name, ok := b.made[key]; ok {
		return name
	}
	c := constant{name: b.unique("const"), shape: shape, ints: make([]int64, 0, len(vs)), at: -1}
	for _, v := range vs {
		c.ints = append(c.ints, int64(v))
	}
	b.constants = append(b.constants, c)
	b.made[key] = c.name
	return c.name
}

// list is a constant vector of integers.
func (b *builder) list(vs ...int) string { return b.ints([]int{len(vs)}, vs...) }

// scalar is a constant number.
func (b *builder) scalar(v float32) string { return b.floats("const", v, nil, []float32{v}) }

// floats is a constant, shared by key.
func (b *builder) floats(name string, key any, shape []int, data ...[]float32) string {
	return b.constant(name, key, shape, pieces(data...))
}

// constant adds values under a name, unless the key exists.
func (b *builder) constant(name string, key any, shape []int, each func(emit func([]float32) error) error) string {
	if name, ok := b.made[key]; ok {
		return name
	}
	c := constant{name: b.unique(name), shape: shape, each: each, at: -1}
	b.constants = append(b.constants, c)
	b.made[key] = c.name
	return c.name
}

// param is a parameter in ringo's layout.
func (b *builder) param(p *nn.Param) string {
	return b.floats(b.weightName(p.Name), p, p.Shape, p.Data)
}

// batchSize returns the name of a scalar, the number of samples.
func (b *builder) batchSize() string {
	if name, ok := b.made["batch size"]; ok {
		return name
	}
	name := b.add("Gather", []string{b.add("Shape", []string{b.inputs[0].name}), b.ints(nil, 0)}, intOf("axis", 0))
	b.made["batch size"] = name
	return name
}

// vector returns the name of a vector of integers, such as a shape. The graph computes a vector
// that depends on the batch.
func (b *builder) vector(dims []dim) string {
	var vs []int
	depends := false
	for _, d := range dims {
		vs = append(vs, d.plus)
		depends = depends || d.each != 0
	}
	if !depends {
		return b.list(vs...)
	}
	key := fmt.Sprint("vector", dims)
	if name, ok := b.made[key]; ok {
		return name
	}
	var parts []string
	for _, d := range dims {
		if d.each == 0 {
			parts = append(parts, b.list(d.plus))
			continue
		}
		name := b.add("Unsqueeze", []string{b.batchSize(), b.list(0)})
		if d.each != 1 {
			name = b.add("Mul", []string{name, b.list(d.each)})
		}
		if d.plus != 0 {
			name = b.add("Add", []string{name, b.list(d.plus)})
		}
		parts = append(parts, name)
	}
	name := parts[0]
	if len(parts) > 1 {
		name = b.add("Concat", parts, intOf("axis", 0))
	}
	b.made[key] = name
	return name
}

// reshape changes a result's shape. A single size that depends on the batch is -1: runtimes infer
// it.
func (b *builder) reshape(name string, shape []dim) string {
	var vs []int
	depends := 0
	for _, d := range shape {
		if d.each != 0 {
			depends++
			d.plus = -1
		}
		vs = append(vs, d.plus)
	}
	if depends < 2 {
		return b.add("Reshape", []string{name, b.list(vs...)})
	}
	return b.add("Reshape", []string{name, b.vector(shape)})
}

// result stores the result of the operation in progress.
func (b *builder) result(name string, lies layout) {
	y := b.node().Output
	b.of[y] = &value{shape: b.shapes[y], lies: lies, names: map[layout]string{lies: name}}
}

// value returns the value of operand x: a result, the batch's values or a constant of the program.
func (b *builder) value(x *nn.Tensor) *value {
	if v, ok := b.of[x]; ok {
		return v
	}
	p := b.passes[0]
	v := &value{shape: b.shapes[x], names: map[layout]string{}}
	if p.views(x) {
		v.names[asHere] = b.reshape(b.asHere(b.value(p.batch.Values)), v.shape)
	} else {
		v.names[asHere] = b.floats("const", x, x.Shape, x.Data)
	}
	b.of[x] = v
	return v
}

// input returns input k of the operation in progress.
func (b *builder) input(k int) *value { return b.value(b.node().Inputs[k]) }

// asHere returns the name of v in ringo's layout: channels last, rows pixel by pixel.
func (b *builder) asHere(v *value) string {
	if name, ok := v.names[asHere]; ok {
		return name
	}
	name := v.names[v.lies]
	if v.lies == flatChannels {
		name = b.reshape(name, []dim{v.image[0], v.image[3], v.image[1], v.image[2]})
	}
	name = b.add("Transpose", []string{name}, intsOf("perm", 0, 2, 3, 1))
	if v.lies == flatChannels {
		name = b.reshape(name, v.shape)
	}
	v.names[asHere] = name
	return name
}

// localInput returns the name of input k of the operation in progress, in ringo's layout.
func (b *builder) localInput(k int) string { return b.asHere(b.input(k)) }

// channelsFirst returns the name of v, a value of images, in ONNX's layout.
func (b *builder) channelsFirst(v *value) string {
	if name, ok := v.names[channelsFirst]; ok {
		return name
	}
	name := b.add("Transpose", []string{v.names[asHere]}, intsOf("perm", 0, 3, 1, 2))
	v.names[channelsFirst] = name
	return name
}

// alike returns the present operation's inputs in one layout: that of images if an input has it.
func (b *builder) alike() (names []string, lies layout) {
	var vs []*value
	images := true
	for k, x := range b.node().Inputs {
		if x == nil {
			continue
		}
		v := b.input(k)
		vs = append(vs, v)
		images = images && len(v.shape) == 4
		if v.lies == channelsFirst {
			lies = channelsFirst
		}
	}
	if !images {
		lies = asHere
	}
	for _, v := range vs {
		if lies == channelsFirst {
			names = append(names, b.channelsFirst(v))
		} else {
			names = append(names, b.asHere(v))
		}
	}
	return names, lies
}

// axis returns the axis in layout l for an axis of ringo's layout.
func (l layout) axis(a int) int {
	if l == channelsFirst {
		return [...]int{0, 2, 3, 1}[a]
	}
	return a
}
