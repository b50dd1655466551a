package tune

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Report tells of a choice, and later of how steps then went. Times are in seconds.
type Report struct {
	// Chosen is what the job goes on with, of All; its times are 0 where nothing was
	// predicted.
	Chosen Prediction
	All    []Prediction
	Reason string
	// Groups and SHA256 are those of its plan.
	Groups int
	SHA256 string
	// Replans counts how often it was chosen anew.
	Replans int
	// Measured are the steps since the choice; nil when it has just been made.
	Measured *Measured
}

// Measured is what steps took on the slowest rank: medians, in seconds.
type Measured struct {
	Steps int // how many
	// Step is the mean step that Prediction.Step predicts.
	Step float64
	// Exact and Reuse are of steps that selected exactly and of others; 0: there was
	// none.
	Exact, Reuse float64
	Exposed      float64
}

// report completes r and hands it on.
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

// reason says in words why all[0] or another was chosen.
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
