package compress

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/optim"
)

// Rule says what [DLGS] does between two exact selections, with the threshold H that the
// last one has found: the k-th largest magnitude.
type Rule string

const (
	// RuleCorrected follows what was sent against what was asked for. The zero value of a
	// Rule means RuleCorrected.
	//
	// What is kept grows for about 1/Ratio steps after training begins, because entries wait about
	// so long until they are sent, so that a threshold that stays lets through two or three times
	// k entries then; of gradients that fade it lets through half of k. So H is corrected after
	// each step by what was sent of what was asked for, and the mean over a period stays near k.
	// And gradients differ from batch to batch, and from rank to rank: of groups of 64 Ki values
	// and more a step first looks at some, one in 64 and at least 4 Ki, where about 32 or more of
	// them should be sent, and where H would let through far more or less than is wanted of these,
	// it becomes what they say. Ranks that send most keep all waiting. When the count leaves
	// [k/4, 4k], the step selects exactly after all.
	RuleCorrected Rule = "corrected"
	// RulePaper is Algorithm 1 of the paper: H stays as it is, and all that reaches it is sent,
	// however many these are.
	RulePaper Rule = "paper"
)

// Rules are the names of the rules, the default first.
func Rules() []Rule { return []Rule{RuleCorrected, RulePaper} }

// DLGS selects by a threshold that is reused (Ju, Kang, Liu, Huo, J. Xi'an
// Jiaotong Univ. 2024(9)). In its first step and again after every so many, k = max(1,
// ceil(Ratio*n)) entries are selected exactly, as TopK does, and the k-th magnitude H is kept;
// the steps between send |g| >= H, zeros left out, for the cost of one pass over gradient and
// residual. g is the gradient with what was kept added, and what is not sent is kept.
type DLGS struct {
	// Ratio is the share of values that an exact selection sends, above 0 and at most 1.
	Ratio float64
	// Every is how many steps there are from one exact selection to the next. 0: DefaultEvery.
	Every int
	// Rule is what the steps between two exact selections do. Empty: RuleCorrected.
	Rule Rule
}

// DefaultEvery is the period of DLGS's exact selections. For groups of 16 Ki values
// and more an exact step costs 1.7 to 3 times one that reuses the threshold, so that
// all steps together cost 4 to 12 % more than if none were exact; for 4 Ki values
// about 4 times and a fifth more.
const DefaultEvery = 16

// Name is such as "dlgs(0.01, every 16, corrected)".
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
	var errs []error
	if !slices.Contains(Rules(), c.rule()) {
		errs = append(errs, fmt.Errorf("dlgs: rule %q is not known: use %s or %s", c.Rule, RuleCorrected, RulePaper))
	}
	if c.Every < 0 || c.Every > 1<<20 {
		errs = append(errs, fmt.Errorf("dlgs: exact every %d steps: want 1 to %d, or 0 for %d", c.Every, 1<<20, DefaultEvery))
	}
	return errors.Join(append(errs, checkRatio("dlgs", c.Ratio))...)
}

// Bind makes the state for n values: its first step is exact.
func (c DLGS) Bind(n int) Selection {
	r := reused{k: Entries(c.Ratio, n), every: c.every(), savedState: make([]float32, dlgsOver)}
	if c.rule() == RulePaper {
		return &paper{r}
	}
	r.savedState = make([]float32, dlgsOver+1)
	return &corrected{r}
}

// reused is what both rules have.
type reused struct {
	k, every   int
	last       Pick
	savedState []float32 // what a checkpoint holds, by the places below
}

// Places in reused.savedState.
const (
	dlgsThreshold = iota // of the next step
	dlgsLeft             // steps left that may use it
	dlgsOver             // by how much thresholds let through more than was asked for, in steps of k: of RuleCorrected
)

// takes tells whether a step uses the threshold, and counts it.
func (d *reused) takes() bool {
	if d.savedState[dlgsLeft] < 1 {
		return false
	}
	d.savedState[dlgsLeft]--
	return true
}

// exact selects exactly, and keeps the threshold for the steps that follow.
func (d *reused) exact(w *Workspace, s *Sparse, base int, residual, grad []float32) {
	d.last = Pick{w.Exact(s, base, residual, grad, d.k), true}
	d.savedState[dlgsThreshold], d.savedState[dlgsLeft] = d.last.Threshold, float32(d.every-1)
}

func (d *reused) Last() Pick           { return d.last }
func (d *reused) State() []optim.State { return []optim.State{{Name: "threshold", Data: d.savedState}} }

// paper is RulePaper.
type paper struct{ reused }

func (d *paper) Select(w *Workspace, s *Sparse, base int, residual, grad []float32) {
	if !d.takes() {
		d.exact(w, s, base, residual, grad)
		return
	}
	d.last = Pick{Threshold: d.savedState[dlgsThreshold]}
	w.reaching(s, base, residual, grad, d.last.Threshold, len(residual), d.k)
}
