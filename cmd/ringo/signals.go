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

// Three signals tell a command to end: SIGINT, SIGHUP and SIGTERM. The first lets a job that can
// stop after a step save a last checkpoint, within lastSave; where there is none, or for the
// second, the command's context ends, and a third one ends a process that does not heed that. The
// status is 128 and the signal's number, as of a process that the signal has ended. The end of the
// program that reads a job's output, such as `head`, counts as a signal of its own, SIGPIPE: the
// job saves and ends, too.

// lastSave bounds how long a job that was told to end may take to save a last checkpoint. Schedulers kill what has not
// ended 30 s after SIGTERM (Slurm, Kubernetes).
const lastSave = 25 * time.Second

// sigPipe is the name of the signal that the end of a reader counts as.
const sigPipe = "SIGPIPE"

// signalError is why a context has ended.
type signalError struct{ name string }

// Error names the signal.
func (e *signalError) Error() string { return "interrupted by " + e.name }

// statusOf is the exit status of a command that a signal has ended.
func statusOf(name string) int {
	if n := unix.SignalNum(name); n > 0 {
		return 128 + int(n)
	}
	return exitInterrupted
}

// signals are those that tell this process to end.
type signals struct {
	cancel context.CancelCauseFunc

	mu            sync.Mutex
	stop          func(name string) bool // what the first one does; false: the context is to end
	stopRequested bool
}

type signalsKey struct{}

// withSignals returns a context that ends with the signals that this process gets, and knows them. What its
// parent ignores, as nohup does SIGHUP, stays ignored.
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

// take acts on a signal.
func (s *signals) take(name string) {
	s.mu.Lock()
	stop := s.stop
	if s.stopRequested && name == sigPipe { // Ctrl-C ends `tee`, too, and the job is to save all the same
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
	go func() { // the next signal must be heard meanwhile
		if !stop(name) {
			s.cancel(&signalError{name})
		}
	}()
}

// outliveReaders makes a write to a pipe without a reader an error, which noting passes to
// readerEnded. Otherwise such a write ends the process, as suits commands that have no job to save.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// readerEnded acts as on a signal, because no process reads the stream of that name any more, and
// reports that to other.
func (s *signals) readerEnded(stream string, err error, other io.Writer) {
	fmt.Fprintf(other, "ringo: %s: its reader has ended (%v): the job ends, as at SIGTERM\n", stream, err)
	if s != nil {
		s.take(sigPipe)
	}
}

// signalsOf are those of a command's process; nil where it is run without.
func signalsOf(ctx context.Context) *signals {
	s, _ := ctx.Value(signalsKey{}).(*signals)
	return s
}

// onFirst has the first signal do stop, which returns false where the context is to end at once.
func (s *signals) onFirst(stop func(name string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
}

// stopsJob has the first signal stop all ranks of a job after the same step; report is told of it.
func (s *signals) stopsJob(job *ringo.Job, report func(line string)) {
	if s == nil {
		return
	}
	s.onFirst(func(name string) bool {
		at, err := job.Stop(name)
		if err != nil {
			return false
		}
		report(launch.StopLine(at, lastSave))
		time.AfterFunc(lastSave, func() { s.cancel(&signalError{name}) })
		return true
	})
}

// signalledText says that a signal has ended a command, and what is saved.
func signalledText(name string, err error) string {
	var stopped *ringo.StoppedError
	if errors.As(err, &stopped) && stopped.Step >= 0 {
		return stopped.Error() + ": --resume goes on from there"
	}
	return (&signalError{name}).Error()
}

// signalled is the signal that has ended ctx, or that a job was stopped for; "": none.
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
