package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/tune"
)

// tuning says by what a job chooses algorithms of collectives, plans and strategies:
// by fixed rules, by what is measured at its start, or by what an earlier job saved.
type tuning struct {
	tune    bool
	save    string
	profile string

	saved  bool
	loaded tune.Profile // of profile
	found  tune.Profile // so far, of this job
}

func (t *tuning) register(fs *pflag.FlagSet) {
	fs.BoolVar(&t.tune, "tune", false, "measure the links and, for a plan that needs it, the first steps, and choose by that; results then depend on what was measured")
	fs.StringVar(&t.save, "save-profile", "", "write what was measured to `FILE`")
	fs.StringVar(&t.profile, "profile", "", "choose by what --save-profile wrote to `FILE`, with the same results each time; every rank reads it")
}

// check reads the profile and reports every fault. alone says that there is one rank.
func (t *tuning) check(cmd *cobra.Command, alone bool, faults *faultList) {
	if t.save != "" && !t.tune && !measuresItself(cmd) {
		faults.add("--save-profile %s has nothing to save without --tune", t.save)
	} else if t.save != "" && !t.tune && alone {
		faults.add("--save-profile %s has nothing to save on one rank, which exchanges nothing", t.save)
	}
	if t.tune && t.profile != "" {
		faults.add("--tune and --profile %s are two sources for one choice: choose one", t.profile)
	}
	if t.profile == "" {
		return
	}
	var err error
	if t.loaded, err = tune.Load(t.profile); err != nil {
		faults.add("--profile: %w", err)
	} else if t.loaded.Collectives == nil && !plans(cmd) {
		faults.add("--profile %s has no table of collectives, and nothing else is chosen here: leave it out", t.profile)
	}
}

// measuresItself tells whether the command measures without being told to.
func measuresItself(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("strategy")
	return f != nil && f.Value.String() == string(tune.Auto)
}

// plans tells whether the command chooses a plan or a strategy by measurements.
func plans(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("plan")
	return measuresItself(cmd) || f != nil && oneOf(f.Value.String(), tune.Plans()...)
}

// forTraining is what a training run is to measure or choose by.
func (t *tuning) forTraining() train.Tuning {
	return train.Tuning{Measure: t.tune, Profile: t.loaded.Planner}
}

// before is body after the tuning of collectives.
func (t *tuning) before(body func(*ringo.Job) error) func(*ringo.Job) error {
	if !t.tune {
		return body
	}
	return func(job *ringo.Job) error {
		job.SetStatus("measuring the links")
		p, err := collective.Tune(job.Group())
		if err == nil {
			err = job.Group().Use(p)
		}
		if err == nil && job.Rank() == 0 {
			t.found.Collectives = &p
			err = t.saveFound()
		}
		if err != nil {
			return err
		}
		return body(job)
	}
}

// planned keeps what rank 0 measured of its steps.
func (t *tuning) planned(f bucket.Profile) error {
	t.found.Planner = &f
	return t.saveFound()
}

func (t *tuning) saveFound() error {
	if t.save == "" {
		return nil
	}
	if err := tune.Save(t.save, t.found); err != nil {
		return fmt.Errorf("--save-profile: %w", err)
	}
	t.saved = true
	return nil
}

// unsaved is the fault of a run that ended before there was anything to save.
func (t *tuning) unsaved() error {
	if t.save == "" || t.saved {
		return nil
	}
	return fmt.Errorf("--save-profile: %s was not written: the run ended before its first steps had been measured: give it more", t.save)
}

// choiceEvent is a choice's line of JSON, and once steps have been compared with it
// another. Times are in ms.
type choiceEvent struct {
	Event      string            `json:"event"` // "choice", then "choice_measured"
	Strategy   string            `json:"strategy"`
	Rule       string            `json:"dlgs_rule,omitempty"`
	Plan       string            `json:"plan"`
	SHA256     string            `json:"plan_sha256"`
	Buckets    int               `json:"buckets"`
	Why        string            `json:"why,omitempty"`
	Again      int               `json:"again,omitempty"` // how often it was chosen anew
	Predicted  float64           `json:"predicted_ms,omitempty"`
	PredExact  float64           `json:"predicted_exact_ms,omitempty"` // of steps that select exactly, and others
	PredReuse  float64           `json:"predicted_reuse_ms,omitempty"`
	Step       float64           `json:"step_ms,omitempty"` // measured, of the slowest rank
	StepExact  float64           `json:"step_exact_ms,omitempty"`
	StepReuse  float64           `json:"step_reuse_ms,omitempty"`
	Steps      int               `json:"steps,omitempty"` // measured
	Candidates []choiceCandidate `json:"candidates,omitempty"`
}

