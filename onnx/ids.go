package onnx

import (
	"fmt"
	"math/rand/v2"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// lookup describes the origin of an operation's ids: the same columns for each sample. With
// stepsFirst the ids are ordered column by column, else row by row.
type lookup struct {
	columns    []column
	stepsFirst bool
	whole      []int32 // ids independent of the batch, instead of columns
}

// column is an id of each sample: the batch's id in column `of`, or a computed number,
// sample·bySample + batch·byBatch + value.
type column struct {
	of                       int // -1: a computed number
	bySample, byBatch, value int
}

// findIDs determines which of the batch's ids each operation reads. In the probes each id is one
// bit of its own index; random ids then verify the result.
func (t *traced) findIDs(m model.Model, probes [][len(sizes)]pass) error {
	t.ids = make([]*lookup, len(t.passes[0].nodes))
	any := false
	for i, n := range t.passes[0].nodes {
		if n.IDs == nil {
			continue
		}
		any = true
		var from [len(sizes)][]source
		for s := range sizes {
			sources, err := t.sources(i, s, probes)
			if err != nil {
				return err
			}
			from[s] = sources
		}
		l, ok := t.arrange(from)
		if !ok {
			return fmt.Errorf("onnx: the ids of operation %d (%s) are in no order that can be exported: want rows of ids of each sample, or columns of each step", i, n.Op)
		}
		t.ids[i] = l
	}
	if !any || t.spec.IDs == 0 {
		return nil
	}
	return t.proveIDs(m)
}

// source is the origin of an id: the batch's id with this index, or a constant.
type source struct {
	of    int // -1: a constant
	value int32
}

// sources reads the bits of node i's ids with a batch of sizes[s].
func (t *traced) sources(i, s int, probes [][len(sizes)]pass) ([]source, error) {
	out := make([]source, len(probes[0][s].nodes[i].IDs))
	for k := range out {
		first, code, constant := probes[0][s].nodes[i].IDs[k], 0, true
		for bit := range probes {
			ids := probes[bit][s].nodes[i].IDs
			if len(ids) != len(out) {
				return nil, t.strange(i)
			}
			constant = constant && ids[k] == first
			if v := ids[k]; v == 1 {
				code |= 1 << bit
			} else if v != 0 && !constant {
				return nil, t.strange(i)
			}
		}
		switch {
		case constant:
			out[k] = source{of: -1, value: first}
		case code < 1 || code > sizes[s]*t.spec.IDs:
			return nil, t.strange(i)
		default:
			out[k] = source{of: code - 1}
		}
	}
	return out, nil
}

func (t *traced) strange(i int) error {
	return fmt.Errorf("onnx: operation %d (%s) looks up ids that the model computes from the batch's own in Go: the graph can only take them as they are; compute them before, as part of the data", i, t.passes[0].nodes[i].Op)
}

// arrange derives the columns that an operation reads, from its ids' sources for all sizes.
func (t *traced) arrange(from [len(sizes)][]source) (*lookup, bool) {
	if l, ok := whole(from); ok {
		return l, true
	}
	for _, stepsFirst := range []bool{false, true} {
		each := len(from[0]) / sizes[0]
		l, ok := &lookup{stepsFirst: stepsFirst}, true
		for c := 0; ok && c < each; c++ {
			var of [len(sizes)][]source
			for s, n := range sizes {
				if len(from[s]) != each*n {
					return nil, false
				}
				for i := range n {
					k := i*each + c
					if stepsFirst {
						k = c*n + i
					}
					of[s] = append(of[s], from[s][k])
				}
			}
			var col column
			if col, ok = t.column(of); ok {
				l.columns = append(l.columns, col)
			}
		}
		if ok && l.uniform() {
			return l, true
		}
	}
	return nil, false
}

// whole returns the lookup of ids that are the same in all batches; ok is false for other ids.
func whole(from [len(sizes)][]source) (*lookup, bool) {
	l := &lookup{}
	for _, f := range from {
		if len(f) != len(from[0]) {
			return nil, false
		}
		for k, s := range f {
			if s.of >= 0 || s != from[0][k] {
				return nil, false
			}
		}
	}
	for _, s := range from[0] {
		l.whole = append(l.whole, s.value)
	}
	return l, true
}

// uniform reports whether all columns are ids of the batch, or all are computed.
func (l *lookup) uniform() bool {
	for _, c := range l.columns {
		if (c.of < 0) != (l.columns[0].of < 0) {
			return false
		}
	}
	return len(l.columns) > 0
}

// column derives a column from its ids' sources, sample by sample, in batches of all sizes.
func (t *traced) column(of [len(sizes)][]source) (column, bool) {
	first := of[0][0]
	if first.of >= 0 {
		c := column{of: first.of}
		for s := range of {
			for i, from := range of[s] {
				if from.of != i*t.spec.IDs+c.of {
					return c, false
				}
			}
		}
		return c, true
	}
	c := column{of: -1, bySample: int(of[1][1].value - of[1][0].value), byBatch: int(of[1][0].value - first.value)}
	c.value = int(first.value) - 2*c.byBatch
	for s, n := range sizes {
		for i, from := range of[s] {
			if from.of >= 0 || int(from.value) != i*c.bySample+n*c.byBatch+c.value {
				return c, false
			}
		}
	}
	return c, true
}

// proveIDs traces once more with random valid ids and verifies the lookups.
func (t *traced) proveIDs(m model.Model) error {
	rows := make([]int, t.spec.IDs) // rows to look up, by column
	for i, l := range t.ids {
		if l == nil {
			continue
		}
		for _, c := range l.columns {
			if n := rowsOf(t.passes[0].nodes[i]); c.of >= 0 && (rows[c.of] == 0 || n < rows[c.of]) {
				rows[c.of] = n
			}
		}
	}
	r := rand.New(rand.NewPCG(7, 11))
	n := sizes[0]
	p, err := run(t.spec, m, n, func(i int) int32 { return int32(r.IntN(max(1, rows[i%t.spec.IDs]))) })
	if err != nil {
		return err
	}
	for i, l := range t.ids {
		if l == nil || l.whole != nil {
			continue
		}
		for k, id := range p.nodes[i].IDs {
			sample, c := k/len(l.columns), k%len(l.columns)
			if l.stepsFirst {
				sample, c = k%n, k/n
			}
			if col := l.columns[c]; col.of >= 0 && id != p.batch.IDs[sample*t.spec.IDs+col.of] {
				return t.strange(i)
			}
		}
	}
	return nil
}

// rowsOf is the number of rows that an operation with ids selects from.
func rowsOf(n nn.Node) int {
	switch {
	case n.Table != nil:
		return len(n.Table.Data) / n.Table.Dim
	case len(n.Params) > 0:
		return n.Params[0].Shape[0]
	}
	return n.Inputs[0].Shape[0]
}
