// Package optim has optimizers as plain functions of slices: of a model they need only the length
// of the parameter arena and the sizes of tables. Workers and servers use the same code.
//
// Every update reads and writes each value once, allocates no memory, and gives the same bits on
// every machine and at every instruction-set level.
package optim

// Optimizer turns gradients into parameter updates. A step is BeginStep followed by Updates of
// disjoint ranges that together cover the arena, in any order, so that a bucket can be updated as
// soon as ranks agree on it. Neither values outside [lo, lo+len) nor the division of the arena
// influence the result. Zero parameters with zero gradients and state stay zero, as padding must.
// An Optimizer is for a single goroutine, except that Updates of disjoint ranges may run
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
	// overwrite between steps, such as to broadcast and save. Written back after Bind, it continues
	// the run with the same bits.
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
