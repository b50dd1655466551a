package loadgen

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// oracle computes the expected rows of some keys, bit by bit: it applies the table's rule to them,
// push by push, as a server does.
type oracle struct {
	dim     int
	rule    optim.RowRule
	counted optim.CountedRule // nil for a rule without counts
	parts   []optim.RowPart
	init    rowinit.Init
	stream  uint64
	ranks   []uint64
	keys    []uint64         // keys of ranks
	slots   map[uint64]int32 // index of each key in the next slices
	weights []float32
	state   [][]float32
}

func newOracle(t schema.Sparse) (*oracle, error) {
	rule, err := t.Rule.Rows()
	if err != nil {
		return nil, err
	}
	init, err := t.Init.Init()
	if err != nil {
		return nil, err
	}
	parts := rule.Parts(t.Dim)
	counted, _ := rule.(optim.CountedRule)
	return &oracle{
		dim: t.Dim, rule: rule, counted: counted, parts: parts, init: init, stream: rowinit.Table(t.Seed, t.Name),
		slots: map[uint64]int32{}, state: make([][]float32, len(parts)),
	}, nil
}

// watch adds the key of a rank that has not been pushed yet.
func (o *oracle) watch(rank uint64) {
	key := Key(rank)
	if _, ok := o.slots[key]; ok {
		return
	}
	o.slots[key] = int32(len(o.keys))
	o.ranks, o.keys = append(o.ranks, rank), append(o.keys, key)
	row := o.initial(key)
	if o.counted != nil {
		o.counted.Begin(row)
	}
	o.weights = append(o.weights, row...)
	for i, p := range o.parts {
		for range p.Width {
			o.state[i] = append(o.state[i], p.Initial)
		}
	}
}

func (o *oracle) initial(key uint64) []float32 {
	row := make([]float32, o.dim)
	o.init(row, rowinit.Row(o.stream, key))
	return row
}

func (o *oracle) push(slot int32, grad []float32) {
	if o.counted == nil {
		o.rule.UpdateRows(o.weights, o.state, o.dim, []int32{slot}, grad, 1)
		return
	}
	if due := o.counted.UpdateCounted(o.weights, o.state, o.dim, []int32{slot}, grad, 1, nil); len(due) > 0 {
		o.counted.Extend(o.weights, o.state, o.dim, slot, o.initial(o.keys[slot]))
	}
}

// compare counts wrong rows, and describes the first. rows has all watched keys' rows, in order.
func (o *oracle) compare(rows []float32) (wrong int, first string) {
	for i, key := range o.keys {
		for j, want := range o.weights[i*o.dim:][:o.dim] {
			got := rows[i*o.dim+j]
			if math.Float32bits(got) == math.Float32bits(want) {
				continue
			}
			if wrong++; wrong == 1 {
				first = fmt.Sprintf("weight %d of key %#x is %v, want %v", j, key, got, want)
			}
			break
		}
	}
	return wrong, first
}
