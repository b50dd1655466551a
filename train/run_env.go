package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/model"
)

// runEnv is shared by the parts of a run: job, configuration, replicas, position.
type runEnv struct {
	ctx     context.Context // of Run; its end ends the run
	job     *ringo.Job
	cfg     Config
	obs     Observer
	spec    model.Spec
	peers   communicator
	started time.Time
	ownLoop bool // a Loop makes the steps, with data of its own

	workers []*trainerThread // at least one
	replica *Replica         // of the first worker
	all     []int            // ranks of the job

	position StepError // for errors
	// ended is the reason why the run ends before its last epoch, equal on all ranks; "" means none.
	ended     string
	cut       bool // the run ends in the middle of an epoch
	wantsStop bool // a callback of this rank returned ErrStop
}

// add builds the replica of one worker more.
func (e *runEnv) add(cfg Config, opts model.Options, place func(*Replica) paramPlacement) error {
	m, err := build(e.job, cfg, opts, place, len(e.workers))
	if err != nil {
		return err
	}
	e.workers = append(e.workers, &trainerThread{replica: m})
	e.replica = e.workers[0].replica
	return nil
}

// sameOnAll compares a hash over the ranks.
func (e *runEnv) sameOnAll(own []byte, what, hint string) error {
	all, err := e.peers.gather(own)
	if err != nil {
		return fmt.Errorf("comparing the ranks' %s: %w", what, err)
	}
	for rank, theirs := range all {
		if theirs != nil && !slices.Equal(theirs, all[0]) {
			return fmt.Errorf("the %s of rank %d (sha256 %.4x…) differ from those of rank 0 (%.4x…): %s", what, rank, theirs, all[0], hint)
		}
	}
	return nil
}

// lost are the ranks that are not there any more.
func (e *runEnv) lost() (out []int) {
	there := e.peers.liveRanks()
	for rank := range e.job.Size() {
		if !slices.Contains(there, rank) {
			out = append(out, rank)
		}
	}
	return out
}

func (e *runEnv) accumulation() int { return max(1, e.cfg.Exchange.Accumulation) }

// together reports whether an update is the mean over all ranks.
func (e *runEnv) together() bool {
	return slices.Contains([]string{"", "bsp"}, e.cfg.Servers.Consistency)
}

// ranks are all ranks of the job.
func (e *runEnv) ranks() []int {
	if len(e.all) == 0 {
		for rank := range e.job.Size() {
			e.all = append(e.all, rank)
		}
	}
	return e.all
}

// globalBatch is that of the run's ranks.
func (e *runEnv) globalBatch() int { return e.cfg.globalBatch(e.job.Size()) }

// usualRate is the model's, where the run has that rate or scales it.
func (e *runEnv) usualRate() UsualRate {
	if d := e.spec.Defaults; e.cfg.Optimizer == d.Optimizer && (e.cfg.LR == d.LR || e.cfg.ScaleLR) {
		return UsualRate{LR: d.LR, Batch: d.GlobalBatch, Scaled: e.cfg.ScaleLR}
	}
	return UsualRate{}
}

// wall is how many seconds ago the run began or was resumed.
func (e *runEnv) wall() float64 { return time.Since(e.started).Seconds() }

// during records that a phase begins, and, when what it returns is called, that it has ended.
func (e *runEnv) during(p record.Phase) (end func()) {
	rec := e.job.Recorder()
	op := rec.BeginPhase(p, rec.Now())
	return func() { op.End(rec.Now(), -1, false) }
}

// remark tells what a person should know. Other ranks than 0 tell nobody.
func (e *runEnv) remark(epoch int, format string, args ...any) {
	m := Remark{Event: "remark", Epoch: epoch, Text: fmt.Sprintf(format, args...)}
	if e.replica != nil && e.replica.Opt != nil { // else it is before the first step
		m.Step = e.replica.Opt.Steps()
	}
	e.obs.Remark(m)
}

// sync makes the replicas equal before they are evaluated, compared or saved: parameters where ranks may have others, and
// running statistics, which become the mean over ranks and workers. It is a collective call.
func (e *runEnv) sync() error {
	if err := e.replica.params.sync(); err != nil {
		return err
	}
	means, err := e.meanBuffers()
	for _, w := range e.workers {
		copy(w.replica.Params.Buffers(), means)
	}
	return err
}

// meanBuffers are the running statistics, the means over ranks and workers. It is a collective call.
func (e *runEnv) meanBuffers() ([]float32, error) {
	means := append([]float32(nil), e.replica.Params.Buffers()...)
	for _, w := range e.workers[1:] {
		e.replica.kernels.Add(means, w.replica.Params.Buffers())
	}
	for i := range means {
		means[i] /= float32(len(e.workers))
	}
	if err := e.peers.mean(means); err != nil {
		return nil, fmt.Errorf("averaging the running statistics: %w", err)
	}
	return means, nil
}

// copyUntrained gives all workers what the first one has of it.
func (e *runEnv) copyUntrained() {
	for _, w := range e.workers[1:] {
		for i, x := range e.replica.untrained() {
			copy(w.replica.untrained()[i], x)
		}
	}
}

// alive reports that the context of Run has ended.
func (e *runEnv) alive() error {
	if e.ctx == nil || e.ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the run's context has ended: %w", context.Cause(e.ctx))
}

// inStep says that the ranks' steps are the same ones, one after the other.
func (e *runEnv) inStep() bool {
	return len(e.workers) == 1 && slices.Contains([]string{"", "bsp"}, e.cfg.Servers.Consistency) && !e.job.ServersOnly()
}

// StepError says where in a run something failed. All errors of Run but those of a bad
// configuration are, or wrap, one.
type StepError struct {
	// Doing is what the rank was doing: empty for a step of training, else such as
	// "evaluating", "saving a checkpoint" or "comparing the replicas".
	Doing string
	// Epoch is the epoch, from 1; 0 before the first.
	Epoch int
	// Step is the step of the epoch, from 1, or, with Doing, the last one that was done.
	Step int
	Err  error
}

// Error is Err's text, behind where in the run it happened.
func (e *StepError) Error() string {
	if e.Epoch == 0 {
		return e.Err.Error() // it says what was being done itself
	}
	return e.Place().Where + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *StepError) Unwrap() error { return e.Err }

// Place is "in step 412 of epoch 2", or "while evaluating after step 468 of epoch 3".
func (e *StepError) Place() failure.Position {
	place := func(format string, args ...any) failure.Position {
		return failure.Position{Where: fmt.Sprintf(format, args...)}
	}
	switch {
	case e.Doing == "" && e.Epoch == 0:
		return failure.Position{}
	case e.Doing == "":
		return place("in step %d of epoch %d", e.Step, e.Epoch)
	case e.Epoch == 0:
		return place("while %s", e.Doing)
	}
	return place("while %s after step %d of epoch %d", e.Doing, e.Step, e.Epoch)
}

// setPosition notes where the run is, for errors: it costs a few stores.
func (e *runEnv) setPosition(doing string, epoch, step int) {
	e.position.Doing, e.position.Epoch, e.position.Step = doing, epoch, step
}

// prepares says what the run does before its first epoch, to the other ranks too.
func (e *runEnv) prepares(doing string) {
	e.setPosition(doing, 0, 0)
	e.job.SetStatus(doing)
}

// located is err with where the run is, unless a thread of it has said so already.
func (e *runEnv) located(err error) error {
	if known := (*StepError)(nil); err == nil || errors.As(err, &known) {
		return err
	}
	at := e.position
	at.Err = err
	return &at
}
