package train

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/model"
)

// epoch trains over what is left of the training set in the epoch that at is in,
// evaluates, tells of it and moves at to the next epoch.
func (r *run) epoch(at *position) error {
	if err := r.trainEpoch(at); err != nil {
		return err
	}
	epoch, t, steps := at.epoch, &at.tally, at.step
	if r.cut && r.cfg.Checkpoint.Dir != "" {
		if err := r.save(*at); err != nil {
			return err
		}
	}
	r.job.SetStatus(fmt.Sprintf("evaluating epoch %d", epoch))
	r.setPosition("evaluating", epoch, steps)
	if err := r.sync(); err != nil {
		return err
	}
	if err := r.meetScores(); err != nil {
		return err
	}
	t.median = r.medianStep()
	whole, err := r.evaluateAll(epoch, t)
	if err != nil {
		return err
	}
	e, err := r.report(epoch, steps, t, whole)
	if err != nil {
		return err
	}
	r.past.Last = e
	r.obs.Epoch(e)
	r.remarkSkipped(epoch, steps)
	if text := r.divergence(); text != "" && !r.divergenceReported {
		r.divergenceReported = true
		r.remark(epoch, "%s", text)
	}
	if r.cut {
		return nil // it was saved as it was
	}
	*at = position{epoch: epoch + 1, tally: r.newTally()}
	r.past.skips.Epoch = 0
	better, err := r.afterEpoch(e, r.stepsDone(*at))
	if err == nil && (r.due(epoch*r.steps, true) || r.cfg.Checkpoint.Dir != "" && (better || r.ended != "")) {
		err = r.save(*at)
	}
	return err
}

// trainEpoch does the steps of the epoch that are not done yet.
func (r *run) trainEpoch(at *position) (err error) {
	r.job.SetStatus(fmt.Sprintf("training epoch %d", at.epoch))
	r.setPosition("", at.epoch, at.step+1)
	if len(r.cfg.WarmupDensity) > 0 {
		if err := r.replica.Opt.SetSpars(r.cfg.density(at.epoch)); err != nil {
			return err
		}
	}
	r.order.Start(at.epoch)
	if at.step == 0 {
		r.replica.ResetState()
	} else if err := r.seek(at); err != nil {
		return err
	}
	start := time.Now()
	r.stepS = slices.Grow(r.stepS[:0], r.steps)
	for at.step < r.steps && !r.cut {
		if err := r.advance(at); stopped(err) {
			return r.saveLast(at, start, err)
		} else if err != nil {
			return err
		}
		if !r.cut && r.due((at.epoch-1)*r.steps+at.step, false) {
			if start, err = r.saveMidEpoch(at, start); err != nil {
				return err
			}
		}
	}
	at.tally.trainS += time.Since(start).Seconds()
	if r.cfg.Layers && r.job.Rank() == 0 {
		r.layers = r.replica.Layers()
	}
	return nil
}

// countTraffic adds what was sent since it was last counted.
func (r *run) countTraffic(t *epochCounters) {
	now := r.job.Traffic()
	t.payload += float64(now.PayloadSent - r.payload0)
	t.wire += float64(now.WireSent - r.wire0)
	r.payload0, r.wire0 = now.PayloadSent, now.WireSent
}

// wall is how many seconds ago the run began or was resumed.
func (r *run) wall() float64 { return time.Since(r.started).Seconds() }

// lr is the learning rate of a step of an epoch.
func (r *run) lr(epoch, step int) float64 {
	return r.cfg.schedule().At((epoch-1)*r.steps+step, r.steps, r.cfg.Epochs)
}

// during records that a phase begins, and, when what it returns is called, that it has ended.
func (r *run) during(p record.Phase) (end func()) {
	rec := r.job.Recorder()
	op := rec.BeginPhase(p, rec.Now())
	return func() { op.End(rec.Now(), -1, false) }
}

// medianStep is the median time in seconds of the epoch's steps since the run
// began or was resumed.
func (r *run) medianStep() float64 {
	n := len(r.stepS)
	if n == 0 {
		return 0
	}
	slices.Sort(r.stepS)
	return (r.stepS[(n-1)/2] + r.stepS[n/2]) / 2
}

// next is the next batch of an epoch that has one.
func next(l batches) (*data.Batch, error) {
	b, ok, err := l.Next()
	if err == nil && !ok {
		err = fmt.Errorf("the epoch has no more than %d batches", l.Steps())
	}
	return b, err
}

func finite(x float64) bool { return x-x == 0 }

// evaluateAll evaluates, and adds up what the epoch and the evaluation were like over the ranks. Where a rank is lost meanwhile the
// others share the evaluation set out anew, so that its figures are of all samples.
func (r *run) evaluateAll(epoch int, t *epochCounters) (evaluation, error) {
	for {
		ranks := r.peers.liveRanks()
		if err := r.partitionEval(ranks); err != nil {
			return evaluation{}, err
		}
		whole, err := r.evaluate(epoch)
		if err != nil {
			return evaluation{}, err
		}
		r.countTraffic(t)
		t.first = r.first
		sum := *t
		sum.train.Sums = slices.Clone(t.train.Sums)
		if whole.words, err = addUp(r.peers, append(sum.all(), whole.counts.Fields()...), whole.words); err != nil {
			return evaluation{}, fmt.Errorf("adding up the epoch's figures: %w", err)
		}
		if slices.Equal(ranks, r.peers.liveRanks()) {
			*t = sum
			return whole, nil
		}
	}
}

// report turns the sums over all ranks into the epoch's figures.
func (r *run) report(epoch, step int, t *epochCounters, whole evaluation) (Epoch, error) {
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
		Event: "epoch", Epoch: epoch, Seed: r.cfg.Seed, LR: r.lr(epoch, max(0, step-1)), Done: r.stepsDone(position{epoch: epoch, step: step}), WallS: r.wall(),
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
