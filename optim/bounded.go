package optim

import "github.com/ringo-ml/ringo/internal/simd"

// Bounded is a rule that clips the weights of updated rows to [-Bound, Bound] after each update.
// NaN stays, for detection.
type Bounded struct {
	RowRule
	// Bound is the largest magnitude of a weight, positive.
	Bound float64
}

// Validate reports every invalid setting, including the rule's.
func (b *Bounded) Validate() error {
	var f faults
	f.positive("bound", b.Bound)
	if err := b.RowRule.Validate(); err != nil {
		f = append(f, err)
	}
	return f.err(b.Name())
}

// UpdateRows applies the rule and the bound, a few rows at a time, so that clipping finds them in
// the caches.
func (b *Bounded) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	for len(ids) > 0 {
		n := min(len(ids), boundedRows)
		b.RowRule.UpdateRows(data, state, dim, ids[:n], grads[:n*dim], gradScale)
		simd.Host().ClampRows(data, ids[:n], dim, -float32(b.Bound), float32(b.Bound))
		ids, grads = ids[n:], grads[n*dim:]
	}
}

// boundedRows is the number of rows updated before clipping: 16 KiB for rows of 16 values.
const boundedRows = 256

// SetLR sets the rule's learning rate, if it has one.
func (b *Bounded) SetLR(lr float64) {
	if r, ok := b.RowRule.(Rated); ok {
		r.SetLR(lr)
	}
}

// CurrentLR returns the rule's learning rate, 0 without one.
func (b *Bounded) CurrentLR() float64 {
	if r, ok := b.RowRule.(Rated); ok {
		return r.CurrentLR()
	}
	return 0
}
