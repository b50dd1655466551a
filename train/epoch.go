package train

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/trace"
)

// epoch trains over what is left of the training set in the epoch that at is in,
// evaluates, tells of it and moves at to the next epoch.
func (r *run) epoch(at *position) error {
	if err := r.trainEpoch(at); err != nil {
		return err
	}
	epoch, t := at.epoch, &at.tally
	r.job.SetStatus(fmt.Sprintf("evaluating epoch %d", epoch))
	r.reach("evaluating", epoch, r.steps)
	if err := r.replica.Sync(); err != nil {
		return err
	}
	t.median = r.medianStep()
	scores, err := r.evaluateAll(epoch, t)
	if err != nil {
		return err
	}
	e, err := r.report(epoch, t, scores)
	if err != nil {
		return err
	}
	r.past.Last = e
	r.obs.Epoch(e)
	if text := r.blownUp(); text != "" && !r.blown {
		r.blown = true
		r.remark(epoch, "%s", text)
	}
	*at = position{epoch: epoch + 1}
	if r.due(epoch*r.steps, true) {
		return r.save(*at)
	}
	return nil
}

// trainEpoch does the steps of the epoch that are not done yet.
func (r *run) trainEpoch(at *position) (err error) {
	r.job.SetStatus(fmt.Sprintf("training epoch %d", at.epoch))
	r.reach("", at.epoch, at.step+1)
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
	r.beginStep(start)
	for at.step < r.steps {
		if err := r.advance(at); stopped(err) {
			return r.saveLast(at, start, err)
		} else if err != nil {
			return err
		}
		if r.due((at.epoch-1)*r.steps+at.step, false) {
			if start, err = r.saveMidEpoch(at, start); err != nil {
				return err
			}
			r.beginStep(start)
		}
	}
	at.tally.trainS += time.Since(start).Seconds()
	if r.cfg.Layers && r.job.Rank() == 0 {
		r.layers = r.replica.Layers()
	}
	return nil
}

// beginStep says that a step begins behind something that is part of none.
func (r *run) beginStep(now time.Time) {
	r.watch.Begin(now)
	r.replica.Tuner.Begin()
}

// advance does a step or, where parameters lie on servers, those up to the next checkpoint. A *ringo.StoppedError says that
// all ranks stop where at is then.
func (r *run) advance(at *position) error {
	if len(r.workers) > 0 {
		return r.trainCrew(at)
	}
	if err := r.heed(at.epoch, at.step, 1); err != nil {
		return err
	}
	if err := r.step(at.epoch, at.step, &at.tally); err != nil {
		return err
	}
	at.step++
	return nil
}

// countTraffic adds what was sent since it was last counted.
func (r *run) countTraffic(t *tally) {
	now := r.job.Traffic()
	t.payload += float64(now.PayloadSent - r.payload0)
	t.wire += float64(now.WireSent - r.wire0)
	r.payload0, r.wire0 = now.PayloadSent, now.WireSent
}

// lr is the learning rate of a step of an epoch.
func (r *run) lr(epoch, step int) float64 {
	return r.cfg.schedule().At((epoch-1)*r.steps+step, r.steps, r.cfg.Epochs)
}

// step is one step of one rank.
func (r *run) step(epoch, step int, t *tally) error {
	r.reach("", epoch, step+1)
	var res Result
	k := r.accumulation()
	lr := r.lr(epoch, step)
	r.replica.SetLR(lr, r.lr(epoch, step+1))
	r.trace().BeginStep(r.replica.Opt.Steps())
	for i := range k {
		b, err := r.nextBatch()
		if err != nil {
			return err
		}
		if res, err = r.replica.Backward(r.replica.Batch(b), i == k-1); err != nil {
			return err
		}
		t.train(res, b.N)
		r.firstLoss(res.Loss)
		if !finite(res.Loss) {
			return fmt.Errorf("the loss is %v: training has diverged; lower the learning rate (now %v)", res.Loss, lr)
		}
	}
	r.watch.Ready(time.Now())
	tuned := r.replica.Tuner.Spent()
	if err := r.replica.Step(); err != nil {
		return err
	}
	tuned = r.replica.Tuner.Spent() - tuned
	spent := r.watch.End(time.Now().Add(-tuned), r.replica.Opt.Times())
	if tuned > 0 { // measured and chosen, which is part of no step
		t.trainS -= tuned.Seconds()
		t.tuneS += tuned.Seconds()
		r.watch.Begin(time.Now())
	}
	r.stepS = append(r.stepS, spent.Whole.Seconds())
	t.spent.add(spent)
	r.obs.Progress(Progress{Phase: "train", Epoch: epoch, Epochs: r.cfg.Epochs, Done: step + 1, Total: r.steps,
		Samples: k * r.cfg.Batch * r.job.Size(), Loss: res.Loss})
	return nil
}

