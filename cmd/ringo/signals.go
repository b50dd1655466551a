package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
)

// SIGINT, SIGHUP and SIGTERM end a command. At the first signal, a job that can stop after a step
// saves a last checkpoint, within lastSave. Without such a job, or at the second signal, the
// command's context ends. A third signal ends a process that ignores the end of the context. The
// exit status is 128 plus the signal's number, as for a process that the signal ended. The end of
// the program that reads a job's output, such as `head`, counts as SIGPIPE: the job saves and ends.

// lastSave is the maximum time to save a last checkpoint after a signal. Schedulers kill a process
// 30 s after SIGTERM (Slurm, Kubernetes).
const lastSave = 25 * time.Second

// sigPipe is the name of the signal for the end of a reader.
const sigPipe = "SIGPIPE"

// signalError is the cause of the end of a context.
type signalError struct{ name string }

// Error names the signal.
func (e *signalError) Error() string { return "interrupted by " + e.name }

// Is reports that the end of the context was requested.
func (e *signalError) Is(target error) bool { return target == context.Canceled }

func statusOf(name string) int {
	if n := unix.SignalNum(name); n > 0 {
		return 128 + int(n)
	}
	return exitInterrupted
}

// signals handles the signals that end this process.
type signals struct {
	cancel context.CancelCauseFunc

	mu            sync.Mutex
	stop          func(name string) bool // action of the first signal; false ends the context
	stopRequested bool
}

type signalsKey struct{}

// withSignals returns a context that ends with this process's signals; signalsOf returns their
// handler. SIGHUP remains ignored if the parent process ignores it, as nohup does.
func withSignals(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	s := &signals{cancel: cancel}
	came := make(chan os.Signal, 4)
	signal.Notify(came, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(came, syscall.SIGHUP)
	}
	go func() {
		for sig := range came {
			s.take(nameOf(sig))
		}
	}()
	context.AfterFunc(ctx, func() { signal.Stop(came) })
	return context.WithValue(ctx, signalsKey{}, s)
}

func nameOf(sig os.Signal) string {
	n, _ := sig.(syscall.Signal)
	return unix.SignalName(n)
}

func (s *signals) take(name string) {
	s.mu.Lock()
	stop := s.stop
	if s.stopRequested && name == sigPipe { // Ctrl-C also ends `tee`, and the job must still save
		s.mu.Unlock()
		return
	}
	if s.stopRequested {
		stop = nil
	}
	s.stopRequested = true
	s.mu.Unlock()
	if stop == nil {
		s.cancel(&signalError{name})
		return
	}
	go func() { // the next signal must be received during stop
		if !stop(name) {
			s.cancel(&signalError{name})
		}
	}()
}

// outliveReaders turns a write to a pipe without a reader into an error, which noting passes to
// readerEnded. By default such a write ends the process, as suits commands without a job to save.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// readerEnded handles the end of the process that reads the named stream, like a signal, and
// reports the end to other.
func (s *signals) readerEnded(stream string, err error, other io.Writer) {
	fmt.Fprintf(other, "ringo: %s: its reader has ended (%v): the job ends, as at SIGTERM\n", stream, err)
	if s != nil {
		s.take(sigPipe)
	}
}

// signalsOf returns the signals of a command's process, or nil.
func signalsOf(ctx context.Context) *signals {
	s, _ := ctx.Value(signalsKey{}).(*signals)
	return s
}

// onFirst sets the action of the first signal. If stop returns false, the context ends.
func (s *signals) onFirst(stop func(name string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
}

// stopsJob makes the first signal stop all ranks of a job after the same step. report receives the
// line for the user.
func (s *signals) stopsJob(job *ringo.Job, report func(line string)) {
	if s == nil {
		return
	}
	s.onFirst(func(name string) bool {
		at, err := job.Stop(name)
		if err != nil {
			return false
		}
		if at.Step == 0 { // the rank will leave alone
			return true
		}
		report(launch.StopLine(at, lastSave))
		time.AfterFunc(lastSave, func() { s.cancel(&signalError{name}) })
		return true
	})
}

// signalledText describes the end by a signal, and the saved checkpoint.
func signalledText(name string, err error) string {
	var stopped *ringo.StoppedError
	if errors.As(err, &stopped) && stopped.Step >= 0 {
		return stopped.Error() + ": --resume continues from there"
	}
	return (&signalError{name}).Error()
}

// signalled returns the signal that ended ctx or stopped the job; "" for none.
func signalled(ctx context.Context, err error) string {
	var stopped *ringo.StoppedError
	var why *signalError
	switch {
	case errors.As(err, &stopped):
		return stopped.Reason
	case errors.As(context.Cause(ctx), &why):
		return why.name
	}
	return ""
}
