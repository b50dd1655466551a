// Package optim holds optimizers as plain functions of slices: what they know
// of a model is the length of its parameter arena and the sizes of its tables.
// Workers and servers use them alike.
//
// Every update reads and writes each value once, allocates nothing, and gives
// the same bits on every machine and at every instruction-set level.
package optim

// Optimizer turns gradients into parameter updates. A step is BeginStep
// followed by Updates of disjoint ranges that together cover the arena, in any
// order, so that a bucket can be updated as soon as it is agreed. Values
// outside [lo, lo+len) of the arena do not influence the result, and neither
// does the way the arena is cut. Where parameters, gradients and state are zero
// they stay zero, as padding must. An Optimizer is used by one goroutine,
// except that Updates of disjoint ranges may run at the same time.
type Optimizer interface {
	// Name is the optimizer's name in logs and checkpoints.
	Name() string
	// Bind makes the state for an arena of n values. It reports every bad
	// setting, or that the optimizer is bound to another length already.
	// Binding again to the same length keeps the state.
	Bind(n int) error
	// SetLR sets the learning rate of the next steps; CurrentLR returns it. The
	// rate may be 0, where a schedule ends there. SetLR panics where it is
	// negative or not finite: schedules are checked when they are made.
	SetLR(lr float64)
	CurrentLR() float64
	// BeginStep starts the next step; what depends on the step's number (bias
	// corrections) moves on here.
	BeginStep()
	// Update changes the arena's values [lo, lo+len(params)) in place.
	// params and grads are these ranges of the two arenas and have equal
	// lengths. Gradients are multiplied by gradScale first and not changed.
	Update(lo int, params, grads []float32, gradScale float32)
	// State returns the state as slices that the caller may read, send,
	// average over ranks and overwrite between steps: what is broadcast and
	// saved. Written back after Bind it continues the run with the same bits.
	State() []State
}

// RowOptimizer is an Optimizer that also updates row-sparse tables, which lie
// outside the arena: rows that a step did not use, and their state, do not
// move.
type RowOptimizer interface {
	Optimizer
	// BindTables makes the state of tables of rows by dim values, {rows, dim}
	// each. It reports every bad size and every setting that would move rows
	// that a step did not use. Binding again to the same sizes keeps the state.
	BindTables(dims [][2]int) error
	// UpdateRows changes the rows ids of a table's data in place, within the
	// step that BeginStep began. ids are unique; row i of grads, which has
	// len(ids)*dim values, is the gradient of row ids[i]. Gradients are
	// multiplied by gradScale first and not changed. The cost is that of the
	// rows named. It panics where an id is not a row of the table.
	UpdateRows(table int, data []float32, ids []int32, grads []float32, gradScale float32)
	// TableState returns the state of a table, as State that of the arena.
	TableState(table int) []State
}

// State is a named part of an optimizer's state.
type State struct {
	Name string
	Data []float32
}
