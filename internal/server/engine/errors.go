package engine

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosed is the error of a closed engine.
	ErrClosed = errors.New("tables: the server is closed")
	// ErrLeft is the error of a change by a session that has left.
	ErrLeft = errors.New("it has left the job, which is over for it: begin another job, with another ticket")
)

// gapError reports that a session's change has not the next number.
type gapError struct {
	Session   int
	Seq, Last uint64 // received and last accepted number
}

// Error states the missing changes.
func (e *gapError) Error() string {
	return fmt.Sprintf("tables: session %d: change %d after change %d: those between are missing", e.Session, e.Seq, e.Last)
}

// LostError reports that a trainer was lost: it did not return in time.
type LostError struct {
	Trainer int
	Cause   error
}

// Error names the trainer.
func (e *LostError) Error() string {
	return fmt.Sprintf("tables: trainer %d is lost: %v", e.Trainer, e.Cause)
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// waitError reports a wait that was too long, and the trainers waited for.
type waitError struct {
	Trainer   int    // waiting trainer
	Step      uint64 // step to begin
	WaitedFor []int  // slower trainers
	Unset     bool   // initial values of arrays are missing
	Limit     time.Duration
	Cause     error // context's cause, if it ended the wait
}

// Error names the trainers waited for.
func (e *waitError) Error() string {
	what := fmt.Sprintf("for trainers %v", e.WaitedFor)
	switch {
	case e.Unset:
		what = "for the initial values of all arrays, which trainer 0 sends"
	case len(e.WaitedFor) == 0:
		what = "for the sum of the step before to be applied"
	}
	head := fmt.Sprintf("tables: trainer %d: step %d: waited %s", e.Trainer, e.Step, what)
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", head, e.Cause)
	}
	return fmt.Sprintf("%s for %v: look what they do, or raise the limit", head, e.Limit)
}

// Unwrap returns the context's cause.
func (e *waitError) Unwrap() error { return e.Cause }