// nextBatch is the next training batch. How long it takes counts as waiting.
func (r *run) nextBatch() (*data.Batch, error) {
	start := time.Now()
	b, err := next(r.order)
	end := time.Now()
	r.watch.Waited(end.Sub(start))
	r.trace().Span(trace.Data, "data", start, end)
	return b, err
}

// trace is where times are recorded, nil for nowhere.
func (r *run) trace() *trace.Recorder { return r.cfg.Exchange.Trace }

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

// evaluateAll evaluates, and adds up the figures of the epoch over the ranks; of click
// models it returns all scores. Where a rank is lost meanwhile the others share the
// evaluation set out anew, so that its figures are of all samples.
func (r *run) evaluateAll(epoch int, t *tally) ([]scored, error) {
	for {
		ranks := r.peers.there()
		if err := r.shareOut(ranks); err != nil {
			return nil, err
		}
		t.evalLoss, t.evalCorrect, t.evalTerms = 0, 0, 0
		if err := r.evaluate(epoch, t); err != nil {
			return nil, err
		}
		r.countTraffic(t)
		t.first = r.first
		sum := *t
		scores, err := sum.sum(r.peers, r.scores, r.spec.Task == models.Click)
		if err != nil {
			return nil, err
		}
		if slices.Equal(ranks, r.peers.there()) {
			*t = sum
			return scores, nil
		}
	}
}

// evaluate runs the model over this rank's part of the evaluation set, every
// sample exactly once over all ranks.
func (r *run) evaluate(epoch int, t *tally) error {
	start := r.trace().Now()
	defer func() { r.trace().Span(trace.Evaluation, "evaluation", start, r.trace().Now()) }()
	r.shard.Start(epoch)
	r.replica.ResetState()
	r.scores = r.scores[:0]
	if len(r.workers) > 0 {
		return r.evaluateCrew(epoch, t)
	}
	for done, batches := 1, r.shard.Steps(); done <= batches; done++ {
		b, err := next(r.shard)
		if err != nil {
			return err
		}
		if b.N == 0 {
			continue // another rank's part is one sample longer
		}
		res, err := r.replica.Evaluate(r.replica.Batch(b))
		if err != nil {
			return err
		}
		t.evaluate(res)
		r.addScores(b, res)
		r.obs.Progress(Progress{Phase: "evaluate", Epoch: epoch, Epochs: r.cfg.Epochs, Done: done, Total: batches, Samples: b.N * len(r.sharers)})
	}
	return nil
}

// addScores keeps the scores of a click model's batch.
func (r *run) addScores(b *data.Batch, res Result) {
	for i, s := range res.Scores {
		r.scores = append(r.scores, newScored(s, b.Labels[i] == 1))
	}
}

// report turns the sums over all ranks, and their scores, into the epoch's figures.
func (r *run) report(epoch int, t *tally, scores []scored) (Epoch, error) {
	np := float64(len(r.peers.there()))
	steps := float64(r.steps) * np
	r.past.TrainS += t.trainS / np
	if r.past.Start == 0 {
		r.past.Start = t.first / np
	}
	r.past.Samples += int64(t.samples)
	r.past.Terms += int64(t.terms)
	e := Epoch{
		Event: "epoch", Epoch: epoch, Seed: r.cfg.Seed, LR: r.lr(epoch, r.steps-1),
		TrainLoss: t.loss / t.terms, TrainAccuracy: t.correct / t.terms,
		EvalLoss: t.evalLoss / t.evalTerms, EvalAccuracy: t.evalCorrect / t.evalTerms,
		SamplesPerS: t.samples / (t.trainS / np), StepMS: 1000 * t.trainS / steps,
		BytesSent: int64(t.payload), WireBytes: int64(t.wire),
		StepMedianMS: 1000 * t.median / np, BreakDown: t.spent.breakDown(),
		DataWaitMS: 1000 * t.spent.data / t.spent.steps, PullWaitMS: 1000 * t.spent.pull / t.spent.steps, TuneS: t.tuneS / np, StepBytesSent: t.spent.bytes / t.spent.steps,
	}
	e.Layers = r.layers
	if !finite(e.EvalLoss) {
		return Epoch{}, fmt.Errorf("the loss is %v: training has diverged; lower the learning rate (now %v)", e.EvalLoss, e.LR)
	}
	switch r.spec.Task {
	case models.Language:
		e.TrainPerplexity, e.EvalPerplexity = perplexity(e.TrainLoss), perplexity(e.EvalLoss)
		e.TokensPerS = Figure{Value: t.terms / (t.trainS / np), Known: true}
	case models.Click:
		area, ok := auc(scores)
		e.EvalAUC, e.EvalLogLoss = Figure{Value: area, Known: ok}, Figure{Value: e.EvalLoss, Known: true}
	}
	return e, nil
}
