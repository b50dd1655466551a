package optim

import "github.com/ringo-ml/ringo/internal/simd"

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

// UpdateRows applies the rule to rows ids of data and of the state. A learning rate of 0 changes no
// value.
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
