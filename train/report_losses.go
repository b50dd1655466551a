package train

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/model"
)

// A loss that is not a number ends a run. If a loss is finite but far above the first, the run
// continues, with a remark that its accuracy means little.

// Limits of losses as multiples of the first step's loss. The mean over a whole epoch's training
// stays below a few times the first loss: even a rise at the beginning under a high rate is
// recovered within the epoch. An evaluation may be far worse if a model overfits.
const (
	maxTraining   = 3
	maxEvaluation = 10
	minStart      = 0.1 // a smaller first loss is by chance
)

// diverges describes losses of an epoch that are far above start, the run's first loss, or not
// finite; "" if there are none, or if start is 0, unknown.
func diverges(start, training, evaluation float64) string {
	if start <= 0 || !finite(start) {
		return ""
	}
	base := max(start, minStart)
	over := func(loss, most float64) bool { return !(loss <= most*base) } // NaN included
	switch trains, evaluates := over(training, maxTraining), over(evaluation, maxEvaluation); {
	case trains && evaluates:
		return fmt.Sprintf("the losses of training, %s, and of evaluation, %s, are far over that of the first step, %s", quantity.Float(training), quantity.Float(evaluation), quantity.Float(start))
	case trains:
		return fmt.Sprintf("the training loss, %s, is far over that of the first step, %s", quantity.Float(training), quantity.Float(start))
	case evaluates:
		return fmt.Sprintf("the evaluation loss, %s, is far over that of the first step, %s", quantity.Float(evaluation), quantity.Float(start))
	}
	return ""
}

// firstLoss notes a step's loss, and this rank's first one since the run began or resumed.
func (r *reports) firstLoss(loss float64) {
	if r.recent = loss; r.first == 0 {
		r.first = loss
	}
}

// divergence describes the last epoch's divergence with a remedy; "" without one.
func (r *reports) divergence() string {
	text := diverges(r.past.Start, r.past.Last.TrainLoss, r.past.Last.EvalLoss)
	if text == "" {
		return ""
	}
	return text + ": training diverges, and its accuracy is meaningless: " + r.lowerRate()
}

// lowerRate returns the remedy for divergence.
func (r *reports) lowerRate() string {
	text := fmt.Sprintf("lower the learning rate (%s)", quantity.Exact(r.past.Last.LR))
	if usual := r.usualRate(); r.cfg.Optimizer == "sgd" && !usual.Scaled && usual.Batch > 0 && usual.Batch != r.globalBatch() {
		text += fmt.Sprintf(", which is meant for a global batch of %d: for one of %d linear scaling gives %s", usual.Batch, r.globalBatch(), quantity.Float(usual.scaled(r.globalBatch())))
	}
	return text
}

// UsualRate is a model's default learning rate with its batch.
type UsualRate struct {
	LR    float64
	Batch int // samples of a step, of all ranks; 0 if the rate is not the model's
	// Scaled reports whether the run scaled the rate to its own batch.
	Scaled bool
}

// scaled returns the rate for another batch size, in proportion, by the linear rule of Goyal et
// al., "Accurate, Large Minibatch SGD" (2017).
func (u UsualRate) scaled(batch int) float64 { return u.LR * float64(batch) / float64(u.Batch) }

// Advice is a text with the batch that the rate is for and, for sgd, the rate for another batch by
// the linear rule.
func (u UsualRate) Advice(batch int, optimizer string) string {
	switch {
	case u.Batch == 0:
		return ""
	case u.Scaled:
		return fmt.Sprintf("%s for a global batch of %d, scaled to %d", quantity.Exact(u.LR), u.Batch, batch)
	case batch == u.Batch:
		return fmt.Sprintf("usual for a global batch of %d", u.Batch)
	case optimizer != "sgd":
		return fmt.Sprintf("usual for a global batch of %d, here %d", u.Batch, batch)
	}
	return fmt.Sprintf("usual for a global batch of %d, here %d: linear scaling gives %s", u.Batch, batch, quantity.Float(u.scaled(batch)))
}

// A checkpoint is healthy if the loss of the next step or evaluation is: a step's loss is that of
// the parameters before it.

