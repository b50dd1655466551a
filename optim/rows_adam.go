package optim

import "github.com/ringo-ml/ringo/internal/simd"

// AdamRows is Adam on rows, with a bias correction by the row's own count of
// updates. In the row's update t, from 1:
//
//	g = gradScale*grad
//	m = Beta1*m + (1-Beta1)*g
//	v = Beta2*v + (1-Beta2)*g*g
//	p = p - LR*WeightDecay*p - LR*m/(1-Beta1^t) / (sqrt(v/(1-Beta2^t)) + Eps)
//
// A row's moments are therefore independent of the table: its first step is LR in each value, at
// any time. The alternative is the table's step number as t ([AdamW] on tables,
// torch.optim.SparseAdam): late rows then begin with moments near zero that count as complete, and
// their first step is LR*(1-Beta1)/sqrt(1-Beta2), three times as long with the default settings. It
// also requires a step number common to all servers, which asynchronous training does not have. In
// both cases moments do not decay in steps without the row; decaying them for missed steps would
// require the step number as well, and rare rows would forget their history.
//
// With WeightDecay the rule is AdamW, lazily: a row decays when it is updated, so that decay
// follows use.
//
// 1-Beta^t is stored as an average of ones with the decay of the moments, which neither overflows
// nor loses digits. Moments start at zero, and subnormal values become zero.
type AdamRows struct {
	// LR is the learning rate, positive. Callers may change it between updates.
	LR float64
	// Beta1 and Beta2 are the decay of the moments, from 0 to below 1.
	Beta1, Beta2 float64
	// Eps keeps the divisor from zero, positive.
	Eps float64
	// WeightDecay times LR is the decay of a weight in an update, 0 for none. The product must be
	// below 1.
	WeightDecay float64
}

// NewAdamRows is AdamRows with a learning rate and the settings of [NewAdam].
func NewAdamRows(lr float64) *AdamRows {
	return &AdamRows{LR: lr, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
}

// NewAdamWRows is AdamRows with a learning rate and the settings of [NewAdamW]: with weight decay.
func NewAdamWRows(lr float64) *AdamRows {
	a := NewAdamRows(lr)
	a.WeightDecay = 0.01
	return a
}

// Name returns "adam", or "adamw" with weight decay.
func (a *AdamRows) Name() string {
	if a.WeightDecay != 0 {
		return "adamw"
	}
	return "adam"
}

// Validate reports every invalid setting.
func (a *AdamRows) Validate() error {
	dense := AdamW{LR: a.LR, Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Eps, WeightDecay: a.WeightDecay}
	return dense.faults().err(a.Name())
}

// SetLR sets LR.
func (a *AdamRows) SetLR(lr float64) {
	checkLR(a.Name(), lr)
	a.LR = lr
}

// CurrentLR returns LR.
func (a *AdamRows) CurrentLR() float64 { return a.LR }

// Parts returns the moments, dim values each for a row, and "weights", two
// values for each row: 1-Beta1^t and 1-Beta2^t after t updates.
func (a *AdamRows) Parts(dim int) []RowPart {
	return []RowPart{{Name: "moment1", Width: dim}, {Name: "moment2", Width: dim}, {Name: "weights", Width: 2}}
}

// UpdateRows applies the rule to rows ids of data and of the state.
func (a *AdamRows) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	simd.Host().AdamOwnRows(data, state[0], state[1], state[2], ids, grads, dim, float32(a.LR), simd.AdamFactors{
		Scale: gradScale,
		Keep:  float32(1 - float64(a.LR*a.WeightDecay)),
		Beta1: float32(a.Beta1), Comp1: float32(1 - a.Beta1),
		Beta2: float32(a.Beta2), Comp2: float32(1 - a.Beta2),
		Eps: float32(a.Eps),
	})
}
