package optim

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
)

// SGD is stochastic gradient descent with momentum and weight decay, as
// PyTorch and SINGA define it:
//
//	g = gradScale*grad + WeightDecay*p
//	v = Momentum*v + g
//	p = p - LR*v
//
// in one pass over the arena, with the same bits on every machine. v starts
// at zero. The zero value has learning rate 0 and is refused by Validate.
type SGD struct {
	// LR is the learning rate, positive. It may be changed between steps.
	LR float64
	// Momentum is from 0 (none) to below 1.
	Momentum float64
	// WeightDecay is the factor of the L2 penalty's gradient, 0 for none.
	WeightDecay float64

	kernels  *simd.Kernels
	velocity []float32
}

var _ Optimizer = (*SGD)(nil)

// Validate reports every setting that is out of its range.
func (s *SGD) Validate() error {
	var errs []error
	if !(s.LR > 0) || math.IsInf(s.LR, 0) {
		errs = append(errs, fmt.Errorf("learning rate %v: want a positive number", s.LR))
	}
	if !(s.Momentum >= 0 && s.Momentum < 1) {
		errs = append(errs, fmt.Errorf("momentum %v: want a number from 0 to below 1", s.Momentum))
	}
	if !(s.WeightDecay >= 0) || math.IsInf(s.WeightDecay, 0) {
		errs = append(errs, fmt.Errorf("weight decay %v: want a number from 0", s.WeightDecay))
	}
	if len(errs) > 0 {
		return fmt.Errorf("optim: sgd: %w", errors.Join(errs...))
	}
	return nil
}

// Name returns "sgd".
func (s *SGD) Name() string { return "sgd" }

// Bind checks the settings and makes the velocity of n values, all zero.
func (s *SGD) Bind(n int) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if s.velocity != nil && len(s.velocity) != n {
		return fmt.Errorf("optim: sgd: bound to %d values already, cannot bind to %d", len(s.velocity), n)
	}
	if s.velocity == nil {
		s.kernels = simd.Host()
		s.velocity = make([]float32, n)
	}
	return nil
}

// BeginStep does nothing: SGD has no step number.
func (s *SGD) BeginStep() {}

// Update applies the rule to the arena's values [lo, lo+len(params)). It reads
// and writes each value once. It panics when Bind has not been called or the
// ranges do not fit.
func (s *SGD) Update(lo int, params, grads []float32, gradScale float32) {
	v := s.velocity[lo : lo+len(params)]
	s.kernels.SGD(params, grads[:len(params)], v, float32(s.LR), float32(s.Momentum), float32(s.WeightDecay), gradScale)
}

// State returns the velocity.
func (s *SGD) State() []State { return []State{{Name: "velocity", Data: s.velocity}} }
