package export

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/onnx"
)

// Ways of finding the row of a value.
const (
	byKey      = "key"       // the value's key
	byHash     = "hash"      // a hash of the key
	bySlotHash = "slot-hash" // hash of slot and value; row 0 is for missing values
)

// describe returns the description of a model without its inputs and files.
func (m *trained) describe() (*description, error) {
	l := m.data.Layout
	if l == nil {
		var err error
		if l, err = layout.Open("criteo"); err != nil {
			return nil, err
		}
	}
	d := &description{Format: "ringo-bundle", Version: 1, Model: m.spec.Name, Step: m.step, Separator: l.Separator, Header: l.Header}
	d.Output = output{"logits", "sigmoid"}
	_, err := nn.Trace(func(t *nn.Tape) {
		if m.model.Forward(t, m.spec.Sample(1))[0].Shape[1] == 2 {
			d.Output.Probability = "softmax"
		}
	})
	if err != nil {
		return nil, err
	}
	bases := basesOf(l)
	for _, c := range l.Columns {
		out := column{Name: c.Name, Kind: c.Kind, Transform: c.Transform, Separator: c.Separator, Values: c.Values}
		if c.Slotted() {
			out.Base = bases[c.Table]
		}
		d.Columns = append(d.Columns, out)
	}
	for i, t := range m.ps.Tables() {
		out := table{Name: t.Name, Dim: t.Dim, File: fmt.Sprintf("rows-%d.bin", i), Index: byKey}
		switch {
		case len(m.spec.Slots) == 0:
			out.Index, out.Buckets = bySlotHash, t.Rows
		case !m.served:
			out.Index, out.Buckets = byHash, t.Rows
		}
		if m.served {
			out.Initial = &initial{t.Init.Name, t.Init.Value, t.Stream()}
		}
		d.Tables = append(d.Tables, out)
	}
	return d, nil
}

// basesOf returns, by table, the base of its values' keys: for text the hash of the table's name,
// for hexadecimal numbers the table's number from 1.
func basesOf(l *layout.Layout) map[string]uint64 {
	bases, numbers := map[string]uint64{}, uint64(0)
	for _, c := range l.Of(layout.Column.Slotted) {
		if _, ok := bases[c.Table]; ok {
			continue
		}
		switch c.Values {
		case layout.Hex:
			numbers++
			bases[c.Table] = numbers
		case layout.Text:
			h := fnv.New64a()
			_, _ = h.Write([]byte(c.Table)) // never fails
			bases[c.Table] = h.Sum64()
		}
	}
	return bases
}

func (d *description) slots() (out []column) {
	for _, c := range d.Columns {
		if c.Kind == layout.Category || c.Kind == layout.Bag || c.Kind == layout.Sequence {
			out = append(out, c)
		}
	}
	return out
}

func (d *description) single(slot int) bool { return d.slots()[slot].Kind == layout.Category }

// inputs adds the inputs of a graph that depend on rows.
func (d *description) inputs(g *onnx.Graph, tables []*nn.Table) {
	slots := d.slots()
	for _, b := range g.Bags {
		i := slices.IndexFunc(tables, func(t *nn.Table) bool { return t.Name == b.Table })
		in := input{Name: b.Input, Kind: "sums", Table: b.Table, Steps: b.Steps}
		switch {
		case b.Rows:
			in.Kind, in.Missing = "rows", &tables[i].Rows
		case b.Steps > 0:
			in.Kind = "sequence"
		default:
			in.Pooling = [...]string{nn.SumPool: "sum", nn.MeanPool: "mean", nn.SqrtPool: "sqrt"}[b.Pooling]
		}
		if d.Tables[i].Index == bySlotHash {
			in.Missing = new(int) // missing values use row 0
		}
		for _, s := range b.Slots {
			in.Slots = append(in.Slots, slots[s].Name)
		}
		d.Inputs = append(d.Inputs, in)
	}
}
