package compress

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/optim"
)

// Rule selects how [DLGS] changes its threshold H between two exact selections. An exact selection
// sets H to the k-th largest magnitude, so that k entries are sent.
type Rule string

const (
	// RuleCorrected adjusts H by the ratio of sent to requested entries. The zero value of a Rule
	// means RuleCorrected.
	//
	// Residuals grow for about 1/Ratio steps after training begins, because an entry waits that
	// long before it is sent. A constant threshold then selects two or three times k entries; when
	// gradients shrink it selects half of k. H therefore changes after each step by the ratio of
	// sent to requested entries, so that the mean over a period stays near k. Gradients also differ
	// between batches and ranks, and the rank with the most entries delays all ranks. In groups of
	// at least 64 Ki values, a step therefore first samples one value in 64, but at least 4 Ki, if
	// about 32 or more sampled entries should be sent. If H would select far more or fewer of the
	// sample than required, H becomes the sample's estimate. If the count is outside [k/4, 4k], the
	// step selects exactly.
	RuleCorrected Rule = "corrected"
	// RulePaper is Algorithm 1 of the paper: H stays constant, and all entries that reach it are
	// sent, without a limit.
	RulePaper Rule = "paper"
)

// Rules returns the names of the rules, the default first.
func Rules() []Rule { return []Rule{RuleCorrected, RulePaper} }

// DLGS selects by a reused threshold (Ju, Kang, Liu, Huo, J. Xi'an Jiaotong Univ. 2024(9)). In its
// first step and then periodically, it selects k = max(1, ceil(Ratio*n)) entries exactly, as TopK
// does, and stores the k-th magnitude H. Steps between two such steps send all nonzero g with |g|
// >= H, where g is the gradient plus the residual, in one pass. Unsent values become the residual.
type DLGS struct {
	// Ratio is the share of values in an exact selection, above 0 and at most 1.
	Ratio float64
	// Every is the number of steps from one exact selection to the next. 0 means DefaultEvery.
	Every int
	// Rule is the rule for steps between two exact selections. Empty means RuleCorrected.
	Rule Rule
}

// DefaultEvery is the default period of DLGS's exact selections. For groups of at least 16 Ki
// values an exact step takes 1.7 to 3 times as long as a step that reuses the threshold, and all
// steps together 4 to 12 % longer than without exact steps; for 4 Ki values the factors are about
// 4, and a fifth longer.
const DefaultEvery = 16

// Name returns a text such as "dlgs(0.01, every 16, corrected)".
func (c DLGS) Name() string {
	return fmt.Sprintf("dlgs(%v, every %d, %s)", c.Ratio, c.every(), c.rule())
}

func (c DLGS) every() int {
	if c.Every == 0 {
		return DefaultEvery
	}
	return c.Every
}

func (c DLGS) rule() Rule {
	if c.Rule == "" {
		return RuleCorrected
	}
	return c.Rule
}

// Validate reports every bad setting.
func (c DLGS) Validate() error {
	bad := faults.In("dlgs: ")
	bad.If(!slices.Contains(Rules(), c.rule()), "rule %q is not known: use %s or %s", c.Rule, RuleCorrected, RulePaper)
	bad.If(c.Every < 0 || c.Every > 1<<20,
		"exact every %d steps: want 1 to %d, or 0 for %d", c.Every, 1<<20, DefaultEvery)
	bad.Add(checkRatio("dlgs", c.Ratio))
	return bad.Err()
}

// Bind creates the state for n values. The first step is exact.
func (c DLGS) Bind(n int) Selection {
	r := reused{k: Entries(c.Ratio, n), every: c.every(), savedState: make([]float32, dlgsOver)}
	if c.rule() == RulePaper {
		return &paper{r}
	}
	r.savedState = make([]float32, dlgsOver+1)
	return &corrected{r}
}

// reused has the state that both rules share.
type reused struct {
	k, every   int
	last       Pick
	savedState []float32 // checkpoint data, indexed as below
}

// Indices in reused.savedState.
const (
	dlgsThreshold = iota // H for the next step
	dlgsLeft             // steps left with this threshold
	dlgsOver             // accumulated excess of sent entries, in multiples of k; RuleCorrected only
)

// takes reports whether the next step reuses the threshold, and counts the step.
func (d *reused) takes() bool {
	if d.savedState[dlgsLeft] < 1 {
		return false
	}
	d.savedState[dlgsLeft]--
	return true
}

// exact selects exactly and stores the threshold for later steps.
func (d *reused) exact(w *Workspace, s *Sparse, base int, residual, grad []float32) {
	d.last = Pick{w.Exact(s, base, residual, grad, d.k), true}
	d.savedState[dlgsThreshold], d.savedState[dlgsLeft] = d.last.Threshold, float32(d.every-1)
}

func (d *reused) Last() Pick           { return d.last }
func (d *reused) State() []optim.State { return []optim.State{{Name: "threshold", Data: d.savedState}} }

type paper struct{ reused }

func (d *paper) Select(w *Workspace, s *Sparse, base int, residual, grad []float32) {
	if !d.takes() {
		d.exact(w, s, base, residual, grad)
		return
	}
	d.last = Pick{Threshold: d.savedState[dlgsThreshold]}
	w.reaching(s, base, residual, grad, d.last.Threshold, len(residual), d.k)
}
