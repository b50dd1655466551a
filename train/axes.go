package train

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// axis is one axis of a tensor. Tensors that count the same things along an axis share it.
type axis struct {
	size   int
	labels []label // nil: it is inside the model, and its places count by their number
	same   *axis   // the axis that it turned out to be
}

func (a *axis) root() *axis {
	for a.same != nil {
		a = a.same
	}
	return a
}

// axes says what the places of a model's tensors stand for.
type axes struct {
	of map[string][]*axis // by parameter, table and buffer; nil along an axis that no operation names
	// slots are those that a table is looked up for, if it is one of several.
	slots map[string][]string
	// opaque is the first operation behind which names are lost, "" if there is none.
	opaque string
	// head are the tensors of the last layer, by name. There are none if the outputs are not a layer's.
	// ends reports whether its places have the outputs' names.
	head []string
	ends bool
}

// labels returns what the places of a tensor stand for along each axis, nil along unnamed ones.
func (a axes) labels(name string) (out [][]label) {
	for _, x := range a.of[name] {
		if x == nil {
			out = append(out, nil)
		} else {
			out = append(out, x.root().labels)
		}
	}
	return out
}

// tracer follows names through the operations of a model.
type tracer struct {
	axes
	n    names
	b    model.Batch
	flat map[*nn.Tensor][]label // what each value of one sample stands for; absent: unnamed
	last map[*nn.Tensor]*axis   // of tensors that a layer makes
}

// traceNames follows the names of data through a model that is built for them.
func traceNames(spec model.Spec, o model.Options, n names) (axes, error) {
	ps := nn.NewOutline()
	m := spec.Build(ps, o)
	t := &tracer{axes: axes{of: map[string][]*axis{}, slots: map[string][]string{}}, n: n, b: spec.Sample(1),
		flat: map[*nn.Tensor][]label{}, last: map[*nn.Tensor]*axis{}}
	for i := range t.b.IDs {
		switch { // by its id the look-up of a column is known, and that of a token
		case i < len(n.ids):
			t.b.IDs[i] = int32(n.ids[i].first)
		case len(n.words) > 0:
			t.b.IDs[i] = int32(len(n.words) - 1)
		}
	}
	if v := t.b.Values; v != nil && v.Len() == len(n.values) {
		t.flat[v] = n.values
	}
	var out model.Outputs
	nodes, err := nn.Trace(func(tape *nn.Tape) { out = m.Forward(tape, t.b) })
	if err != nil {
		return axes{}, err
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
	return t.axes, nil
}

// nameHead gives the last layer the names of outputs.
func (t *tracer) nameHead(a *axis) {
	if a == nil {
		return
	}
	if a = a.root(); a.labels == nil && a.size == len(t.n.outputs) {
		a.labels = t.n.outputs
	}
	t.ends = slices.Equal(a.labels, t.n.outputs)
	for name, of := range t.of {
		if slices.ContainsFunc(of, func(x *axis) bool { return x != nil && x.root() == a }) {
			t.head = append(t.head, name)
		}
	}
	slices.Sort(t.head)
}

// nameTable notes which slots a table is for.
func (t *tracer) nameTable(table *nn.Table) {
	var of []string
	for i, most := range table.Slots {
		if most != 0 && i < len(t.n.slots) {
			of = append(of, t.n.slots[i])
		}
	}
	if len(of) > 0 && len(of) < len(t.n.slots) {
		t.slots[table.Name] = of
	}
}

// node passes names from an operation's inputs to its result and its parameters.
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

// lose notes that names are lost, if there were some.
func (t *tracer) lose(n *nn.Node) {
	for _, x := range n.Inputs {
		if x != nil && t.flat[x] != nil && t.opaque == "" {
			t.opaque = n.Op
			if n.Name != "" {
				t.opaque = n.Name
			}
		}
	}
}

// name gives a tensor its axes. One that has some already is used twice: both uses say the same.
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

// unite makes two axes one. Axes with different labels are a model's that no name can follow.
func (t *tracer) unite(a, b *axis) {
	a, b = a.root(), b.root()
	switch {
	case a == b:
	case a.labels == nil:
		a.same = b
	case b.labels == nil:
		b.same = a
	case !slices.Equal(a.labels, b.labels) && t.opaque == "":
		t.opaque = "a tensor that is used for two kinds of inputs"
	}
}

// row is the last axis of a tensor of names, the same in every row; nil: there is none.
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
	return &axis{size: width, labels: flat[:width]}
}

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

// norm names what a normalisation has of each place of the last axis.
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

