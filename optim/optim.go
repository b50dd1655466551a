// Package optim has optimizers as plain functions of slices: of a model they need only the length
// of the parameter arena and the sizes of tables. Workers and servers use the same code.
//
// Every update reads and writes each value once, allocates no memory, and gives the same bits on
// every machine and at every instruction-set level.
package optim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Optimizer turns gradients into parameter updates. A step is BeginStep followed by Updates of
// disjoint ranges that together cover the arena, in any order, so that a range can be updated as
// soon as its gradients are exchanged. Its result does not depend on values of other ranges or on
// the division into ranges. Zero parameters with zero gradients and state stay zero, as padding
// must. An Optimizer is for a single goroutine, except that Updates of disjoint ranges may run
// simultaneously.
type Optimizer interface {
	// Name is the optimizer's name in logs and checkpoints.
	Name() string
	// Bind makes the state for an arena of n values. It reports every invalid setting, or an
	// earlier Bind to another length. Binding again to the same length keeps the state.
	Bind(n int) error
	// SetLR sets the learning rate of the next steps; CurrentLR returns it. The rate may be 0, as
	// at the end of a schedule. SetLR panics for a negative or infinite rate, because schedules are
	// validated when created.
	SetLR(lr float64)
	CurrentLR() float64
	// BeginStep starts the next step and advances factors that depend on its number (bias
	// corrections).
	BeginStep()
	// Update changes the arena's values [lo, lo+len(params)) in place. params and grads are the
	// range in the two arenas, of equal length. Gradients are multiplied by gradScale first and do
	// not change.
	Update(lo int, params, grads []float32, gradScale float32)
	// State returns the state as slices that the caller may read, send, average over ranks and
	// overwrite between steps, such as to broadcast and save. State written back after Bind
	// continues the run with the same bits.
	State() []State
}

// RowOptimizer is an Optimizer that also updates row-sparse tables outside the arena: rows that a
// step did not use, and their state, do not change.
type RowOptimizer interface {
	Optimizer
	// BindTables makes the state of tables of rows by dim values, {rows, dim} each. It reports
	// every invalid size and every setting that would change rows that a step did not use. Binding
	// again to the same sizes keeps the state.
	BindTables(dims [][2]int) error
	// UpdateRows changes the rows ids of a table's data in place, within the current step. ids are
	// unique; row i of grads, which has len(ids)*dim values, is the gradient of row ids[i].
	// Gradients are multiplied by gradScale first and do not change. Cost: proportional to the rows
	// in ids. It panics if an id is not a row of the table.
	UpdateRows(table int, data []float32, ids []int32, grads []float32, gradScale float32)
	// TableState returns the state of a table, like State for the arena.
	TableState(table int) []State
}

// State is a named part of an optimizer's state.
type State struct {
	Name string
	Data []float32
}

// faults collects errors in settings, to report all together.
type faults []error

func (f *faults) require(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// positive requires a setting that is positive and finite, also as a float32.
func (f *faults) positive(name string, v float64) {
	f.require(float32(v) > 0 && !math.IsInf(float64(float32(v)), 0), "%s %s: want a positive number", name, quantity.Exact(v))
}

func (f *faults) fraction(name string, v float64) {
	f.require(v >= 0 && v < 1, "%s %s: want a number from 0 to below 1", name, quantity.Exact(v))
}

func (f *faults) notNegative(name string, v float64) {
	f.require(v >= 0 && !math.IsInf(float64(float32(v)), 0), "%s %s: want a number from 0", name, quantity.Exact(v))
}

// bound requires n to equal the length of an earlier Bind.
func (f *faults) bound(was, n int, already bool) {
	f.require(n >= 0, "an arena of %d values: want 0 or more", n)
	f.require(!already || was == n, "bound to %d values already, cannot bind to %d", was, n)
}

func (f faults) err(name string) error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("optim: %s: %w", name, errors.Join(f...))
}

// checkLR panics for an invalid rate.
func checkLR(name string, lr float64) {
	if !(lr >= 0) || math.IsInf(lr, 0) {
		panic(fmt.Sprintf("optim: %s: learning rate %s: want a number from 0", name, quantity.Exact(lr)))
	}
}

// tables is the state of row-sparse tables, part by part: as a list of State, and as slices for
// UpdateRows.
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
