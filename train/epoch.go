package train

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/models"
)

// epoch trains over the training set once and evaluates.
func (r *run) epoch(epoch int) (Epoch, error) {
	var t tally
	r.job.SetStatus(fmt.Sprintf("training epoch %d", epoch))
	r.order.Start(epoch)
	r.replica.ResetState()
	start := time.Now()
	for step := range r.steps {
		if err := r.step(epoch, step, &t); err != nil {
			return Epoch{}, err
		}
	}
	t.trainS += time.Since(start).Seconds()
	r.job.SetStatus(fmt.Sprintf("evaluating epoch %d", epoch))
	if err := r.replica.Sync(); err != nil {
		return Epoch{}, err
	}
	if err := r.evaluate(epoch, &t); err != nil {
		return Epoch{}, err
	}
	traffic := r.job.Traffic()
	t.payload, t.wire = float64(traffic.PayloadSent-r.payload0), float64(traffic.WireSent-r.wire0)
	r.payload0, r.wire0 = traffic.PayloadSent, traffic.WireSent
	if err := t.sum(r.job.Group()); err != nil {
		return Epoch{}, err
	}
	return r.report(epoch, &t)
}

// lr is the learning rate of a step of an epoch.
func (r *run) lr(epoch, step int) float64 {
	return r.cfg.schedule().At((epoch-1)*r.steps+step, r.steps, r.cfg.Epochs)
}

// step is one step of one rank.
func (r *run) step(epoch, step int, t *tally) error {
	var res Result
	k := r.accumulation()
	lr := r.lr(epoch, step)
	r.replica.SetLR(lr)
	for i := range k {
		b, err := next(r.order)
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		res = r.replica.Backward(r.replica.Batch(b), i == k-1)
		t.train(res, b.N)
		if !finite(res.Loss) {
			return fmt.Errorf("step %d: the loss is %v: training has diverged; lower the learning rate (now %v)", step, res.Loss, lr)
		}
	}
	if err := r.replica.Step(); err != nil {
		return err
	}
	t.exposedS += r.replica.Opt.Exposed().Seconds()
	r.obs.Progress(Progress{Phase: "train", Epoch: epoch, Epochs: r.cfg.Epochs, Done: step + 1, Total: r.steps,
		Samples: k * r.cfg.Batch * r.job.Size(), Loss: res.Loss})
	return nil
}

// next is the next batch of an epoch that has one.
func next(l *data.Loader) (*data.Batch, error) {
	b, ok, err := l.Next()
	if err == nil && !ok {
		err = fmt.Errorf("the epoch has no more than %d batches", l.Steps())
	}
	return b, err
}

func finite(x float64) bool { return x-x == 0 }

// evaluate runs the model over this rank's part of the evaluation set, every
// sample exactly once over all ranks.
func (r *run) evaluate(epoch int, t *tally) error {
	r.shard.Start(epoch)
	r.replica.ResetState()
	r.scores = r.scores[:0]
	for done, batches := 1, r.shard.Steps(); done <= batches; done++ {
		b, err := next(r.shard)
		if err != nil {
			return fmt.Errorf("evaluating: %w", err)
		}
		if b.N == 0 {
			continue // another rank's part is one sample longer
		}
		res := r.replica.Evaluate(r.replica.Batch(b))
		t.evaluate(res)
		for i, s := range res.Scores {
			r.scores = append(r.scores, newScored(s, b.Labels[i] == 1))
		}
		r.obs.Progress(Progress{Phase: "evaluate", Epoch: epoch, Epochs: r.cfg.Epochs, Done: done, Total: batches, Samples: b.N * r.job.Size()})
	}
	return nil
}

// report turns the sums over all ranks into the epoch's figures.
func (r *run) report(epoch int, t *tally) (Epoch, error) {
	np := float64(r.job.Size())
	steps := float64(r.steps) * np
	r.trainS += t.trainS / np
	r.samples += int64(t.samples)
	r.terms += int64(t.terms)
	e := Epoch{
		Event: "epoch", Epoch: epoch, Seed: r.cfg.Seed, LR: r.lr(epoch, r.steps-1),
		TrainLoss: t.loss / t.terms, TrainAccuracy: t.correct / t.terms,
		EvalLoss: t.evalLoss / t.evalTerms, EvalAccuracy: t.evalCorrect / t.evalTerms,
		SamplesPerS: t.samples / (t.trainS / np),
		StepMS:      1000 * t.trainS / steps, ExposedCommMS: 1000 * t.exposedS / steps,
		BytesSent: int64(t.payload), WireBytes: int64(t.wire),
	}
	if !finite(e.EvalLoss) {
		return Epoch{}, fmt.Errorf("evaluating: the loss is %v: training has diverged; lower the learning rate (now %v)", e.EvalLoss, e.LR)
	}
	switch r.spec.Task {
	case models.Language:
		e.TrainPerplexity, e.EvalPerplexity = perplexity(e.TrainLoss), perplexity(e.EvalLoss)
		e.TokensPerS = Figure{Value: t.terms / (t.trainS / np), Known: true}
	case models.Click:
		area, ok, err := gatherAUC(r.job.Group(), r.scores)
		if err != nil {
			return Epoch{}, err
		}
		e.EvalAUC, e.EvalLogLoss = Figure{Value: area, Known: ok}, Figure{Value: e.EvalLoss, Known: true}
	}
	return e, nil
}
