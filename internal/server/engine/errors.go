package engine

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosed is the error of an engine that has been closed.
	ErrClosed = errors.New("tables: the server is closed")
	// ErrLeft is the error of a change by a session that has left.
	ErrLeft = errors.New("it has left the job, which is over for it: begin another job, with another ticket")
)

// gapError says that a session's change is not the next one.
type gapError struct {
	Session   int
	Seq, Last uint64 // of the change, and the last one taken
}

// Error says what is missing.
func (e *gapError) Error() string {
	return fmt.Sprintf("tables: session %d: change %d after change %d: those between are missing", e.Session, e.Seq, e.Last)
}

// LostError says that a trainer was lost: it did not come back in time.
type LostError struct {
	Trainer int
	Cause   error
}

// Error names the trainer.
func (e *LostError) Error() string {
	return fmt.Sprintf("tables: trainer %d is lost: %v", e.Trainer, e.Cause)
}

// Unwrap is the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// waitError says that a wait took too long, and for whom.
type waitError struct {
	Trainer   int    // that waited
	Step      uint64 // that it wanted to begin
	WaitedFor []int  // trainers that it waited for
	Unset     bool   // it waited for the initial values of arrays
	Limit     time.Duration
	Cause     error // of the context, where that ended the wait
}

// Error names who was waited for.
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

// Unwrap is the context's cause.
func (e *waitError) Unwrap() error { return e.Cause }
