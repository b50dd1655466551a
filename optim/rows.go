package optim

import "github.com/ringo-ml/ringo/internal/simd"

// SGDRows is stochastic gradient descent on rows, without state:
//
//	p = p - LR*gradScale*grad
type SGDRows struct {
	// LR is the learning rate, positive. Callers may change it between updates.
	LR float64
}

// Name returns "sgd".
func (s *SGDRows) Name() string { return "sgd" }

// Validate reports an invalid learning rate.
func (s *SGDRows) Validate() error {
	var f faults
	f.positive("learning rate", s.LR)
	return f.err(s.Name())
}

// SetLR sets LR.
func (s *SGDRows) SetLR(lr float64) {
	checkLR(s.Name(), lr)
	s.LR = lr
}

// CurrentLR returns LR.
func (s *SGDRows) CurrentLR() float64 { return s.LR }

// Parts returns nil.
func (s *SGDRows) Parts(int) []RowPart { return nil }

// UpdateRows applies the rule to rows ids of data. State is ignored.
func (s *SGDRows) UpdateRows(data []float32, _ [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	simd.Host().SGDRows(data, ids, grads, dim, float32(s.LR), gradScale)
}

// MomentumRows is gradient descent with lazy momentum on rows:
//
//	v = Momentum*v + gradScale*grad
//	p = p - LR*v
//
// Only rows with a gradient move, and a row's velocity decays once for each update of the row, not
// once for each step. A rare row's velocity therefore counts as if from the step before; momentum
// on all rows would have decayed the velocity, and moved the row, in the steps between. v starts at
// zero, and subnormal values become zero.
type MomentumRows struct {
	// LR is the learning rate, positive. Callers may change it between updates.
	LR float64
	// Momentum is from 0 to below 1.
	Momentum float64
}

// Name returns "momentum".
func (m *MomentumRows) Name() string { return "momentum" }

// Validate reports every invalid setting.
func (m *MomentumRows) Validate() error {
	var f faults
	f.positive("learning rate", m.LR)
	f.fraction("momentum", m.Momentum)
	return f.err(m.Name())
}

// SetLR sets LR.
func (m *MomentumRows) SetLR(lr float64) {
	checkLR(m.Name(), lr)
	m.LR = lr
}

// CurrentLR returns LR.
func (m *MomentumRows) CurrentLR() float64 { return m.LR }

// Parts returns the velocity, dim values for each row.
func (m *MomentumRows) Parts(dim int) []RowPart { return []RowPart{{Name: "velocity", Width: dim}} }

// UpdateRows applies the rule to rows ids of data and of the velocity.
func (m *MomentumRows) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	simd.Host().MomentumRows(data, state[0], ids, grads, dim, float32(m.LR), float32(m.Momentum), gradScale)
}

// AdagradRows is Adagrad on rows with a sum of squares for each value, the rule of [Adagrad] on the
// rows with a gradient:
//
//	g = gradScale*grad
//	s = s + g*g
//	p = p - LR*g / (sqrt(s) + Eps)
type AdagradRows struct {
	// LR is the learning rate, positive. Callers may change it between updates.
	LR float64
	// Initial is the initial value of the sums of squares, 0 or more.
	Initial float64
	// Eps keeps the divisor from zero, positive.
	Eps float64
}

// NewAdagradRows is AdagradRows with a learning rate and the settings of [NewAdagrad].
func NewAdagradRows(lr float64) *AdagradRows { return &AdagradRows{LR: lr, Eps: 1e-10} }

// Name returns "adagrad".
func (a *AdagradRows) Name() string { return "adagrad" }

// Validate reports every invalid setting.
func (a *AdagradRows) Validate() error {
	var f faults
	f.positive("learning rate", a.LR)
	f.notNegative("initial sum", a.Initial)
	f.positive("eps", a.Eps)
	return f.err(a.Name())
}

// SetLR sets LR.
func (a *AdagradRows) SetLR(lr float64) {
	checkLR(a.Name(), lr)
	a.LR = lr
}

// CurrentLR returns LR.
func (a *AdagradRows) CurrentLR() float64 { return a.LR }

// Parts returns the sums of squares, dim for each row.
func (a *AdagradRows) Parts(dim int) []RowPart {
	return []RowPart{{Name: "sum", Width: dim, Initial: float32(a.Initial)}}
}

// UpdateRows applies the rule to rows ids of data and of the sums.
func (a *AdagradRows) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	simd.Host().AdagradRows(data, state[0], ids, grads, dim, float32(a.LR), gradScale, float32(a.Eps))
}

