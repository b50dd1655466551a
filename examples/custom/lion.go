package main

import (
	"fmt"

	"github.com/ringo-ml/ringo/optim"
)

// lion is the optimizer of Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023): an
// optim.Optimizer with steps of equal size in the direction of a running mean's sign.
type lion struct {
	rate   float64
	moment []float32
}

// Name is stored in checkpoints.
func (l *lion) Name() string { return "lion" }

// Bind makes the state for an arena of n values.
func (l *lion) Bind(n int) error {
	if l.moment != nil && len(l.moment) != n {
		return fmt.Errorf("lion: bound to %d values already, cannot bind to %d", len(l.moment), n)
	}
	if l.moment == nil {
		l.moment = make([]float32, n)
	}
	return nil
}

// SetLR sets the step size.
func (l *lion) SetLR(rate float64) { l.rate = rate }

// CurrentLR returns the step size.
func (l *lion) CurrentLR() float64 { return l.rate }

// BeginStep has no effect: no factor depends on the number of the step.
func (l *lion) BeginStep() {}

// Update moves the arena's values from lo on. Values without gradient and moment stay, as padding
// must.
func (l *lion) Update(lo int, params, grads []float32, scale float32) {
	for i, g := range grads {
		m := &l.moment[lo+i]
		switch c := 0.9**m + 0.1*scale*g; {
		case c > 0:
			params[i] -= float32(l.rate)
		case c < 0:
			params[i] += float32(l.rate)
		}
		*m = 0.99**m + 0.01*scale*g
	}
}

// State is the part that checkpoints store and ranks broadcast.
func (l *lion) State() []optim.State {
	return []optim.State{{Name: "moment", Data: l.moment}}
}