// choiceCandidate is what a strategy was predicted to take.
type choiceCandidate struct {
	Strategy string  `json:"strategy"`
	Rule     string  `json:"dlgs_rule,omitempty"`
	Plan     string  `json:"plan"`
	Buckets  int     `json:"buckets"`
	StepMS   float64 `json:"step_ms"`
	Compress float64 `json:"compress_ms"`
	Exposed  float64 `json:"exposed_comm_ms"`
}

func newChoiceEvent(r tune.Report) choiceEvent {
	p := r.Chosen
	e := choiceEvent{
		Event: "choice", Strategy: p.Strategy, Rule: string(p.Rule), Plan: p.PlanName, SHA256: r.SHA256, Buckets: r.Groups, Why: r.Why, Again: r.Again, Predicted: 1e3 * p.Step,
	}
	if p.Exact != p.Reuse {
		e.PredExact, e.PredReuse = 1e3*p.Exact, 1e3*p.Reuse
	}
	if m := r.Measured; m != nil {
		e.Event, e.Steps, e.Step = "choice_measured", m.Steps, 1e3*m.Step
		if p.Exact != p.Reuse {
			e.StepExact, e.StepReuse = 1e3*m.Exact, 1e3*m.Reuse
		}
		return e
	}
	for _, a := range r.All {
		e.Candidates = append(e.Candidates, choiceCandidate{a.Strategy, string(a.Rule), a.PlanName, len(a.Plan), 1e3 * a.Step, 1e3 * a.Compress, 1e3 * a.Exposed})
	}
	return e
}

// measuring tells a person what the next seconds are for.
func (r *reporter) measuring() {
	r.endPhase()
	r.phase = ""
	if r.style != "none" {
		fmt.Fprintln(r.status, "measuring what codecs and exchanges take here")
	}
}

// choice tells a person and a machine of a choice.
func (r *reporter) choice(made tune.Report) {
	r.endPhase()
	r.phase = "" // the bar begins anew
	e := newChoiceEvent(made)
	for _, line := range e.lines() {
		fmt.Fprintln(r.lines, line)
	}
	r.write(e)
}

// lines are what a person is told.
func (e choiceEvent) lines() []string {
	if e.Event == "choice_measured" {
		text := fmt.Sprintf("%s, plan %s: predicted %s ms a step, measured %s (%+.1f %%) over %s", e.Strategy, e.Plan, msText(e.Predicted), msText(e.Step), 100*(e.Step/e.Predicted-1), counted(e.Steps, "step"))
		if e.Why != "" {
			text += ": " + e.Why
		}
		out := []string{text}
		if e.StepExact > 0 && e.StepReuse > 0 {
			out = append(out, fmt.Sprintf("  exact steps: predicted %s ms, measured %s; others: predicted %s, measured %s", msText(e.PredExact), msText(e.StepExact), msText(e.PredReuse), msText(e.StepReuse)))
		}
		return out
	}
	text := fmt.Sprintf("strategy %s%s, plan %s (%s)", e.Strategy, ruleText(e.Rule), e.Plan, counted(e.Buckets, "bucket"))
	if e.Why != "" {
		text += ": " + e.Why
	}
	out := []string{text}
	if len(e.Candidates) == 1 {
		return append(out, fmt.Sprintf("  predicted %s ms a step", msText(e.Predicted)))
	}
	for _, c := range e.Candidates {
		out = append(out, fmt.Sprintf("  %-6s predicted %8s ms a step in %s (codec %s, exposed %s)%s", c.Strategy, msText(c.StepMS), counted(c.Buckets, "bucket"), msText(c.Compress), msText(c.Exposed), ruleText(c.Rule)))
	}
	return out
}

// ruleText says by which rule a strategy reuses thresholds, where it does.
func ruleText(rule string) string {
	if rule == "" {
		return ""
	}
	return ", rule " + rule
}
