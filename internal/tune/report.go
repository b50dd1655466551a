package tune

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Report describes a choice and later the steps that followed. Times are in seconds.
type Report struct {
	// Chosen is the adopted prediction, of All; times are 0 without a prediction.
	Chosen Prediction
	All    []Prediction
	Reason string
	// Groups and SHA256 describe the plan.
	Groups int
	SHA256 string
	// Replans is the number of new choices.
	Replans int
	// Measured covers the steps since the choice; nil for a new choice.
	Measured *Measured
}

// Measured holds step times on the slowest rank: medians, in seconds.
type Measured struct {
	Steps int // number of steps
	// Step is the mean step, as in Prediction.Step.
	Step float64
	// Exact and Reuse are of exact steps and of steps with reused thresholds; 0: no such step.
	Exact, Reuse float64
	Exposed      float64
}

func (t *Tuner) report(r Report) {
	if t.cfg.Report == nil {
		return
	}
	r.Chosen, r.All, r.Replans = t.choice, t.all, t.replans
	if r.Chosen.Strategy == "" {
		s := string(t.opt.Strategy())
		r.Chosen = Prediction{Strategy: s, Rule: t.candidate(s).rule(), PlanName: t.opt.PlanName(), Plan: t.opt.Plan()}
	}
	r.Groups, r.SHA256 = len(r.Chosen.Plan), r.Chosen.Plan.SHA256()
	t.cfg.Report(r)
}

// reason explains the choice in words.
func reason(all []Prediction, chosen Prediction) string {
	first := all[0]
	if chosen.Strategy != first.Strategy {
		return fmt.Sprintf("%s is predicted to be %s times as fast as %s", chosen.Strategy, quantity.Float(first.Step/chosen.Step), first.Strategy)
	}
	best := all[1]
	for _, p := range all[1:] {
		if p.Step < best.Step {
			best = p
		}
	}
	return fmt.Sprintf("compression does not pay here: %s is predicted to take %s ms, %s %s", first.Strategy, quantity.Milliseconds(1e3*first.Step), best.Strategy, quantity.Milliseconds(1e3*best.Step))
}
