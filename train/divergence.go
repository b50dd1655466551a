package train

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// A loss that is not a number ends a run. One that has only become absurd does not, but what the run says of its accuracy
// then means nothing, which a person should know.

// How many times the loss of the first step losses may come to. Of a whole epoch's training the mean
// stays below a few times: even a rise at the beginning, under a rate that is high, is made good within it. An evaluation may
// be far worse than that where a model has learnt its training set by heart.
const (
	mostTraining   = 3
	mostEvaluation = 10
	leastStart     = 0.1 // a first loss below it is by chance
)

// diverges tells what of an epoch's losses has grown far over that of the run's first step, start;
// "" where all is well, or where start is not known: 0. A loss that is not finite has.
func diverges(start, training, evaluation float64) string {
	if start <= 0 || !finite(start) {
		return ""
	}
	base := max(start, leastStart)
	over := func(loss, most float64) bool { return !(loss <= most*base) } // NaN, too
	switch trains, evaluates := over(training, mostTraining), over(evaluation, mostEvaluation); {
	case trains && evaluates:
		return fmt.Sprintf("the losses of training, %s, and of evaluation, %s, are far over that of the first step, %s", quantity.Float(training), quantity.Float(evaluation), quantity.Float(start))
	case trains:
		return fmt.Sprintf("the training loss, %s, is far over that of the first step, %s", quantity.Float(training), quantity.Float(start))
	case evaluates:
		return fmt.Sprintf("the evaluation loss, %s, is far over that of the first step, %s", quantity.Float(evaluation), quantity.Float(start))
	}
	return ""
}

// firstLoss notes a step's loss, and that of this rank's first step, of the run or since it was
// resumed.
func (r *reports) firstLoss(loss float64) {
	if r.recent = loss; r.first == 0 {
		r.first = loss
	}
}

// divergence is what diverges says of the last epoch, and what to do; "" where all is well.
func (r *reports) divergence() string {
	text := diverges(r.past.Start, r.past.Last.TrainLoss, r.past.Last.EvalLoss)
	if text == "" {
		return ""
	}
	return text + ": training blows up, and its accuracy means nothing: " + r.lowerRate()
}

// lowerRate is the remedy for losses that blow up.
func (r *reports) lowerRate() string {
	text := fmt.Sprintf("lower the learning rate (%s)", quantity.Exact(r.past.Last.LR))
	if usual := r.usualRate(); r.cfg.Optimizer == "sgd" && !usual.Scaled && usual.Batch > 0 && usual.Batch != r.globalBatch() {
		text += fmt.Sprintf(", which is meant for a global batch of %d: for one of %d linear scaling gives %s", usual.Batch, r.globalBatch(), quantity.Float(usual.scaled(r.globalBatch())))
	}
	return text
}

// UsualRate is for which batch a learning rate is a model's usual one.
type UsualRate struct {
	LR    float64
	Batch int // samples of a step, of all ranks; 0: the rate is not the model's usual one
	// Scaled reports whether the run has that rate scaled to its own batch.
	Scaled bool
}

// scaled is the rate for another batch, by the linear rule of Goyal et al., "Accurate, Large Minibatch SGD" (2017).
func (u UsualRate) scaled(batch int) float64 { return u.LR * float64(batch) / float64(u.Batch) }

// Advice tells for which batch the rate is, and for another the one that the linear rule gives, which is for sgd alone.
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
