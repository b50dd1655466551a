package optim

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/simd"
)

// AdamW is Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov
// and Hutter 2019), as torch.optim.AdamW. In step t, from 1:
//
//	g = gradScale*grad
//	m = Beta1*m + (1-Beta1)*g
//	v = Beta2*v + (1-Beta2)*g*g
//	p = p - LR*WeightDecay*p - LR*m/(1-Beta1^t) / (sqrt(v/(1-Beta2^t)) + Eps)
//
// m and v start at zero, and subnormal values become zero. Factors that depend on t are computed in
// float64 once a step. An update moves seven values: p, g, m and v are read, p, m and v are
// written. [NewAdamW] has PyTorch's settings; [NewAdam] has no decay. Validate rejects the zero
// value.
//
// In tables the rule is lazy, as in torch.optim.SparseAdam: it applies to the rows that a step
// used, with the step's t, and moments of other rows do not decay ([AdamRows] has a count for each
// row). BindTables rejects weight decay.
type AdamW struct {
	// LR is the learning rate, positive. It may be changed between steps.
	LR float64
	// Beta1 and Beta2 are the decay of the moments, from 0 to below 1.
	Beta1, Beta2 float64
	// Eps keeps the divisor from zero, positive.
	Eps float64
	// WeightDecay times LR is the decay of a parameter in a step, below 1; 0 for none.
	WeightDecay float64
	// NoDecay lists ranges [lo, hi) of the arena without decay, such as biases and normalisations,
	// in any order. Bind reads it.
	NoDecay [][2]int

	plain         bool          // Adam, without weight decay
	kernels       *simd.Kernels // nil before Bind
	m, v          []float32
	noDecayRanges [][2]int // NoDecay sorted, without overlaps
	step          [2]float32
	factors       simd.AdamFactors
	tables
}

// NewAdamW is AdamW with a learning rate and PyTorch's settings: betas 0.9 and
// 0.999, eps 1e-8, weight decay 0.01. (PyTorch's rate is 0.001.)
func NewAdamW(lr float64) *AdamW {
	return &AdamW{LR: lr, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}
}

// NewAdam is Adam, named "adam", with a learning rate and PyTorch's settings: AdamW without weight
// decay. Validate rejects any decay.
func NewAdam(lr float64) *AdamW {
	return &AdamW{LR: lr, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, plain: true}
}

// Validate reports every invalid setting.
func (a *AdamW) Validate() error { return a.faults().err(a.Name()) }

func (a *AdamW) faults() (f faults) {
	f.positive("learning rate", a.LR)
	f.fraction("beta1", a.Beta1)
	f.fraction("beta2", a.Beta2)
	f.positive("eps", a.Eps)
	f.notNegative("weight decay", a.WeightDecay)
	f.require(!(a.LR*a.WeightDecay >= 1), "weight decay %s with learning rate %s: want a product below 1", quantity.Exact(a.WeightDecay), quantity.Exact(a.LR))
	f.require(!a.plain || a.WeightDecay == 0, "weight decay %s: adam has none; use adamw", quantity.Exact(a.WeightDecay))
	return f
}

// Name returns "adamw", or "adam" after NewAdam.
func (a *AdamW) Name() string {
	if a.plain {
		return "adam"
	}
	return "adamw"
}

// Bind checks the settings, including NoDecay's bounds, and makes n values of each moment.
func (a *AdamW) Bind(n int) error {
	f := a.faults()
	f.bound(len(a.m), n, a.kernels != nil)
	for _, r := range a.NoDecay {
		f.require(0 <= r[0] && r[0] <= r[1] && r[1] <= n, "range [%d, %d) without decay: want it within the arena's %d values", r[0], r[1], n)
	}
	if len(f) > 0 || a.kernels != nil {
		return f.err(a.Name())
	}
	a.kernels, a.m, a.v = simd.Host(), make([]float32, n), make([]float32, n)
	a.noDecayRanges = merged(a.NoDecay)
	return nil
}

// merged returns the union of ranges as separate ascending ranges.
func merged(ranges [][2]int) (out [][2]int) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) })
	for _, r := range ranges {
		if last := len(out) - 1; last >= 0 && r[0] <= out[last][1] {
			out[last][1] = max(out[last][1], r[1])
		} else if r[0] < r[1] {
			out = append(out, r)
		}
	}
	return out
}

