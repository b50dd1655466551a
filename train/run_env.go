package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/model"
)

// runEnv is shared by the parts of a run: job, configuration, replicas, position.
type runEnv struct {
	ctx     context.Context // context of Run, which ends the run
	job     *ringo.Job
	cfg     Config
	obs     Observer
	spec    model.Spec
	peers   communicator
	started time.Time
	ownLoop bool // a Loop makes the steps, with its own data

	workers []*trainerThread // one or more
	replica *Replica         // replica of the first worker
	all     []int            // of ranks

	position StepError // position in error messages
	// ended is the reason why the run ends before its last epoch, equal on all ranks; or "".
	ended     string
	cut       bool // the run ends in the middle of an epoch
	wantsStop bool // a callback of this rank returned ErrStop
}

// add builds the replica of one more thread.
func (e *runEnv) add(cfg Config, opts model.Options, place func(*Replica) paramPlacement) error {
	m, err := build(e.job, cfg, opts, place, len(e.workers))
	if err != nil {
		return err
	}
	e.workers = append(e.workers, &trainerThread{replica: m})
	e.replica = e.workers[0].replica
	return nil
}

// sameOnAll returns an error that names the ranks with another hash than rank 0.
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

// lost returns the ranks that were lost.
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

// together reports whether an update uses the mean of the gradients of all ranks.
func (e *runEnv) together() bool {
	return slices.Contains([]string{"", "bsp"}, e.cfg.Servers.Consistency)
}

// ranks returns all ranks of the job, or all virtual workers.
func (e *runEnv) ranks() []int {
	if len(e.all) == 0 {
		e.all = collective.Ranks(e.virtual())
	}
	return e.all
}

func (e *runEnv) globalBatch() int { return e.cfg.globalBatch(e.job.Size()) }

// usualRate returns the model's rate, if the run uses or scales it.
func (e *runEnv) usualRate() UsualRate {
	if d := e.spec.Defaults; e.cfg.Optimizer == d.Optimizer && (e.cfg.LR == d.LR || e.cfg.ScaleLR) {
		return UsualRate{LR: d.LR, Batch: d.GlobalBatch, Scaled: e.cfg.ScaleLR}
	}
	return UsualRate{}
}

// wall returns the seconds since the run began or resumed.
func (e *runEnv) wall() float64 { return time.Since(e.started).Seconds() }

// during records the beginning of a phase, and its end when the caller calls end.
func (e *runEnv) during(p record.Phase) (end func()) {
	rec := e.job.Recorder()
	op := rec.BeginPhase(p, rec.Now())
	return func() { op.End(rec.Now(), -1, false) }
}

// remark reports a fact to the user, on rank 0.
func (e *runEnv) remark(epoch int, format string, args ...any) {
	m := Remark{Event: "remark", Epoch: epoch, Text: fmt.Sprintf(format, args...)}
	if e.replica != nil && e.replica.Opt != nil { // nil before the first step
		m.Step = e.replica.Opt.Steps()
	}
	e.obs.Remark(m)
}

// sync makes replicas equal before they are evaluated, compared or saved: parameters that differ
// between ranks, and running statistics, which become the mean over ranks and threads. All ranks
// call it.
func (e *runEnv) sync() error {
	if err := e.replica.params.sync(); err != nil {
		return err
	}
	means, err := e.meanBuffers()
	for _, w := range e.workers {
		w.replica.setBuffers(means)
	}
	return err
}

// meanBuffers returns the means of running statistics over ranks and threads. All ranks call it.
func (e *runEnv) meanBuffers() ([]float32, error) {
	if e.cfg.Workers > 0 {
		return e.meanOfWorkers()
	}
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

func (e *runEnv) copyUntrained() {
	for _, w := range e.workers[1:] {
		for i, x := range e.replica.untrained() {
			copy(w.replica.untrained()[i], x)
		}
	}
}

// alive returns an error after the end of Run's context.
func (e *runEnv) alive() error {
	if e.ctx == nil || e.ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the run's context has ended: %w", context.Cause(e.ctx))
}

// inStep reports whether all ranks make each step together, and are never at different steps.
func (e *runEnv) inStep() bool {
	return len(e.workers) == 1 && slices.Contains([]string{"", "bsp"}, e.cfg.Servers.Consistency) && !e.job.ServersOnly()
}

// StepError is an error with its position in a run. All errors of Run are or wrap a StepError,
// except for errors of a configuration.
type StepError struct {
	// Doing is the rank's activity: "" in a training step, else such as "evaluating", "saving a
	// checkpoint" or "comparing the replicas".
	Doing string
	// Epoch is the epoch, from 1; 0 before the first.
	Epoch int
	// Step is the step of the epoch, from 1, or, with Doing, the last finished step.
	Step int
	Err  error
}

// Error returns Err's text after the position.
func (e *StepError) Error() string {
	if e.Epoch == 0 {
		return e.Err.Error() // the error names the activity
	}
	return e.Place().Where + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *StepError) Unwrap() error { return e.Err }

// Place returns a position such as "in step 412 of epoch 2" or "while evaluating after step 468 of
// epoch 3".
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

// setPosition stores the position in the run, for errors. It costs a few stores.
func (e *runEnv) setPosition(doing string, epoch, step int) {
	e.position.Doing, e.position.Epoch, e.position.Step = doing, epoch, step
}

// prepares sets the activity before the first epoch, such as for the reports of waiting ranks.
func (e *runEnv) prepares(doing string) {
	e.setPosition(doing, 0, 0)
	e.job.SetStatus(doing)
}

// located adds the position to err, unless err already has the position of a thread.
func (e *runEnv) located(err error) error {
	if known := (*StepError)(nil); err == nil || errors.As(err, &known) {
		return err
	}
	at := e.position
	at.Err = err
	return &at
}
