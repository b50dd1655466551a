package optim

import "github.com/ringo-ml/ringo/internal/simd"

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
