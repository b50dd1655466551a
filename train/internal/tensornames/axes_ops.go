package tensornames

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/nn"
)

// dense names a dense layer's weight, [out, in], and bias.
func (t *tracer) dense(n *nn.Node) {
	w := n.Params[0]
	in, out := t.row(n.Inputs[0]), &axis{size: w.Shape[0]}
	if in == nil || in.size != w.Shape[1] {
		t.lose(n)
		in = nil
	}
	t.name(w.Name, []*axis{out, in})
	if b := n.Params[1]; b != nil {
		t.name(b.Name, []*axis{out})
	}
	t.last[n.Output] = out
}

// conv names the output channels of a convolution, which are classes in a model without dense
// layers. Its inputs are pixels or channels without names.
func (t *tracer) conv(n *nn.Node) {
	t.lose(n)
	w := n.Params[0]
	out := &axis{size: w.Shape[3]}
	t.name(w.Name, []*axis{nil, nil, nil, out})
	if b := n.Params[1]; b != nil {
		t.name(b.Name, []*axis{out})
	}
	t.last[n.Output] = out
}

// norm names the scale, shift and running statistics of a normalisation by the last axis.
func (t *tracer) norm(n *nn.Node) {
	a := t.row(n.Inputs[0])
	if a == nil {
		t.lose(n)
		return
	}
	for _, p := range n.Params {
		if p != nil && len(p.Data) == a.size {
			t.name(p.Name, []*axis{a})
		}
	}
	for _, b := range n.Buffers {
		if len(b.Data) == a.size {
			t.name(b.Name, []*axis{a})
		}
	}
	t.last[n.Output] = a
	if flat := t.flat[n.Inputs[0]]; flat != nil {
		t.flat[n.Output] = flat
	}
}

// lookUp names the rows of an embedding and its vectors. Rows are words or categories; hashed
// categories have no names, and the same rows in any run with as many rows.
func (t *tracer) lookUp(n *nn.Node) {
	name, dim := "", 0
	if n.Table != nil {
		name, dim = n.Table.Name, n.Table.Dim
	} else {
		name, dim = n.Params[0].Name, n.Params[0].Shape[1]
	}
	if len(t.n.Words) > 0 && len(n.IDs) > 0 && !slices.ContainsFunc(n.IDs, func(id int32) bool { return int(id) != len(t.n.Words)-1 }) {
		t.name(name, []*axis{{size: len(t.n.Words), Labels: t.n.Words}, nil})
		return
	}
	if len(t.n.IDs) == 0 {
		return
	}
	var vectors, rows []Label
	for i, id := range n.IDs {
		k := slices.IndexFunc(t.n.IDs, func(c IDColumn) bool { return c.First == int(id) })
		if t.n.IDs[0].Rows == nil { // hashed: all have the same id
			k = i
		}
		if k < 0 || k >= len(t.n.IDs) {
			if t.Opaque == "" {
				t.Opaque = n.Op
			}
			return
		}
		for at := range dim {
			vectors = append(vectors, Label{Kind: ofColumn, Name: t.n.IDs[k].Name, At: at})
		}
	}
	for _, c := range t.n.IDs {
		rows = append(rows, c.Rows...)
	}
	of := []*axis{nil, nil}
	if rows != nil {
		of[0] = &axis{size: len(rows), Labels: rows}
	}
	t.name(name, of)
	t.flat[n.Output] = append(vectors, t.rest(n)...)
}

// bags names the sums of the rows of slots, or the steps of a sequence, by the slot. The table's
// rows belong to keys, made of a value and its column's table name.
func (t *tracer) bags(n *nn.Node) {
	first, slots, steps := int(n.Attrs["first"]), int(n.Attrs["slots"]), int(n.Attrs["steps"])
	var out []Label
	for s := first; s < first+slots && s < len(t.n.Slots); s++ {
		for i := range max(1, steps) * n.Table.Dim {
			out = append(out, Label{Kind: ofSlot, Name: t.n.Slots[s], At: i % n.Table.Dim})
		}
	}
	if len(out) > 0 {
		t.flat[n.Output] = append(out, t.rest(n)...)
	}
}

// rest names the values of a look-up after its rows.
func (t *tracer) rest(n *nn.Node) []Label {
	if len(n.Inputs) == 0 || n.Inputs[0] == nil {
		return nil
	}
	return t.named(n.Inputs[0])
}

// named returns the labels of a tensor's values; without names they are units of the layer.
func (t *tracer) named(x *nn.Tensor) []Label {
	if flat := t.flat[x]; flat != nil {
		return flat
	}
	a := t.last[x]
	if a == nil {
		a = &axis{size: x.Len()}
	}
	if a = a.root(); a.Labels == nil {
		for i := range a.size {
			a.Labels = append(a.Labels, Label{Kind: ofUnit, Name: fmt.Sprintf("unit of layer %d", len(t.of)), At: i})
		}
	}
	var out []Label
	for len(out) < x.Len() {
		out = append(out, a.Labels...)
	}
	return out
}