// SetLR sets LR.
func (a *AdamW) SetLR(lr float64) {
	checkLR(a.Name(), lr)
	a.LR = lr
}

// CurrentLR returns LR.
func (a *AdamW) CurrentLR() float64 { return a.LR }

// BeginStep counts the step and computes its factors.
func (a *AdamW) BeginStep() {
	t := a.steps() + 1
	a.step = [2]float32{float32(t % stepDigit), float32(t / stepDigit)}
	a.factors = a.factorsOf(t)
}

func (a *AdamW) factorsOf(t uint64) simd.AdamFactors {
	return simd.AdamFactors{
		Keep:  float32(1 - float64(a.LR*a.WeightDecay)),
		Beta1: float32(a.Beta1), Comp1: float32(1 - a.Beta1),
		Beta2: float32(a.Beta2), Comp2: float32(1 - a.Beta2),
		Rate:   float32(a.LR / (1 - power(a.Beta1, t))),
		Unbias: float32(1 / math.Sqrt(1-power(a.Beta2, t))),
		Eps:    float32(a.Eps),
	}
}

// stepDigit is the base of the step number, stored as two float32s, so that the number is sent and
// averaged like the rest of the state: a mean over equal numbers is exact.
const stepDigit = 1 << 16

func (a *AdamW) steps() uint64 {
	return uint64(math.Round(float64(a.step[0]))) + stepDigit*uint64(math.Round(float64(a.step[1])))
}

// power is x to the n, by squaring. math.Pow may differ in the last bit between architectures;
// products alone cannot.
func power(x float64, n uint64) float64 {
	p := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			p = float64(p * x)
		}
		x = float64(x * x)
	}
	return p
}

// Update applies the rule to the arena's values [lo, lo+len(params)). It panics without Bind or if
// the ranges do not fit.
func (a *AdamW) Update(lo int, params, grads []float32, gradScale float32) {
	f := a.factors
	f.Scale = gradScale
	m, v := a.m[lo:lo+len(params)], a.v[lo:lo+len(params)]
	for at := 0; at < len(params); {
		n, decays := a.stretch(lo + at)
		end := min(len(params), at+n)
		f.Keep = 1
		if decays {
			f.Keep = a.factors.Keep
		}
		a.kernels.AdamW(params[at:end], m[at:end], v[at:end], grads[at:end], f)
		at = end
	}
}

// stretch returns the number of values from `at` on that all decay or all do not, and whether they
// do. Cost: logarithmic in the number of ranges.
func (a *AdamW) stretch(at int) (n int, decays bool) {
	i := sort.Search(len(a.noDecayRanges), func(i int) bool { return a.noDecayRanges[i][1] > at })
	switch {
	case i == len(a.noDecayRanges):
		return len(a.m) - at, true
	case a.noDecayRanges[i][0] > at:
		return a.noDecayRanges[i][0] - at, true
	default:
		return a.noDecayRanges[i][1] - at, false
	}
}

// State returns the moments and the step's number, in two digits.
func (a *AdamW) State() []State {
	return []State{{Name: "moment1", Data: a.m}, {Name: "moment2", Data: a.v}, {Name: "step", Data: a.step[:]}}
}

// BindTables checks the settings and makes the moments of tables.
func (a *AdamW) BindTables(dims [][2]int) error {
	f := a.faults()
	refuseDecay(&f, dims, a.WeightDecay)
	return a.tables.bind(f, a.Name(), dims, func(dim int) []RowPart {
		return []RowPart{{Name: "moment1", Width: dim}, {Name: "moment2", Width: dim}}
	})
}

// UpdateRows applies the rule to the rows ids of a table.
func (a *AdamW) UpdateRows(table int, data []float32, ids []int32, grads []float32, gradScale float32) {
	f, state := a.factors, a.tables.parts[table]
	f.Scale, f.Keep = gradScale, 1
	simd.Host().AdamRows(data, state[0], state[1], ids, grads, a.tables.dim(table), f)
}
