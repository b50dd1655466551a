package optim

import (
	"github.com/ringo-ml/ringo/internal/simd"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// SGD is stochastic gradient descent with momentum and weight decay, as defined by PyTorch and
// SINGA:
//
//	g = gradScale*grad + WeightDecay*p
//	v = Momentum*v + g
//	p = p - LR*v
//
// v starts at zero, and subnormal values become zero. Without momentum there is no v and an update
// moves three values instead of five: p and g are read, p is written. Validate rejects the zero
// value, with learning rate 0. Tables use plain descent only: momentum and weight decay would
// change rows that a step did not use, and BindTables rejects both.
type SGD struct {
	// LR is the learning rate, positive. Callers may change it between steps.
	LR float64
	// Momentum is from 0 (none) to below 1. Bind decides whether there is a velocity.
	Momentum float64
	// WeightDecay is the factor of the L2 penalty's gradient, 0 for none.
	WeightDecay float64

	kernels  *simd.Kernels // nil before Bind
	n        int
	velocity []float32 // nil without momentum
	tables
}

// Validate reports every invalid setting.
func (s *SGD) Validate() error { return s.faults().err(s.Name()) }

func (s *SGD) faults() (f faults) {
	f.positive("learning rate", s.LR)
	f.fraction("momentum", s.Momentum)
	f.notNegative("weight decay", s.WeightDecay)
	return f
}

// Name returns "sgd".
func (s *SGD) Name() string { return "sgd" }

// Bind checks the settings and, with momentum, makes the velocity of n values, all zero.
func (s *SGD) Bind(n int) error {
	f := s.faults()
	f.bound(s.n, n, s.kernels != nil)
	if len(f) > 0 || s.kernels != nil {
		return f.err(s.Name())
	}
	s.kernels, s.n = simd.Host(), n
	if s.Momentum != 0 {
		s.velocity = make([]float32, n)
	}
	return nil
}

// SetLR sets LR.
func (s *SGD) SetLR(lr float64) {
	checkLR(s.Name(), lr)
	s.LR = lr
}

// CurrentLR returns LR.
func (s *SGD) CurrentLR() float64 { return s.LR }

// BeginStep has no effect: SGD has no step number.
func (s *SGD) BeginStep() {}

// Update applies the rule to the arena's values [lo, lo+len(params)). It panics without Bind or if
// the ranges do not fit.
func (s *SGD) Update(lo int, params, grads []float32, gradScale float32) {
	lr, decay := float32(s.LR), float32(s.WeightDecay)
	if s.velocity == nil {
		s.kernels.SGDPlain(params, grads, lr, decay, gradScale)
		return
	}
	v := s.velocity[lo : lo+len(params)]
	s.kernels.Momentum(params, v, grads, lr, float32(s.Momentum), decay, gradScale)
}

// State returns the velocity, if there is momentum.
func (s *SGD) State() []State {
	if s.velocity == nil {
		return nil
	}
	return []State{{Name: "velocity", Data: s.velocity}}
}

// BindTables checks the settings: plain descent has no state.
func (s *SGD) BindTables(dims [][2]int) error {
	f := s.faults()
	f.require(len(dims) == 0 || s.Momentum == 0, "momentum %s with row-sparse tables: it would move rows that a step did not use; set it to 0, or use adagrad", quantity.Exact(s.Momentum))
	refuseDecay(&f, dims, s.WeightDecay)
	return s.tables.bind(f, s.Name(), dims, (&SGDRows{}).Parts)
}

// UpdateRows computes p = p - LR*gradScale*grad for the rows ids of a table.
func (s *SGD) UpdateRows(table int, data []float32, ids []int32, grads []float32, gradScale float32) {
	rule := SGDRows{LR: s.LR}
	rule.UpdateRows(data, s.tables.parts[table], s.tables.dim(table), ids, grads, gradScale)
}
