package train

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/evalmetrics"
)

// epochLoop is the part of a run that trains and evaluates, epoch by epoch.
type epochLoop struct {
	*runEnv
	data       *runData
	reports    *reports
	resumption *resumption
	saver      *saver

	stops *ringo.Stopper

	tableWords int  // limit of the words of an evaluation's tables
	judges     bool // evaluations have each sample's loss
	permutes   bool // an input is permuted: of the tables only the mean loss counts
	groups     *evalmetrics.Grouping
}

// epoch trains over the remaining steps of an epoch, evaluates, reports, and sets at to the
// beginning of the next epoch.
func (l *epochLoop) epoch(at *position) error {
	if err := l.trainEpoch(at); err != nil {
		return err
	}
	epoch, t, steps := at.epoch, &at.tally, at.step
	if l.cut && l.cfg.Checkpoint.Dir != "" {
		if err := l.saver.save(*at); err != nil {
			return err
		}
	}
	l.job.SetStatus(fmt.Sprintf("evaluating epoch %d", epoch))
	l.setPosition("evaluating", epoch, steps)
	if err := l.sync(); err != nil {
		return err
	}
	if err := l.reports.meetScores(); err != nil {
		return err
	}
	t.median = l.reports.medianStep()
	whole, err := l.evaluateAll(epoch, t)
	if err != nil {
		return err
	}
	e, err := l.reports.report(position{epoch: epoch, step: steps, tally: *t}, l.resumption.stepsDone(*at), whole)
	if err != nil {
		return err
	}
	l.reports.past.Last = e
	l.obs.Epoch(e)
	l.reports.remarkSkipped(epoch, steps)
	if text := l.reports.divergence(); text != "" && !l.reports.divergenceReported {
		l.reports.divergenceReported = true
		l.remark(epoch, "%s", text)
	}
	if text := l.reports.past.follow(epoch, e.TrainLoss, e.EvalLoss); text != "" {
		l.remark(epoch, "%s", text)
	}
	if l.cut {
		return nil // the run was saved before
	}
	*at = position{epoch: epoch + 1, tally: l.replica.newTally()}
	l.reports.past.skips.Epoch = 0
	better, err := l.afterEpoch(e, l.resumption.stepsDone(*at))
	if err == nil && (l.saver.due(epoch*l.data.steps, true) || l.cfg.Checkpoint.Dir != "" && (better || l.ended != "")) {
		err = l.saver.save(*at)
	}
	return err
}

func (l *epochLoop) trainEpoch(at *position) (err error) {
	l.job.SetStatus(fmt.Sprintf("training epoch %d", at.epoch))
	l.setPosition("", at.epoch, at.step+1)
	if len(l.cfg.WarmupDensity) > 0 {
		for _, w := range l.workers {
			if err := w.replica.Opt.SetSpars(l.cfg.density(at.epoch)); err != nil {
				return err
			}
		}
	}
	l.data.order.Start(at.epoch)
	if at.step == 0 {
		l.replica.resetStates()
	} else if err := l.data.seek(at); err != nil {
		return err
	}
	start := time.Now()
	l.reports.stepS = slices.Grow(l.reports.stepS[:0], l.data.steps)
	for at.step < l.data.steps && !l.cut {
		if err := l.advance(at); stopped(err) {
			return l.saver.saveLast(at, start, err)
		} else if err != nil {
			return err
		}
		for _, save := range l.saver.after(at) {
			if start, err = l.saver.saveMidEpoch(at, start, save); err != nil {
				return err
			}
		}
	}
	at.tally.trainS += time.Since(start).Seconds()
	if l.cfg.Layers && l.job.Rank() == 0 {
		l.reports.layers = l.replica.Layers()
	}
	return nil
}

// next returns the next batch, or an error at the epoch's end.
func next(l batches) (*data.Batch, error) {
	b, ok, err := l.Next()
	if err == nil && !ok {
		err = fmt.Errorf("the epoch has no more than %d batches", l.Steps())
	}
	return b, err
}

func finite(x float64) bool { return x-x == 0 }

// evaluateAll evaluates, and adds up the counters of epoch and evaluation over the ranks. If a rank
// is lost during this, the other ranks divide the set again: metrics cover all samples.
func (l *epochLoop) evaluateAll(epoch int, t *epochCounters) (evaluation, error) {
	for {
		ranks := l.peers.liveRanks()
		if err := l.data.partitionEval(ranks); err != nil {
			return evaluation{}, err
		}
		whole, err := l.evaluate(epoch)
		if err != nil {
			return evaluation{}, err
		}
		l.reports.countTraffic(t)
		if l.cfg.Workers == 0 { // else in the counters of each virtual worker
			t.first = l.reports.first
		}
		sum := *t
		sum.train.Sums = slices.Clone(t.train.Sums)
		if err := l.addUp(&whole, &sum); err != nil {
			return evaluation{}, fmt.Errorf("adding up the epoch's counters: %w", err)
		}
		if slices.Equal(ranks, l.peers.liveRanks()) {
			*t = sum
			return whole, nil
		}
	}
}

// A run with a checkpoint folder that receives a stop request stops between the same two steps on
// all ranks, and saves a last checkpoint. See ringo.Job.Stoppable.

type epochStep struct{ epoch, step int }

// stoppable lets stop requests end the run, which begins at a position.
func (l *epochLoop) stoppable(at position) {
	found := &l.resumption.found
	if l.saver.room.saved = found.OnDisk; found.Step == found.OnDisk { // else from a snapshot
		l.saver.saved = epochStep{at.epoch, at.step} // position of the resumption, or the beginning
	}
	if dir := l.cfg.Checkpoint.Dir; dir != "" {
		l.stops = l.job.Stoppable(dir, int64((at.epoch-1)*l.data.steps+at.step))
	}
}

// checkStop returns a *ringo.StoppedError or a *cluster.RejoinError if all ranks stop before the
// next n steps of an epoch.
func (l *epochLoop) checkStop(epoch, step, n int) error {
	return l.stops.BeginMany(int64((epoch-1)*l.data.steps+step), int64(n))
}

func stopped(err error) bool {
	return errors.As(err, new(*ringo.StoppedError)) || rejoins(err)
}

// rejoins reports whether all ranks leave the job after this step, to join again.
func rejoins(err error) bool { return errors.As(err, new(*cluster.RejoinError)) }
