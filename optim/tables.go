package optim

import (
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// tables is the state of row-sparse tables, part by part: as State, and as slices for a rule.
type tables struct {
	dims  [][2]int
	state [][]State
	parts [][][]float32
}

// bind makes each table's state from the parts of its rows. It adds its errors to the caller's.
func (t *tables) bind(f faults, optimizer string, dims [][2]int, parts func(dim int) []RowPart) error {
	for i, d := range dims {
		f.require(d[0] >= 1 && d[0] <= math.MaxInt32 && d[1] >= 1 && d[1] <= math.MaxInt32 && d[0]*d[1] > 0,
			"table %d of %d rows by %d: want at least 1 and at most %d each", i, d[0], d[1], math.MaxInt32)
	}
	f.require(t.dims == nil || slices.Equal(t.dims, dims), "bound to tables of rows and dimensions %v already, cannot bind to %v", t.dims, dims)
	if len(f) > 0 || t.dims != nil {
		return f.err(optimizer)
	}
	t.dims = append([][2]int{}, dims...)
	for _, d := range dims {
		var state []State
		var arrays [][]float32
		for _, p := range parts(d[1]) {
			data := make([]float32, d[0]*p.Width)
			if p.Initial != 0 {
				fill(data, p.Initial)
			}
			state, arrays = append(state, State{Name: p.Name, Data: data}), append(arrays, data)
		}
		t.state, t.parts = append(t.state, state), append(t.parts, arrays)
	}
	return nil
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// TableState returns the state of a table.
func (t *tables) TableState(table int) []State { return t.state[table] }

// dim is the length of a table's rows.
func (t *tables) dim(table int) int { return t.dims[table][1] }

// refuseDecay reports a weight decay, which tables cannot have.
func refuseDecay(f *faults, dims [][2]int, decay float64) {
	f.require(len(dims) == 0 || decay == 0, "weight decay %s with row-sparse tables: it would move rows that a step did not use; set it to 0", quantity.Exact(decay))
}
