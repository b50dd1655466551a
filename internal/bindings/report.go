package bindings

import (
	"encoding/json"

	"github.com/ringo-ml/ringo/internal/tune"
)

// report is the result of Report. Times are in seconds, of the slowest rank.
type report struct {
	Strategy string  `json:"strategy"`
	Density  float64 `json:"density,omitempty"` // the sent share, or the threshold
	Plan     string  `json:"plan"`
	Buckets  []int   `json:"buckets"` // ends, see Buckets
	Reason   string  `json:"why,omitempty"`
	Replans  int     `json:"again,omitempty"` // number of new choices
	// Chosen is true after a choice by measurements, a profile or choices, false in the initial
	// state.
	Chosen bool `json:"chosen"`
	// Measuring reports whether a choice, or its comparison with measured steps, is still due.
	Measuring bool         `json:"measuring"`
	Steps     int64        `json:"steps"`
	Choices   tune.Choices `json:"choices"` // input of Tuning
	// Predicted are steps of each possible strategy with the best plan.
	Predicted []predicted     `json:"predicted,omitempty"`
	Measured  *measured       `json:"measured,omitempty"` // steps since the choice
	Profile   json.RawMessage `json:"profile,omitempty"`  // input of Tuning and of ringo plan
}

type predicted struct {
	Strategy string  `json:"strategy"`
	Buckets  int     `json:"buckets"`
	Step     float64 `json:"step_s"`
	Compress float64 `json:"compress_s"`
	Exposed  float64 `json:"exposed_s"` // communication not hidden by backward
}

type measured struct {
	Steps   int     `json:"steps"`
	Step    float64 `json:"step_s"`
	Exposed float64 `json:"exposed_s"`
}

// Report is a JSON object with the current strategy and plan, the reason, and the input for another
// run with the same choices.
func (s *Strategy) Report() ([]byte, error) {
	s.steps.Lock()
	defer s.steps.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.tuned
	if d == nil {
		return nil, notTuned("report")
	}
	r := report{
		Strategy: string(s.cfg.Strategy), Density: d.Spars(), Plan: d.planName, Buckets: d.plan.Ends(), Reason: d.report.Reason, Replans: d.report.Replans,
		Measuring: d.tuner.Measuring(), Steps: d.steps, Chosen: d.tuner.State().Chosen, Choices: d.tuner.State().Made,
	}
	for i := range r.Buckets {
		r.Buckets[i]++
	}
	for _, p := range d.report.All {
		r.Predicted = append(r.Predicted, predicted{p.Strategy, len(p.Plan), p.Step, p.Compress, p.Exposed})
	}
	if m := d.measured; m != nil {
		r.Measured = &measured{m.Steps, m.Step, m.Exposed}
	}
	if f, ok := d.tuner.Profile(); ok {
		data, err := tune.Encode(tune.Profile{Planner: &f})
		if err != nil {
			return nil, err
		}
		r.Profile = data
	}
	return json.Marshal(r)
}

func (d *tuned) setReport(r tune.Report) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.measured = r.Measured; r.Measured == nil {
		d.report = r
	}
}
