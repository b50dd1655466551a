package optim

import "github.com/ringo-ml/ringo/internal/simd"

// FTRL is FTRL-Proximal (McMahan et al., Ad Click Prediction: a View from the Trenches, 2013,
// algorithm 1): Adagrad's rates, with penalties that keep weights without clear gradients exactly
// zero. With alpha = LR:
//
//	g = gradScale*grad
//	z = z + alpha*g - (sqrt(s+g*g) - sqrt(s))*p
//	s = s + g*g
//	p = 0 where |z| <= alpha*L1, else
//	    -(z - sign(z)*alpha*L1) / (Beta + sqrt(s) + alpha*L2)
//
// z is the paper's z times alpha. With a constant alpha the weights are the paper's. If a schedule
// changes alpha, each gradient keeps its rate and weights do not jump, as they would with the
// paper's z. A rate of 0 changes no value.
//
// Weights may start at any value, unlike the paper's, which start at 0: a z of 0 with a nonzero
// weight means the z that would have produced the weight, so that training starts from the given
// weights. (No update produces this pair.)
//
// s starts at Initial. An update moves seven values: p, g, z and s are read, p, z and s are
// written. [NewFTRL] has the default settings; Validate rejects the zero value. In tables the rule
// applies to the rows that a step used.
type FTRL struct {
	// LR is the learning rate, positive: alpha of the paper. Callers may change it between steps.
	LR float64
	// Beta divides the rate before the first gradients, positive.
	Beta float64
	// L1 and L2 are the penalties, 0 for none. A penalty is weighed against the sum of the
	// gradients of all steps, not against each gradient.
	L1, L2 float64
	// Initial is the initial value of the sums of squares, 0 or more.
	Initial float64

	kernels *simd.Kernels // nil before Bind
	z, sum  []float32
	tables
}

// NewFTRL is FTRL with a learning rate, beta 1 and no penalties. Beta is meant for gradients of
// single samples. Gradients of a batch's mean are small in comparison and need a rate about ten
// times as high as other rules, or a smaller beta.
func NewFTRL(lr float64) *FTRL { return &FTRL{LR: lr, Beta: 1} }

// Validate reports every invalid setting.
func (o *FTRL) Validate() error { return o.faults().err(o.Name()) }

func (o *FTRL) faults() faults {
	rule := o.rows()
	return rule.faults()
}

// Name returns "ftrl".
func (o *FTRL) Name() string { return "ftrl" }

// Bind checks the settings and makes the state of n values.
func (o *FTRL) Bind(n int) error {
	f := o.faults()
	f.bound(len(o.z), n, o.kernels != nil)
	if len(f) > 0 || o.kernels != nil {
		return f.err(o.Name())
	}
	o.kernels, o.z, o.sum = simd.Host(), make([]float32, n), make([]float32, n)
	fill(o.sum, float32(o.Initial))
	return nil
}

// SetLR sets LR.
func (o *FTRL) SetLR(lr float64) {
	checkLR(o.Name(), lr)
	o.LR = lr
}

// CurrentLR returns LR.
func (o *FTRL) CurrentLR() float64 { return o.LR }

// BeginStep has no effect: z and the sums are FTRL's only memory of earlier steps.
func (o *FTRL) BeginStep() {}

// Update applies the rule to the arena's values [lo, lo+len(params)). It panics without Bind or if
// the ranges do not fit.
func (o *FTRL) Update(lo int, params, grads []float32, gradScale float32) {
	if o.LR == 0 {
		return
	}
	rule := o.rows()
	z, sum := o.z[lo:lo+len(params)], o.sum[lo:lo+len(params)]
	o.kernels.FTRL(params, z, sum, grads, rule.factors(gradScale))
}

// State returns z and the sums of squares.
func (o *FTRL) State() []State {
	return []State{{Name: "linear", Data: o.z}, {Name: "sum", Data: o.sum}}
}

// BindTables checks the settings and makes the state of tables.
func (o *FTRL) BindTables(dims [][2]int) error {
	rule := o.rows()
	return o.tables.bind(o.faults(), o.Name(), dims, rule.Parts)
}

// UpdateRows applies the rule to the rows ids of a table.
func (o *FTRL) UpdateRows(table int, data []float32, ids []int32, grads []float32, gradScale float32) {
	rule := o.rows()
	rule.UpdateRows(data, o.tables.parts[table], o.tables.dim(table), ids, grads, gradScale)
}

func (o *FTRL) rows() FTRLRows {
	return FTRLRows{LR: o.LR, Beta: o.Beta, L1: o.L1, L2: o.L2, Initial: o.Initial}
}
