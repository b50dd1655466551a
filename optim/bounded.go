package optim

import "github.com/ringo-ml/ringo/internal/simd"

// Bounded is a rule after each of whose updates the weights of the rows that
// moved are cut to [-Bound, Bound]. NaN stays, to be seen.
type Bounded struct {
	RowRule
	// Bound is the largest magnitude of a weight, positive.
	Bound float64
}

// Validate reports every setting that is out of its range, the rule's as well.
func (b *Bounded) Validate() error {
	var f faults
	f.positive("bound", b.Bound)
	if err := b.RowRule.Validate(); err != nil {
		f = append(f, err)
	}
	return f.err(b.Name())
}

// UpdateRows applies the rule and the bound, a few rows at a time, so that the
// second finds them in the caches.
func (b *Bounded) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	for len(ids) > 0 {
		n := min(len(ids), boundedRows)
		b.RowRule.UpdateRows(data, state, dim, ids[:n], grads[:n*dim], gradScale)
		simd.Host().ClampRows(data, ids[:n], dim, -float32(b.Bound), float32(b.Bound))
		ids, grads = ids[n:], grads[n*dim:]
	}
}

// boundedRows is how many rows are updated before they are cut: 16 KiB of those
// of 16 values.
const boundedRows = 256

// SetLR sets the rule's learning rate, where it has one.
func (b *Bounded) SetLR(lr float64) {
	if r, ok := b.RowRule.(Rated); ok {
		r.SetLR(lr)
	}
}

// CurrentLR returns the rule's learning rate, 0 where it has none.
func (b *Bounded) CurrentLR() float64 {
	if r, ok := b.RowRule.(Rated); ok {
		return r.CurrentLR()
	}
	return 0
}