// divergedFactor is the multiple of the first step's loss above which training has diverged, and
// does not recover.
const divergedFactor = 100

type health struct {
	// Healthy is the step of the last checkpoint that is healthy; 0 without one.
	Healthy int64 `json:"healthy,omitempty"`
	// Diverged is the reason why training has diverged at the checkpoint, or "".
	Diverged string `json:"diverged,omitempty"`
}

// divergedBy returns the reason why losses of training and evaluation mean divergence, or "".
func divergedBy(start, training, evaluation float64) string {
	base := divergedFactor * max(start, minStart)
	switch {
	case start <= 0:
	case !(training <= base):
		return fmt.Sprintf("the training loss is %s, that of the first step was %s", quantity.Float(training), quantity.Float(start))
	case !(evaluation <= base):
		return fmt.Sprintf("the evaluation loss is %s, that of the first step was %s", quantity.Float(evaluation), quantity.Float(start))
	}
	return ""
}

// confirm determines, before a checkpoint is written at step done, whether losses show that it
// (after an evaluation) or the one before is healthy. It returns the step of the last healthy one.
func (r *reports) confirm(p position, before, done int64) int64 {
	start, last := r.past.Start, r.past.Last
	if start == 0 {
		start = r.first
	}
	evaluated, recent := p.step == 0 && last.Epoch == p.epoch-1, r.recent
	of, evaluation := before, 0.
	if evaluated {
		of, recent, evaluation = done, last.TrainLoss, last.EvalLoss
	}
	if r.past.Diverged = divergedBy(start, recent, evaluation); of > 0 && recent > 0 && diverges(start, recent, evaluation) == "" {
		r.past.Healthy = of
	}
	return r.past.Healthy
}

// resumable returns an error if the checkpoint has diverged, with the checkpoint to resume from
// instead.
func (s *checkpointInfo) resumable(dir string) error {
	h := s.Past.health
	if h.Diverged == "" {
		return nil
	}
	steps, err := checkpoint.Steps(dir)
	if err != nil {
		return err
	}
	slices.Reverse(steps)
	name := func(step int64) string { return filepath.Base(checkpoint.PathOf(dir, step)) }
	later := slices.DeleteFunc(slices.Clone(steps), func(step int64) bool { return step <= h.Healthy })
	if h.Healthy == 0 || !slices.Contains(steps, h.Healthy) || len(later) == 0 {
		return fmt.Errorf("%s has diverged: %s: no earlier checkpoint in %s is healthy: start again in another folder, with a lower learning rate", s.File, h.Diverged, dir)
	}
	return fmt.Errorf("%s has diverged: %s: the last healthy checkpoint is %s: move the %d after it (%s to %s) out of %s, and resume with a lower learning rate",
		s.File, h.Diverged, name(h.Healthy), len(later), name(later[0]), name(later[len(later)-1]), dir)
}

// notFinite returns the error of a loss that is not finite, with its sample or the learning rate.
func notFinite(loss, lr float64, b *data.Batch) error {
	if why := badSample(loss, b); why != nil {
		return why
	}
	return fmt.Errorf("the loss is %s, and all inputs are finite: training has diverged; lower the learning rate (now %s)", quantity.Exact(loss), quantity.Exact(lr))
}

// badSample names the sample of a batch with a value that is not finite; nil without such a sample.
func badSample(loss float64, b *data.Batch) error {
	for _, x := range []struct {
		kind   string
		values []float32
	}{{"value", b.Values}, {"target", b.Targets}} {
		i := slices.IndexFunc(x.values, func(v float32) bool { return v-v != 0 })
		if i < 0 || b.N == 0 {
			continue
		}
		each, where := len(x.values)/b.N, "of the batch"
		n := i / each
		if n < len(b.Index) {
			n, where = int(b.Index[n]), "of the training samples"
		}
		return fmt.Errorf("the loss is %s: row %d %s (counted from 0) has %s as %s %d: leave the row out or replace the value", quantity.Exact(loss), n, where, quantity.Exact(x.values[i]), x.kind, i%each)
	}
	return nil
}

func valuesOf(b model.Batch) []float32 {
	if b.Values == nil {
		return nil
	}
	return b.Values.Data
}
