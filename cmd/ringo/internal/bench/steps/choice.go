package steps

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/train"
)

// choice is the plan of a result and, if the plan was chosen by measurements or a profile, the
// predicted times of the mean step, of steps with exact selection and of other steps, to be
// compared with step_mean_ms, step_exact_ms and step_reuse_ms.
type choice struct {
	SHA256           string  `json:"plan_sha256"`
	PredictedMS      float64 `json:"predicted_ms,omitempty"`
	PredictedExactMS float64 `json:"predicted_exact_ms,omitempty"`
	PredictedReuseMS float64 `json:"predicted_reuse_ms,omitempty"`
}

func choiceOf(replica *train.Replica) choice {
	c := choice{SHA256: replica.Opt.Plan().SHA256()}
	p, ok := replica.Tuner.Choice()
	if !ok {
		return c
	}
	c.PredictedMS = 1e3 * p.Step
	if p.Exact != p.Reuse {
		c.PredictedExactMS, c.PredictedReuseMS = 1e3*p.Exact, 1e3*p.Reuse
	}
	return c
}

// String returns the part of the text line about the prediction.
func (c choice) String() string {
	switch {
	case c.PredictedMS == 0:
		return ""
	case c.PredictedExactMS == 0:
		return fmt.Sprintf("  predicted %.3f ms", c.PredictedMS)
	}
	return fmt.Sprintf("  predicted %.3f ms (exact %.3f, reuse %.3f)", c.PredictedMS, c.PredictedExactMS, c.PredictedReuseMS)
}

// tuned trains until plan and strategy are chosen and compared with the prediction, and fixes the
// choice, because a benchmark measures a single choice.
func tuned(job *ringo.Job, replica *train.Replica, batch *data.Batch) error {
	for replica.Tuner.Measuring() {
		if err := context.Cause(job.Context()); err != nil {
			return err
		}
		if _, err := replica.Backward(replica.Batch(batch), true); err != nil {
			return err
		}
		if err := replica.Step(); err != nil {
			return err
		}
	}
	return replica.Tuner.Stay()
}
