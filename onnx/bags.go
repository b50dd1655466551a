package onnx

import (
	"slices"

	"github.com/ringo-ml/ringo/nn"
)

// Bag is a graph input that depends on rows of a table.
type Bag struct {
	// Input is the input's name, and Table the table's name in the model.
	Input, Table string
	// Slots are the slots of a sample, or the columns of its ids, in the input's order.
	Slots []int
	// Rows reports whether the input has a row's number for each slot, for a lookup in the graph.
	// Number Table.Rows is a row of zeros, for a slot without a key. Otherwise the input has the
	// concatenated rows of the slots, or the sums of their rows.
	Rows bool
	// Pooling is how the rows of a slot are reduced to one.
	Pooling nn.Pooling
	// Steps is the number of a sequence's last keys with rows that are concatenated in the input,
	// followed by zeros for a shorter sequence. 0 means that the rows are summed.
	Steps int
}

// idsOf returns the columns of the batch's ids that lookup l reads.
func idsOf(l *lookup) (out []int) {
	for _, c := range l.columns {
		out = append(out, c.of)
	}
	return out
}

// slotsOf returns the slots of bags that operation i reads: first `single` slots with rows that the
// graph looks up, then the other slots.
func (b *builder) slotsOf(i int) (slots []int, single int) {
	n := b.passes[0].nodes[i]
	var rest []int
	first := int(n.Attrs["first"])
	for s := first; s < first+int(n.Attrs["slots"]); s++ {
		if n.Attrs["steps"] == 0 && !b.elsewhere[n.Table] && b.single(s) {
			slots = append(slots, s)
		} else {
			rest = append(rest, s)
		}
	}
	return append(slots, rest...), len(slots)
}

// takeBags declares the inputs of an operation on bags: rows' numbers for slots that the graph
// looks up, sums for the other slots.
func (b *builder) takeBags(i int) (ports []port) {
	n := b.passes[0].nodes[i]
	slots, single := b.slotsOf(i)
	bag := Bag{Table: n.Table.Name, Pooling: nn.Pooling(n.Attrs["pooling"]), Steps: int(n.Attrs["steps"])}
	if single > 0 {
		bag.Input, bag.Slots, bag.Rows = b.unique(n.Table.Name+".rows"), slots[:single], true
		about := "rows of table " + n.Table.Name + ", " + decimal(int64(n.Table.Rows)) + " for none"
		ports = append(ports, port{name: bag.Input, kind: int64Type, shape: []dim{batch, fixed(single)}, about: about})
		b.rows[i], b.bags = bag.Input, append(b.bags, bag)
	}
	if single < len(slots) {
		bag.Input, bag.Slots, bag.Rows = b.unique(n.Table.Name), slots[single:], false
		width := len(bag.Slots) * max(1, bag.Steps) * n.Table.Dim
		about := "sums of rows of table " + n.Table.Name + ", " + decimal(int64(n.Table.Dim)) + " values each, side by side"
		ports = append(ports, port{name: bag.Input, kind: float32Type, shape: []dim{batch, fixed(width)}, about: about})
		b.sums[i], b.bags = bag.Input, append(b.bags, bag)
	}
	return ports
}

// embeddingBag concatenates rows of slots with one key and sums of other slots, in the order of the
// slots, and then the other values, if any.
func (b *builder) embeddingBag() error {
	n := b.node()
	slots, single := b.slotsOf(b.i)
	name := b.sums[b.i]
	if single > 0 {
		t := n.Table
		table := b.floats(b.weightName(t.Name), [2]any{t, "bags"}, []int{t.Rows + 1, t.Dim}, t.Data, make([]float32, t.Dim))
		sums := name
		name = b.add("Gather", []string{table, b.rows[b.i]}, intOf("axis", 0))
		if sums != "" {
			sums = b.reshape(sums, []dim{batch, fixed(len(slots) - single), fixed(t.Dim)})
			name = b.add("Concat", []string{name, sums}, intOf("axis", 1))
		}
		if !slices.IsSorted(slots) {
			var order []int
			for s := range slots {
				order = append(order, slices.Index(slots, s+slices.Min(slots)))
			}
			name = b.add("Gather", []string{name, b.list(order...)}, intOf("axis", 1))
		}
		name = b.reshape(name, []dim{batch, fixed(len(slots) * t.Dim)})
	}
	if n.Inputs[0] != nil {
		name = b.add("Concat", []string{name, b.localInput(0)}, intOf("axis", 1))
	}
	if steps := int(n.Attrs["steps"]); steps > 0 {
		name = b.reshape(name, b.shapes[n.Output])
	}
	b.result(name, asHere)
	return nil
}
