package train

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/model"
)

// With Exchange.NonFinite "skip", a step with a loss or gradient that is not finite on any rank
// changes no parameters, no running statistics and no state of the model between batches. Training
// metrics exclude such steps.

// maxSkipped is the number of consecutive skipped steps after which the run fails. Skipped steps do
// not change parameters, so that a longer series is due to the parameters, or to nearly all
// samples: if one step in ten has a finite gradient, the probability of a longer series is 3 in
// 100,000.
const maxSkipped = 100

// skips counts skipped steps; distopt.Setup has their number in the run.
type skips struct {
	Epoch int `json:"skipped_of_epoch,omitempty"`
	InRow int `json:"skipped_in_row,omitempty"`
}

// note copies the values that forward passes of a step change, for restore.
func (r *Replica) note() {
	if !r.skips {
		return
	}
	r.before = copies(r.before, r.moved())
}

// moved returns the values that a forward pass changes: running statistics, and the state that a
// model carries.
func (r *Replica) moved() [][]float32 { return append([][]float32{r.Params.Buffers()}, r.state()...) }

// restore copies the values of note back.
func (r *Replica) restore() { putBack(r.moved(), r.before) }

// reject makes all ranks skip the step of a batch without a finite loss.
func (r *Replica) reject(loss float64, last bool) {
	r.Opt.Reject(fmt.Errorf("the loss is %s", quantity.Exact(loss)))
	if last {
		r.Params.ZeroGrads()
	}
}

type counted struct {
	train                  model.Counts
	samples, first, recent float64
}

// counted returns a copy of the training counters before a step that may be skipped.
func (w *trainerThread) counted(c *threadPool) (out counted) {
	if w.replica.skips {
		out = counted{w.tally.train, w.tally.samples, c.reports.first, c.reports.recent}
		out.train.Sums = slices.Clone(out.train.Sums)
	}
	return out
}

// leaveOut restores the counters after a skipped step.
func (w *trainerThread) leaveOut(c *threadPool, before counted) {
	if w.replica.Opt.Times().Skipped != nil {
		w.tally.train, w.tally.samples, c.reports.first, c.reports.recent = before.train, before.samples, before.first, before.recent
	}
}

// whyRejected returns the reason to skip the step of a batch without a finite loss.
func whyRejected(loss, lr float64, b *data.Batch) error {
	if why := badSample(loss, b); why != nil {
		return why
	}
	return fmt.Errorf("the loss is %s, and all inputs are finite: where that is frequent, lower the learning rate (now %s)", quantity.Exact(loss), quantity.Exact(lr))
}

// skipped counts a skipped step, and returns an error after too many.
func (r *reports) skipped(epoch, step int) error {
	if !r.replica.skips { // threads are at different steps
		return nil
	}
	why, s := r.replica.Opt.Times().Skipped, &r.past.skips
	if why == nil {
		s.InRow = 0
		return nil
	}
	s.Epoch++
	s.InRow++
	switch {
	case s.Epoch >= r.data.steps:
		return fmt.Errorf("all %s of the epoch were skipped, the last one because %w", quantity.Count(r.data.steps, "step"), why)
	case s.InRow >= maxSkipped:
		return fmt.Errorf("%d consecutive steps were skipped, the last one because %w", s.InRow, why)
	case !r.skipReported:
		r.skipReported = true
		r.remark(epoch, "skipped step %d of epoch %d: %v; each epoch counts the steps that it skips", step, epoch, why)
	}
	return nil
}

func (r *reports) remarkSkipped(epoch, steps int) {
	if n := r.past.skips.Epoch; n > 0 {
		r.remark(epoch, "epoch %d skipped %d of %s: a loss or a gradient was not finite", epoch, n, quantity.Count(steps, "step"))
	}
}
