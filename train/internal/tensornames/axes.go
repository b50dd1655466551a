package tensornames

import (
	"slices"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// A trace of the forward pass of one sample follows the names of a run's data through the model:
//
//   - Each value of a sample has a label, such as column "area". A look-up labels the values of a
//     category's vector or a slot's sum with the column and a number.
//   - Operations such as reshape and concat move labels along with values.
//   - A dense layer ends labels: the weight has the labels of the inputs along one axis, and new,
//     unnamed places along the other, shared by the bias and the output.
//   - Unnamed places added to or multiplied by named ones, as in a cross layer or a residual
//     connection, mean the same things and get the same labels.
//   - The places of the last layer get the names of classes, words or the target.
//   - Other unnamed places are units inside the model, matched by number.
//
// An unknown operation ends labels too: a run with other names than the checkpoint's is then
// refused.
//
// Both models, the checkpoint's and the new one, are built as outlines without values and traced
// alike. Cost: a label for each value of a sample and each layer's place, and milliseconds.

// axis is one axis of a tensor. Tensors share an axis if its places (indices) have the same meaning
// in both.
type axis struct {
	size   int
	Labels []Label // nil for an axis inside the model, whose places count by number
	same   *axis   // the axis that replaces this one
}

// root returns the representative of all axes united with a.
func (a *axis) root() *axis {
	for a.same != nil {
		a = a.same
	}
	return a
}

// Axes has the meaning, by name, of each place along the axes of a model's tensors.
type Axes struct {
	of map[string][]*axis // axes by parameter, table and buffer; nil along an unnamed axis
	// Slots has the slots of each table that does not serve all slots.
	Slots map[string][]string
	// Opaque is the first operation that ends names; "" without one.
	Opaque string
	// Head names the tensors of the last layer; it is empty if the outputs are not those of a
	// layer. ends reports whether the layer's places have the names of outputs.
	Head []string
	Ends bool
}

// Labels returns the labels of a tensor's places along each axis, nil along unnamed ones.
func (a Axes) Labels(name string) (out [][]Label) {
	for _, x := range a.of[name] {
		if x == nil {
			out = append(out, nil)
		} else {
			out = append(out, x.root().Labels)
		}
	}
	return out
}

type tracer struct {
	Axes
	n    Names
	b    model.Batch
	flat map[*nn.Tensor][]Label // labels of the values of one sample; absent if unnamed
	last map[*nn.Tensor]*axis   // last axes of outputs of layers
}

// Trace follows the names of data through a model built for the data. Ids of the sample are the
// first row of their column, or the last word, so that a look-up shows whether ids are columns,
// tokens or the model's own, such as positions.
func Trace(spec model.Spec, o model.Options, n Names) (Axes, error) {
	ps := nn.NewOutline()
	m := spec.Build(ps, o)
	t := &tracer{Axes: Axes{of: map[string][]*axis{}, Slots: map[string][]string{}}, n: n, b: spec.Sample(1),
		flat: map[*nn.Tensor][]Label{}, last: map[*nn.Tensor]*axis{}}
	for i := range t.b.IDs {
		switch { // the id identifies the look-up of a column, or of a token
		case i < len(n.IDs):
			t.b.IDs[i] = int32(n.IDs[i].First)
		case len(n.Words) > 0:
			t.b.IDs[i] = int32(len(n.Words) - 1)
		}
	}
	if v := t.b.Values; v != nil && v.Len() == len(n.Values) {
		t.flat[v] = n.Values
	}
	var out model.Outputs
	nodes, err := nn.Trace(func(tape *nn.Tape) { out = m.Forward(tape, t.b) })
	if err != nil {
		return Axes{}, err
	}
	for i := range nodes {
		t.node(&nodes[i])
	}
	for _, y := range out.List() {
		t.nameHead(t.last[y])
	}
	for _, table := range ps.Tables() {
		t.nameTable(table)
	}
	return t.Axes, nil
}

// nameHead gives the last layer the names of outputs.
func (t *tracer) nameHead(a *axis) {
	if a == nil {
		return
	}
	if a = a.root(); a.Labels == nil && a.size == len(t.n.Outputs) {
		a.Labels = t.n.Outputs
	}
	t.Ends = slices.Equal(a.Labels, t.n.Outputs)
	for name, of := range t.of {
		if slices.ContainsFunc(of, func(x *axis) bool { return x != nil && x.root() == a }) {
			t.Head = append(t.Head, name)
		}
	}
	slices.Sort(t.Head)
}

func (t *tracer) nameTable(table *nn.Table) {
	var of []string
	for i, most := range table.Slots {
		if most != 0 && i < len(t.n.Slots) {
			of = append(of, t.n.Slots[i])
		}
	}
	if len(of) > 0 && len(of) < len(t.n.Slots) {
		t.Slots[table.Name] = of
	}
}

// node passes the names along axes, such as those of columns and classes, from an operation's
// inputs to its result and its parameters. The results of other operations, such as matmul and
// attention, have no names.
func (t *tracer) node(n *nn.Node) {
	switch n.Op {
	case "dense":
		t.dense(n)
	case "conv2d":
		t.conv(n)
	case "embedding", "embeddingtable":
		t.lookUp(n)
	case "embeddingbag":
		t.bags(n)
	case "batchnorm", "layernorm", "groupnorm":
		t.norm(n)
	case "parameter":
		p := n.Params[0]
		of := make([]*axis, len(p.Shape))
		if k := len(of) - 1; k >= 0 {
			of[k] = &axis{size: p.Shape[k]}
			t.last[n.Output] = of[k]
		}
		t.name(p.Name, of)
	case "add", "subtract", "multiply":
		t.binary(n)
	case "concat":
		t.concat(n)
	case "sum", "mean":
		t.reduce(n)
	case "dot product by rows":
		if !slices.Equal(t.flat[n.Inputs[0]], t.flat[n.Inputs[1]]) {
			t.lose(n)
		}
	case "dropout", "activate", "detach", "scale", "reshape", "softmax", "log-softmax", "normalise", "broadcast":
		t.pass(n)
	case "maxpool", "avgpool", "globalavgpool", "globalmaxpool", "subsamplepad":
		t.pass(n)
	default:
		t.lose(n)
	}
}

// lose notes the first operation that ends names. The result is unnamed, which is harmless while
// the names of both runs are equal.
func (t *tracer) lose(n *nn.Node) {
	for _, x := range n.Inputs {
		if x != nil && t.flat[x] != nil && t.Opaque == "" {
			t.Opaque = n.Op
			if n.Name != "" {
				t.Opaque = n.Name
			}
		}
	}
}

// name gives a tensor its axes. The axes of two uses of a tensor are united.
func (t *tracer) name(of string, as []*axis) {
	was := t.of[of]
	if was == nil {
		t.of[of] = as
		return
	}
	for i, a := range as {
		if was[i] == nil {
			was[i] = a
		} else if a != nil {
			t.unite(was[i], a)
		}
	}
}

// unite makes two axes one. No name can be followed if their labels differ.
func (t *tracer) unite(a, b *axis) {
	a, b = a.root(), b.root()
	switch {
	case a == b:
	case a.Labels == nil:
		a.same = b
	case b.Labels == nil:
		b.same = a
	case !slices.Equal(a.Labels, b.Labels) && t.Opaque == "":
		t.Opaque = "a tensor that is used for two kinds of inputs"
	}
}

// row returns the last axis of a tensor with equal labels in all rows, such as the steps of a
// sequence; nil if labels differ, or if the tensor is unnamed and not a layer's output.
func (t *tracer) row(x *nn.Tensor) *axis {
	flat := t.flat[x]
	if flat == nil {
		return t.last[x]
	}
	width := x.Shape[len(x.Shape)-1]
	for at := width; at < len(flat); at += width {
		if !slices.Equal(flat[:width], flat[at:][:width]) {
			return nil
		}
	}
	return &axis{size: width, Labels: flat[:width]}
}
