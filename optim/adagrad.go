package optim

import "github.com/ringo-ml/ringo/internal/simd"

// Adagrad scales each value's rate by the root of the sum of its squared gradients (Duchi, Hazan
// and Singer 2011), as torch.optim.Adagrad without decay of the rate:
//
//	g = gradScale*grad + WeightDecay*p
//	s = s + g*g
//	p = p - LR*g / (sqrt(s) + Eps)
//
// s starts at Initial. An update moves five values: p, g and s are read, p and s are written.
// [NewAdagrad] has PyTorch's settings; Validate rejects the zero value. In tables the rule applies
// to each value of the rows that a step used; BindTables rejects weight decay.
type Adagrad struct {
	// LR is the learning rate, positive. Callers may change it between steps.
	LR float64
	// WeightDecay is the factor of the L2 penalty's gradient, 0 for none.
	WeightDecay float64
	// Initial is the initial value of the sums of squares, 0 or more. Above 0 the sums of the
	// arena's padding are not zero, but its parameters stay zero.
	Initial float64
	// Eps keeps the divisor from zero, positive.
	Eps float64

	kernels *simd.Kernels // nil before Bind
	sum     []float32
	tables
}

// NewAdagrad is Adagrad with a learning rate and PyTorch's settings: no weight
// decay, sums from 0, eps 1e-10. (PyTorch's rate is 0.01.)
func NewAdagrad(lr float64) *Adagrad { return &Adagrad{LR: lr, Eps: 1e-10} }

// Validate reports every invalid setting.
func (a *Adagrad) Validate() error { return a.faults().err(a.Name()) }

func (a *Adagrad) faults() (f faults) {
	f.positive("learning rate", a.LR)
	f.notNegative("weight decay", a.WeightDecay)
	f.notNegative("initial sum", a.Initial)
	f.positive("eps", a.Eps)
	return f
}

// Name returns "adagrad".
func (a *Adagrad) Name() string { return "adagrad" }

// Bind checks the settings and makes the sums of n values.
func (a *Adagrad) Bind(n int) error {
	f := a.faults()
	f.bound(len(a.sum), n, a.kernels != nil)
	if len(f) > 0 || a.kernels != nil {
		return f.err(a.Name())
	}
	a.kernels, a.sum = simd.Host(), make([]float32, n)
	fill(a.sum, float32(a.Initial))
	return nil
}

// SetLR sets LR.
func (a *Adagrad) SetLR(lr float64) {
	checkLR(a.Name(), lr)
	a.LR = lr
}

// CurrentLR returns LR.
func (a *Adagrad) CurrentLR() float64 { return a.LR }

// BeginStep has no effect: the sums are Adagrad's only memory of earlier steps.
func (a *Adagrad) BeginStep() {}

// Update applies the rule to the arena's values [lo, lo+len(params)). It panics without Bind or if
// the ranges do not fit.
func (a *Adagrad) Update(lo int, params, grads []float32, gradScale float32) {
	a.kernels.Adagrad(params, a.sum[lo:lo+len(params)], grads, float32(a.LR), float32(a.WeightDecay), gradScale, float32(a.Eps))
}

// State returns the sums of squares.
func (a *Adagrad) State() []State { return []State{{Name: "sum", Data: a.sum}} }

// BindTables checks the settings and makes the sums of tables.
func (a *Adagrad) BindTables(dims [][2]int) error {
	f := a.faults()
	refuseDecay(&f, dims, a.WeightDecay)
	rule := a.rows()
	return a.tables.bind(f, a.Name(), dims, rule.Parts)
}

// UpdateRows applies the rule to the rows ids of a table.
func (a *Adagrad) UpdateRows(table int, data []float32, ids []int32, grads []float32, gradScale float32) {
	rule := a.rows()
	rule.UpdateRows(data, a.tables.parts[table], a.tables.dim(table), ids, grads, gradScale)
}

func (a *Adagrad) rows() AdagradRows { return AdagradRows{LR: a.LR, Initial: a.Initial, Eps: a.Eps} }
