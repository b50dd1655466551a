// Package optim holds optimizers as plain functions of slices: what they know
// of a model is the length of its parameter arena. Workers and servers use
// them alike.
package optim

// Optimizer turns gradients into parameter updates. A step is BeginStep
// followed by Updates of disjoint ranges that together cover the arena, in any
// order, so that a bucket can be updated as soon as it is agreed. Values
// outside [lo, lo+len) of the arena do not influence the result, and neither
// does the way the arena is cut. An Optimizer is used by one goroutine.
type Optimizer interface {
	// Name is the optimizer's name in logs and checkpoints.
	Name() string
	// Bind makes the state for an arena of n values. It reports every bad
	// setting, or that the optimizer is bound to another length already.
	// Binding again to the same length keeps the state.
	Bind(n int) error
	// BeginStep starts the next step; what depends on the step's number
	// (schedules, bias corrections) moves on here.
	BeginStep()
	// Update changes the arena's values [lo, lo+len(params)) in place.
	// params and grads are these ranges of the two arenas and have equal
	// lengths. Gradients are multiplied by gradScale first and not changed.
	Update(lo int, params, grads []float32, gradScale float32)
	// State returns the state as slices that the caller may read, send and
	// overwrite between steps: what is broadcast and saved.
	State() []State
}

// State is a named part of an optimizer's state.
type State struct {
	Name string
	Data []float32
}
