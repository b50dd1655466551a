package optim

import "github.com/ringo-ml/ringo/internal/simd"

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
	// Initial is the sum that shrinks steps by sqrt(2), positive.
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