// RowWiseAdagrad is Adagrad with an accumulator for each row, the rule of click models' servers:
// one value of state instead of [AdagradRows]'s one per weight. With a row's scale, 1 by default:
//
//	g = gradScale*grad / scale
//	p = p - LR*g * sqrt(Initial/(Initial+s))
//	s = s + mean over the row of g*g
//
// [AdagradRows], in contrast, has a sum for each value, divides by its root and adds the gradient
// first. Here a row's first step is LR*g for any size of the gradient, and steps shrink as s passes
// Initial. s starts at 0.
type RowWiseAdagrad struct {
	// LR is the learning rate, positive. Callers may change it between updates.
	LR float64
	// Initial is the sum s at which steps are LR*g/sqrt(2), positive.
	Initial float64
}

// NewRowWiseAdagrad is RowWiseAdagrad with a learning rate, such as 0.05, and an initial sum of 3.
func NewRowWiseAdagrad(lr float64) *RowWiseAdagrad { return &RowWiseAdagrad{LR: lr, Initial: 3} }

// Name returns "adagrad-rowwise".
func (a *RowWiseAdagrad) Name() string { return "adagrad-rowwise" }

// Validate reports every invalid setting.
func (a *RowWiseAdagrad) Validate() error { return a.faults().err(a.Name()) }

func (a *RowWiseAdagrad) faults() (f faults) {
	f.positive("learning rate", a.LR)
	f.positive("initial sum", a.Initial)
	return f
}

// SetLR sets LR.
func (a *RowWiseAdagrad) SetLR(lr float64) {
	checkLR(a.Name(), lr)
	a.LR = lr
}

// CurrentLR returns LR.
func (a *RowWiseAdagrad) CurrentLR() float64 { return a.LR }

// Parts returns the sum, a single value for each row.
func (a *RowWiseAdagrad) Parts(int) []RowPart { return []RowPart{{Name: "row-sum", Width: 1}} }

// UpdateRows applies the rule with a scale of 1.
func (a *RowWiseAdagrad) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	a.UpdateScaled(data, state, dim, ids, grads, nil, gradScale)
}

// UpdateScaled is UpdateRows with a positive scale for each of ids: in a click table, the number of
// samples in the row's gradient. nil means ones.
func (a *RowWiseAdagrad) UpdateScaled(data []float32, state [][]float32, dim int, ids []int32, grads, scales []float32, gradScale float32) {
	simd.Host().RowWiseAdagrad(data, state[0], ids, grads, scales, dim, float32(a.LR), float32(a.Initial), gradScale)
}

// FTRLRows is FTRL-Proximal on rows, the rule of [FTRL] on the rows with a gradient.
type FTRLRows struct {
	// LR is the learning rate, positive: alpha of the paper. Callers may change it between updates.
	LR float64
	// Beta divides the rate before the first gradients, positive.
	Beta float64
	// L1 and L2 are the penalties, 0 for none.
	L1, L2 float64
	// Initial is the initial value of the sums of squares, 0 or more.
	Initial float64
}

// NewFTRLRows is FTRLRows with a learning rate and the settings of [NewFTRL].
func NewFTRLRows(lr float64) *FTRLRows { return &FTRLRows{LR: lr, Beta: 1} }

// Name returns "ftrl".
func (r *FTRLRows) Name() string { return "ftrl" }

// Validate reports every invalid setting.
func (r *FTRLRows) Validate() error { return r.faults().err(r.Name()) }

func (r *FTRLRows) faults() (f faults) {
	f.positive("learning rate", r.LR)
	f.positive("beta", r.Beta)
	f.notNegative("l1", r.L1)
	f.notNegative("l2", r.L2)
	f.notNegative("initial sum", r.Initial)
	return f
}

// SetLR sets LR.
func (r *FTRLRows) SetLR(lr float64) {
	checkLR(r.Name(), lr)
	r.LR = lr
}

// CurrentLR returns LR.
func (r *FTRLRows) CurrentLR() float64 { return r.LR }

// Parts returns z and the sums of squares, dim values each for a row.
func (r *FTRLRows) Parts(dim int) []RowPart {
	return []RowPart{{Name: "linear", Width: dim}, {Name: "sum", Width: dim, Initial: float32(r.Initial)}}
}

// UpdateRows applies the rule to rows ids of data and of the state. Rate 0 changes no value.
func (r *FTRLRows) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	if r.LR != 0 {
		simd.Host().FTRLRows(data, state[0], state[1], ids, grads, dim, r.factors(gradScale))
	}
}

func (r *FTRLRows) factors(gradScale float32) simd.FTRLFactors {
	return simd.FTRLFactors{
		Scale: gradScale, LR: float32(r.LR), Beta: float32(r.Beta),
		L1: float32(r.L1 * r.LR), L2: float32(r.L2 * r.LR),
	}
}

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
	// WeightDecay times LR is the decay of a weight in an update, below 1; 0 for none.
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
