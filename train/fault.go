package train

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

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
