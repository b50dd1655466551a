package train

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/model"
)

// reports is the part of a run that measures and reports: losses, scores, epochs, the best one.
type reports struct {
	*runEnv
	data *runData

	past               runHistory
	initial            []string // on rank 0: initial values of parameters, in lines
	first, recent      float64  // losses of this rank's first and last step
	divergenceReported bool
	skipReported       bool
	scores             *lastScores // nil unless the model predicts clicks
	payload0, wire0    int64       // traffic already counted
	stepS              []float64   // seconds of each step of the epoch
	residual           time.Time   // of the last metric of the residual norm
	layers             []Layer     // of the epoch's last step, if asked for
}

// countTraffic adds what was sent since it was last counted.
func (r *reports) countTraffic(t *epochCounters) {
	now := r.job.Traffic()
	t.payload += float64(now.PayloadSent - r.payload0)
	t.wire += float64(now.WireSent - r.wire0)
	r.payload0, r.wire0 = now.PayloadSent, now.WireSent
}

// medianStep is the median time in seconds of the epoch's steps since the run
// began or was resumed.
func (r *reports) medianStep() float64 {
	n := len(r.stepS)
	if n == 0 {
		return 0
	}
	slices.Sort(r.stepS)
	return (r.stepS[(n-1)/2] + r.stepS[n/2]) / 2
}

// report turns the sums over all ranks into the epoch's figures.
func (r *reports) report(p position, done int64, whole evaluation) (Epoch, error) {
	epoch, step, t := p.epoch, p.step, p.tally
	np := float64(len(r.peers.liveRanks()))
	steps := float64(step) * np
	r.past.TrainS += t.trainS / np
	if r.past.Start == 0 {
		r.past.Start = t.first / np
	}
	r.past.Samples += int64(t.samples)
	r.past.Terms += int64(t.train.Terms)
	m, eval := r.replica.model, r.evaluated(whole)
	e := Epoch{
		Event: "epoch", Epoch: epoch, Seed: r.cfg.Seed, LR: r.data.lr(epoch, max(0, step-1)), Done: done, WallS: r.wall(),
		TrainLoss: t.train.Loss / t.train.Terms, EvalLoss: eval.Loss,
		Train: m.Figures(t.train, nil, true), Eval: eval.Figures, Progressive: r.scores.latest(),
		SamplesPerS: t.samples / (t.trainS / np), StepMS: 1000 * t.trainS / steps,
		BytesSent: int64(t.payload), WireBytes: int64(t.wire),
		StepMedianMS: 1000 * t.median / np, BreakDown: t.spent.breakDown(),
		DataWaitMS: 1000 * t.spent.data / t.spent.steps, PullWaitMS: 1000 * t.spent.pull / t.spent.steps, TuneS: t.tuneS / np, StepBytesSent: t.spent.bytes / t.spent.steps, Skipped: r.past.skips.Epoch,
	}
	e.Layers, e.Stages = r.layers, r.replica.split.spent()
	if !finite(e.EvalLoss) {
		return Epoch{}, fmt.Errorf("the loss of the evaluation is %s: training has diverged, or a row of the evaluation samples has a value that is not finite; lower the learning rate (now %s)", quantity.Exact(e.EvalLoss), quantity.Exact(e.LR))
	}
	if r.spec.Task == model.Language {
		e.TokensPerS = OptionalFloat{Value: t.train.Terms / (t.trainS / np), Known: true}
	}
	return e, nil
}

// stepTime is about how long a step takes, in seconds; 0 where it is not known.
func (r *reports) stepTime() float64 {
	sum := 0.0
	for _, s := range r.stepS {
		sum += s
	}
	if sum == 0 {
		return 0
	}
	return sum / float64(len(r.stepS)*len(r.workers))
}