// binary names the result of an operation of two tensors, possibly broadcast:
//
//   - Unnamed tensors have the same places of layers, as in a residual connection.
//   - A layer's output takes the names of the values combined with it element by element.
//   - Equal names remain. Different names are joined, so that another model finds the result only
//     where the same two names meet.
func (t *tracer) binary(n *nn.Node) {
	a, b := n.Inputs[0], n.Inputs[1]
	if t.flat[a] == nil && t.flat[b] == nil {
		x, y := t.last[a], t.last[b]
		if x != nil && y != nil && x.size == y.size {
			t.unite(x, y)
		}
		if x == nil || y != nil && y.size > x.size {
			x = y
		}
		t.last[n.Output] = x
		return
	}
	for _, pair := range [][2]*nn.Tensor{{a, b}, {b, a}} {
		x, y := pair[0], pair[1]
		if t.flat[x] == nil || t.flat[y] != nil {
			continue
		}
		row, unit := t.row(x), t.last[y]
		if y.Shape[len(y.Shape)-1] == 1 && x.Len() == n.Output.Len() { // each value of x has a factor
			t.flat[n.Output] = t.flat[x]
			return
		}
		if row == nil || unit == nil || unit.size != row.size || x.Len() != n.Output.Len() {
			t.lose(n)
			return
		}
		t.unite(unit, row)
		t.flat[n.Output] = t.flat[x]
		return
	}
	x, y := t.flat[a], t.flat[b]
	if len(x) != len(y) || len(x) != n.Output.Len() {
		t.lose(n)
		return
	}
	out := slices.Clone(x)
	for i := range out {
		if x[i] != y[i] {
			out[i] = Label{Kind: ofUnit, Name: fmt.Sprintf("%s(%q, %q)", n.Op, fmt.Sprintf("%#v", x[i]), fmt.Sprintf("%#v", y[i]))}
		}
	}
	t.flat[n.Output] = out
}

// concat joins the names of the inputs. Unnamed inputs next to named ones get the names of their
// layer's units, and so keep their place within the layer.
func (t *tracer) concat(n *nn.Node) {
	if !slices.ContainsFunc(n.Inputs, func(x *nn.Tensor) bool { return t.flat[x] != nil }) {
		return
	}
	ax := n.Axes[0]
	rows := 1
	for _, d := range n.Output.Shape[:ax] {
		rows *= d
	}
	out := make([]Label, 0, n.Output.Len())
	for r := range rows {
		for _, x := range n.Inputs {
			each := x.Len() / rows
			out = append(out, t.named(x)[r*each:][:each]...)
		}
	}
	t.flat[n.Output] = out
}

// reduce names sums: a sum of equal names has that name, such as a sum over the steps of a
// sequence. A sum of different names, such as over all slots, does not depend on their order and
// has no name.
func (t *tracer) reduce(n *nn.Node) {
	x := n.Inputs[0]
	flat := t.flat[x]
	if flat == nil {
		if k := len(x.Shape) - 1; !slices.Contains(n.Axes, k) {
			t.last[n.Output] = t.last[x]
		}
		return
	}
	out := make([]Label, n.Output.Len())
	seen := make([]bool, len(out))
	mixed := false
	for i, l := range flat {
		to, rest, size := 0, i, 1
		for k := len(x.Shape) - 1; k >= 0; k-- {
			at := rest % x.Shape[k]
			rest /= x.Shape[k]
			if !slices.Contains(n.Axes, k) {
				to += at * size
				size *= x.Shape[k]
			}
		}
		mixed = mixed || seen[to] && out[to] != l
		out[to], seen[to] = l, true
	}
	if !mixed {
		t.flat[n.Output] = out
	}
}

// pass gives a result of as many values the names of the input.
func (t *tracer) pass(n *nn.Node) {
	x, y := n.Inputs[0], n.Output
	if flat := t.flat[x]; flat != nil {
		switch {
		case x.Len() == y.Len():
			t.flat[y] = flat
		case n.Op == "broadcast" && len(x.Shape) > 0 && x.Shape[len(x.Shape)-1] == y.Shape[len(y.Shape)-1] && t.row(x) != nil:
			for len(t.flat[y]) < y.Len() {
				t.flat[y] = append(t.flat[y], t.row(x).Labels...)
			}
		default:
			t.lose(n)
		}
		return
	}
	if a := t.last[x]; a != nil && len(y.Shape) > 0 && y.Shape[len(y.Shape)-1] == a.size {
		t.last[y] = a
	}
}
