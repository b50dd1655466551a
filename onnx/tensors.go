package onnx

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/nn"
)

var minusInfinity = float32(math.Inf(-1))

// attentionScale is the factor of scores.
func attentionScale(dim int) float32 { return float32(1 / math.Sqrt(float64(dim))) }

// same passes on the operand of an operation that has no effect outside training.
func (b *builder) same() error {
	v := *b.input(0)
	b.of[b.node().Output] = &v
	return nil
}

// eachValue applies f, an elementwise operation, in the layout of the operand.
func (b *builder) eachValue(f func(name string) string) {
	v := b.input(0)
	b.of[b.node().Output] = &value{shape: v.shape, image: v.image, lies: v.lies, names: map[layout]string{v.lies: f(v.names[v.lies])}}
}

// activation adds an elementwise operation: images and their flattened rows keep their layout.
func (b *builder) activation() error {
	b.eachValue(func(name string) string { return b.activate(name, b.node().Activation) })
	return nil
}

func (b *builder) scale() error {
	b.eachValue(func(name string) string {
		return b.add("Mul", []string{name, b.scalar(float32(b.node().Attrs["s"]))})
	})
	return nil
}

// arithmetic adds an operation on two tensors, with the rules of NumPy for broadcasting, which nn
// and ONNX share.
func (b *builder) arithmetic() error {
	op := map[string]string{"add": "Add", "subtract": "Sub", "multiply": "Mul"}[b.node().Op]
	names, lies := b.alike()
	b.result(b.add(op, names), lies)
	return nil
}

func (b *builder) concat() error {
	names, lies := b.alike()
	b.result(b.add("Concat", names, intOf("axis", lies.axis(b.node().Axes[0]))), lies)
	return nil
}

// slice adds a Slice whose bounds may depend on the batch size, as for an LSTM's last time step.
func (b *builder) slice() error {
	lo, err := b.attr(b.i, "lo")
	if err != nil {
		return err
	}
	hi, err := b.attr(b.i, "hi")
	if err != nil {
		return err
	}
	names, lies := b.alike()
	b.result(b.add("Slice", []string{names[0], b.vector([]dim{lo}), b.vector([]dim{hi}), b.list(lies.axis(b.node().Axes[0]))}), lies)
	return nil
}

// reshapes changes a shape. Flattened images stay in ONNX's order: the dense layer after them has
// reordered weights.
func (b *builder) reshapes() error {
	x, shape := b.input(0), b.shapes[b.node().Output]
	if len(x.shape) == 4 && x.lies == channelsFirst && len(shape) == 2 && shape[0] == x.shape[0] {
		name := b.add("Flatten", []string{x.names[channelsFirst]}, intOf("axis", 1))
		lies := flatChannels
		if x.shape[3] == fixed(1) || x.shape[1] == fixed(1) && x.shape[2] == fixed(1) {
			lies = asHere
		}
		b.result(name, lies)
		b.of[b.node().Output].image = x.shape
		return nil
	}
	b.result(b.reshape(b.asHere(x), shape), asHere)
	return nil
}

func (b *builder) broadcast() error {
	b.result(b.add("Expand", []string{b.localInput(0), b.vector(b.shapes[b.node().Output])}), asHere)
	return nil
}

func (b *builder) parameter() error {
	b.result(b.param(b.node().Params[0]), asHere)
	return nil
}

func (b *builder) transpose() error {
	b.result(b.add("Transpose", []string{b.localInput(0)}, intsOf("perm", b.node().Axes...)), asHere)
	return nil
}

// reduce adds a sum or a mean over axes. In nn a result without axes has one of length 1.
func (b *builder) reduce() error {
	n := b.node()
	name := ""
	if n.Op == "sum" {
		name = b.add("ReduceSum", []string{b.localInput(0), b.list(n.Axes...)}, intOf("keepdims", 0))
	} else {
		name = b.add("ReduceMean", []string{b.localInput(0)}, intsOf("axes", n.Axes...), intOf("keepdims", 0))
	}
	if len(n.Axes) == len(n.Inputs[0].Shape) {
		name = b.reshape(name, []dim{fixed(1)})
	}
	b.result(name, asHere)
	return nil
}

func (b *builder) softmax() error {
	op := map[string]string{"softmax": "Softmax", "log-softmax": "LogSoftmax"}[b.node().Op]
	b.result(b.add(op, []string{b.localInput(0)}, intOf("axis", -1)), asHere)
	return nil
}

// normalize divides by lengths bounded from below, as in nn.
func (b *builder) normalize() error {
	length := b.add("ReduceL2", []string{b.localInput(0)}, intsOf("axes", -1), intOf("keepdims", 1))
	b.result(b.add("Div", []string{b.localInput(0), b.add("Max", []string{length, b.scalar(1e-12)})}), asHere)
	return nil
}