// lookUp names the rows of an embedding, and the vectors that it gives.
func (t *tracer) lookUp(n *nn.Node) {
	name, dim := "", 0
	if n.Table != nil {
		name, dim = n.Table.Name, n.Table.Dim
	} else {
		name, dim = n.Params[0].Name, n.Params[0].Shape[1]
	}
	if len(t.n.words) > 0 && len(n.IDs) > 0 && !slices.ContainsFunc(n.IDs, func(id int32) bool { return int(id) != len(t.n.words)-1 }) {
		t.name(name, []*axis{{size: len(t.n.words), labels: t.n.words}, nil})
		return
	}
	if len(t.n.ids) == 0 {
		return
	}
	var vectors, rows []label
	for i, id := range n.IDs {
		k := slices.IndexFunc(t.n.ids, func(c idColumn) bool { return c.first == int(id) })
		if t.n.ids[0].rows == nil { // hashed: all have the same id here
			k = i
		}
		if k < 0 || k >= len(t.n.ids) {
			if t.opaque == "" {
				t.opaque = n.Op
			}
			return
		}
		for at := range dim {
			vectors = append(vectors, label{kind: ofColumn, name: t.n.ids[k].name, at: at})
		}
	}
	for _, c := range t.n.ids {
		rows = append(rows, c.rows...)
	}
	of := []*axis{nil, nil}
	if rows != nil {
		of[0] = &axis{size: len(rows), labels: rows}
	}
	t.name(name, of)
	t.flat[n.Output] = append(vectors, t.rest(n)...)
}

// bags names the sums of the rows of slots.
func (t *tracer) bags(n *nn.Node) {
	first, slots, steps := int(n.Attrs["first"]), int(n.Attrs["slots"]), int(n.Attrs["steps"])
	var out []label
	for s := first; s < first+slots && s < len(t.n.slots); s++ {
		for i := range max(1, steps) * n.Table.Dim {
			out = append(out, label{kind: ofSlot, name: t.n.slots[s], at: i % n.Table.Dim})
		}
	}
	if len(out) > 0 {
		t.flat[n.Output] = append(out, t.rest(n)...)
	}
}

// rest names what is beside the rows of a look-up.
func (t *tracer) rest(n *nn.Node) []label {
	if len(n.Inputs) == 0 || n.Inputs[0] == nil {
		return nil
	}
	return t.named(n.Inputs[0])
}

// named are the labels of a tensor's values: those of an unnamed one are its layer's units.
func (t *tracer) named(x *nn.Tensor) []label {
	if flat := t.flat[x]; flat != nil {
		return flat
	}
	a := t.last[x]
	if a == nil {
		a = &axis{size: x.Len()}
	}
	if a = a.root(); a.labels == nil {
		for i := range a.size {
			a.labels = append(a.labels, label{kind: ofUnit, name: fmt.Sprintf("unit of layer %d", len(t.of)), at: i})
		}
	}
	var out []label
	for len(out) < x.Len() {
		out = append(out, a.labels...)
	}
	return out
}

// binary names the results of an operation of two tensors, one of which may be broadcast. A layer's output
// that is combined with named values one by one has their names.
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
		if y.Shape[len(y.Shape)-1] == 1 && x.Len() == n.Output.Len() { // each value of x with another factor
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
			out[i] = label{kind: ofUnit, name: fmt.Sprintf("%s(%q, %q)", n.Op, fmt.Sprintf("%#v", x[i]), fmt.Sprintf("%#v", y[i]))}
		}
	}
	t.flat[n.Output] = out
}

// concat puts names one after the other as their values.
func (t *tracer) concat(n *nn.Node) {
	if !slices.ContainsFunc(n.Inputs, func(x *nn.Tensor) bool { return t.flat[x] != nil }) {
		return
	}
	ax := n.Axes[0]
	rows := 1
	for _, d := range n.Output.Shape[:ax] {
		rows *= d
	}
	out := make([]label, 0, n.Output.Len())
	for r := range rows {
		for _, x := range n.Inputs {
			each := x.Len() / rows
			out = append(out, t.named(x)[r*each:][:each]...)
		}
	}
	t.flat[n.Output] = out
}

// reduce names sums: one of equal names has that name, and one of different names has none.
func (t *tracer) reduce(n *nn.Node) {
	x := n.Inputs[0]
	flat := t.flat[x]
	if flat == nil {
		if k := len(x.Shape) - 1; !slices.Contains(n.Axes, k) {
			t.last[n.Output] = t.last[x]
		}
		return
	}
	out := make([]label, n.Output.Len())
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

// pass gives a result the names of the input, of as many values.
func (t *tracer) pass(n *nn.Node) {
	x, y := n.Inputs[0], n.Output
	if flat := t.flat[x]; flat != nil {
		switch {
		case x.Len() == y.Len():
			t.flat[y] = flat
		case n.Op == "broadcast" && len(x.Shape) > 0 && x.Shape[len(x.Shape)-1] == y.Shape[len(y.Shape)-1] && t.row(x) != nil:
			for len(t.flat[y]) < y.Len() {
				t.flat[y] = append(t.flat[y], t.row(x).labels...)
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
