package progress

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/tune"
)

// choiceEvent is the JSON line of a choice, and of its comparison with steps. Times are in ms.
type choiceEvent struct {
	Event      string            `json:"event"` // "choice", then "choice_measured"
	Strategy   string            `json:"strategy"`
	Rule       string            `json:"dlgs_rule,omitempty"`
	Plan       string            `json:"plan"`
	SHA256     string            `json:"plan_sha256"`
	Buckets    int               `json:"buckets"`
	Why        string            `json:"why,omitempty"`
	Replans    int               `json:"again,omitempty"` // number of replans
	Predicted  float64           `json:"predicted_ms,omitempty"`
	PredExact  float64           `json:"predicted_exact_ms,omitempty"` // steps with exact selection, and other steps
	PredReuse  float64           `json:"predicted_reuse_ms,omitempty"`
	Step       float64           `json:"step_ms,omitempty"` // measured on the slowest rank
	StepExact  float64           `json:"step_exact_ms,omitempty"`
	StepReuse  float64           `json:"step_reuse_ms,omitempty"`
	Steps      int               `json:"steps,omitempty"` // measured steps
	Candidates []choiceCandidate `json:"candidates,omitempty"`
	Timeline   *choiceTimeline   `json:"predicted_timeline,omitempty"`
}

// choiceTimeline is the predicted step, in ms from the start of the forward pass.
type choiceTimeline struct {
	Forward    float64        `json:"forward_ms"`     // duration from 0
	ComputeEnd float64        `json:"compute_end_ms"` // end of backward, including selection within backward
	Step       float64        `json:"step_ms"`        // end of the update
	Buckets    []choiceBucket `json:"buckets"`
}

// choiceBucket is the predicted selection and exchange of a bucket.
type choiceBucket struct {
	Bucket      int     `json:"bucket"` // number in the plan
	SelectStart float64 `json:"select_start_ms"`
	SelectEnd   float64 `json:"select_end_ms"`
	SendStart   float64 `json:"send_start_ms"`
	SendEnd     float64 `json:"send_end_ms"`
}

// newChoiceTimeline returns nil without a prediction.
func newChoiceTimeline(t bucket.Timeline) *choiceTimeline {
	if len(t.Layers) == 0 {
		return nil
	}
	out := &choiceTimeline{Forward: 1e3 * t.Layers[0].Start, ComputeEnd: 1e3 * t.Compute, Step: 1e3 * t.Total}
	for i, g := range t.Buckets {
		out.Buckets = append(out.Buckets, choiceBucket{i, 1e3 * g.Select.Start, 1e3 * g.Select.End, 1e3 * g.Send.Start, 1e3 * g.Send.End})
	}
	return out
}

// choiceCandidate is a strategy with its predicted step time.
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
		Event: "choice", Strategy: p.Strategy, Rule: string(p.Rule), Plan: p.PlanName, SHA256: r.SHA256, Buckets: r.Groups, Why: r.Reason, Replans: r.Replans, Predicted: 1e3 * p.Step,
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
	e.Timeline = newChoiceTimeline(p.Timeline)
	for _, a := range r.All {
		e.Candidates = append(e.Candidates, choiceCandidate{a.Strategy, string(a.Rule), a.PlanName, len(a.Plan), 1e3 * a.Step, 1e3 * a.Compress, 1e3 * a.Exposed})
	}
	return e
}

// Measuring prints that codecs and exchanges are being measured.
func (r *Reporter) Measuring() {
	r.endPhase()
	r.phase = ""
	if r.style != "none" {
		fmt.Fprintln(r.status, "measuring what codecs and exchanges take here")
	}
}

// Choice reports a choice as text and JSON.
func (r *Reporter) Choice(made tune.Report) {
	r.endPhase()
	r.phase = "" // redraws the bar
	e := newChoiceEvent(made)
	lines := e.lines()
	if !r.verbose {
		lines = lines[:1] // without candidates and predictions
	}
	for _, line := range lines {
		fmt.Fprintln(r.out.Lines, line)
	}
	r.write(e)
}

func (e choiceEvent) lines() []string {
	if e.Event == "choice_measured" {
		text := fmt.Sprintf("%s, plan %s: predicted %s ms a step, measured %s (%+.1f %%) over %s", e.Strategy, e.Plan, cli.Milliseconds(e.Predicted), cli.Milliseconds(e.Step), 100*(e.Step/e.Predicted-1), cli.Counted(e.Steps, "step"))
		if e.Why != "" {
			text += ": " + e.Why
		}
		out := []string{text}
		if e.StepExact > 0 && e.StepReuse > 0 {
			out = append(out, fmt.Sprintf("  exact steps: predicted %s ms, measured %s; others: predicted %s, measured %s", cli.Milliseconds(e.PredExact), cli.Milliseconds(e.StepExact), cli.Milliseconds(e.PredReuse), cli.Milliseconds(e.StepReuse)))
		}
		return out
	}
	text := fmt.Sprintf("strategy %s%s, plan %s (%s)", e.Strategy, cli.After(", rule ", e.Rule), e.Plan, cli.Counted(e.Buckets, "bucket"))
	if e.Why != "" {
		text += ": " + e.Why
	}
	out := []string{text}
	if len(e.Candidates) == 1 {
		return append(out, fmt.Sprintf("  predicted %s ms a step", cli.Milliseconds(e.Predicted)))
	}
	for _, c := range e.Candidates {
		out = append(out, fmt.Sprintf("  %-6s predicted %8s ms a step in %s (codec %s, exposed %s)%s", c.Strategy, cli.Milliseconds(c.StepMS), cli.Counted(c.Buckets, "bucket"), cli.Milliseconds(c.Compress), cli.Milliseconds(c.Exposed), cli.After(", rule ", c.Rule)))
	}
	return out
}