// rowDot adds a dot product for each row; for a single row, nn's result is [1].
func (b *builder) rowDot() error {
	name := b.add("ReduceSum", []string{b.add("Mul", []string{b.localInput(0), b.localInput(1)}), b.list(-1)}, intOf("keepdims", 0))
	if len(b.input(0).shape) == 1 {
		name = b.reshape(name, []dim{fixed(1)})
	}
	b.result(name, asHere)
	return nil
}

// matMul transposes the factors as ONNX requires. The last two axes are the matrices'.
func (b *builder) matMul() error {
	n := b.node()
	var names []string
	for k, attr := range []string{"transposea", "transposeb"} {
		name := b.localInput(k)
		if n.Attrs[attr] != 0 {
			name = b.add("Transpose", []string{name}, intsOf("perm", lastTwo(len(b.input(k).shape))...))
		}
		names = append(names, name)
	}
	b.result(b.add("MatMul", names), asHere)
	return nil
}

// lastTwo is the order of axes with the last two exchanged.
func lastTwo(rank int) []int {
	var perm []int
	for i := range rank {
		perm = append(perm, i)
	}
	perm[rank-2], perm[rank-1] = rank-1, rank-2
	return perm
}

// gather selects rows of a tensor, and embedding rows of a parameter.
func (b *builder) gather() error { return b.look(b.localInput(0)) }

func (b *builder) embedding() error { return b.look(b.param(b.node().Params[0])) }

// look selects the ids' rows: [n, each, dim] or [each, n, dim] in ONNX, [ids, dim] in nn.
func (b *builder) look(rows string) error {
	name := b.add("Gather", []string{rows, b.chosen(b.ids[b.i])}, intOf("axis", 0))
	b.result(b.reshape(name, b.shapes[b.node().Output]), asHere)
	return nil
}

// embeddingTable selects rows of a table and concatenates them and other values, if any. If the
// table's rows are elsewhere, the rows are an input of the graph.
func (b *builder) embeddingTable() error {
	n := b.node()
	shape := b.rowsShape(n)
	name := ""
	if t := n.Table; b.rows[b.i] == "" {
		table := b.floats(b.weightName(t.Name), t, []int{t.Rows, t.Dim}, t.Data)
		name = b.add("Gather", []string{table, b.chosen(b.ids[b.i])}, intOf("axis", 0))
		name = b.reshape(name, shape)
	} else {
		name = b.rows[b.i]
	}
	if n.Inputs[0] != nil {
		name = b.add("Concat", []string{name, b.localInput(0)}, intOf("axis", 1))
	}
	b.result(name, asHere)
	return nil
}

// rowsShape is the shape of the concatenated rows of a table in an operation.
func (b *builder) rowsShape(n nn.Node) []dim {
	shape := b.shapes[n.Output]
	width := shape[1].plus
	if n.Inputs[0] != nil {
		width -= b.shapes[n.Inputs[0]][1].plus
	}
	return []dim{shape[0], fixed(width)}
}

// chosen returns the ids of a lookup: [n, each], or [each, n] with the steps first.
func (b *builder) chosen(l *lookup) string {
	if l.whole != nil {
		var vs []int
		for _, id := range l.whole {
			vs = append(vs, int(id))
		}
		return b.list(vs...)
	}
	key := fmt.Sprint("ids", *l)
	if name, ok := b.made[key]; ok {
		return name
	}
	name := ""
	if l.columns[0].of >= 0 {
		name = b.taken(l)
	} else {
		name = b.counted(l)
	}
	if l.stepsFirst {
		name = b.add("Transpose", []string{name}, intsOf("perm", 1, 0))
	}
	b.made[key] = name
	return name
}

// taken returns the lookup's columns of the batch's ids, [n, each].
func (b *builder) taken(l *lookup) string {
	var vs []int
	all := len(l.columns) == b.spec.IDs
	for i, c := range l.columns {
		all, vs = all && c.of == i, append(vs, c.of)
	}
	if all {
		return b.idsFrom
	}
	return b.add("Gather", []string{b.idsFrom, b.list(vs...)}, intOf("axis", 1))
}

// counted returns computed ids, [n, each], such as the positions of a sentence's words.
func (b *builder) counted(l *lookup) string {
	var by, start []dim
	counts := false
	for _, c := range l.columns {
		by, start = append(by, fixed(c.bySample)), append(start, dim{each: c.byBatch, plus: c.value})
		counts = counts || c.bySample != 0
	}
	row, each := b.vector(start), fixed(len(l.columns))
	if !counts {
		return b.add("Expand", []string{row, b.vector([]dim{batch, each})})
	}
	sample := b.add("Range", []string{b.ints(nil, 0), b.batchSize(), b.ints(nil, 1)})
	column := b.add("Unsqueeze", []string{sample, b.list(1)})
	return b.add("Add", []string{b.add("Mul", []string{column, b.vector(by)}), row})
}
