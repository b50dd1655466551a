package ringo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/membership"
	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// verdictWait is the maximum wait of a rank with a broken link for the coordinator's verdict, and
// of a rank of Local for the rank that aborted. It is less than the 10 s of the failure detector: a
// killed process is detected immediately, and all ranks must end within 10 s.
const verdictWait = 3 * time.Second

// coordination connects a process with the ranks' common decisions: the lost rank, and the last
// step before a stop.
type coordination struct {
	cluster    *membership.Membership             // nil in a job of one process
	reportExit func(failure.Exit) (reported bool) // reports to the launcher, without a coordinator; nil: no launcher
	stops      *cluster.LocalStops                // nil: ranks are processes
}

// member returns the connection with the coordinator, or nil.
func (c *coordination) member() *cluster.Member {
	if c.cluster == nil {
		return nil
	}
	return c.cluster.Member
}

// lastHeartbeat returns the time of the coordinator's last message, or zero without a coordinator.
func (c *coordination) lastHeartbeat() (at time.Time) {
	if m := c.member(); m != nil {
		at = m.LastHeartbeat()
	}
	return at
}

// Stopper is a rank's part in stopping all ranks after the same step: see Job.Stoppable.
type Stopper = cluster.Stopper

// StoppedError reports that the job ended as requested. It has the last step and the folder of the
// saved run.
type StoppedError = cluster.StoppedError

// ErrCannotStop reports that the ranks cannot agree on a last step, because a rank has not called
// Stoppable.
var ErrCannotStop = cluster.ErrCannotStop

// Stoppable registers this rank, after done steps, as able to stop after any later step and save
// the run in the folder saved. Before each step the rank calls the Stopper's Begin with the number
// of steps done, equal on all ranks. When Begin returns a *StoppedError, all ranks have done
// equally many steps: the rank saves, and ends with that error. Cost: an uncontended lock per step,
// about 15 ns (BenchmarkBegin of package cluster).
func (j *Job) Stoppable(saved string, done int64) *Stopper {
	s := cluster.NewStopper(saved, done)
	if m := j.members.member(); m != nil {
		m.Stoppable(s)
	} else if j.members.stops != nil {
		j.members.stops.Add(j.rank, s)
	}
	return s
}

// Stop stops all ranks of the job after the same step, the last step begun by any rank. why is the
// name of a signal. Stop returns when the ranks have agreed on the step: in general immediately, at
// most after 10 s. Errors: ErrCannotStop without an agreement, or the end of the job.
func (j *Job) Stop(why string) (StoppedError, error) {
	if m := j.members.member(); m != nil {
		return m.Stop(why)
	} else if j.members.stops != nil {
		return j.members.stops.Stop(why)
	}
	return StoppedError{}, ErrCannotStop
}

// stoppedBy returns the *StoppedError in err, or nil.
func stoppedBy(err error) *StoppedError {
	var stopped *StoppedError
	if errors.As(err, &stopped) {
		return stopped
	}
	return nil
}

// Err explains an error of this rank: after a broken link Err waits a moment for the coordinator's
// verdict, so that all ranks name the same lost rank. The result wraps the errors of err, such as a
// *train.StepError or a *distopt.Error.
func (j *Job) Err(err error) error {
	if known := (*explained)(nil); err == nil || errors.As(err, &known) {
		return err
	}
	switch cause := context.Cause(j.life.ctx); cause {
	case nil:
	case errDone: // no verdict will come
		return err
	default:
		return j.explain(err, cause)
	}
	if differ := (*transport.MismatchError)(nil); errors.As(err, &differ) {
		return err // no rank is lost
	}
	// An error without a link originates in this rank.
	if link := (*transport.Error)(nil); j.members.member() != nil && errors.As(err, &link) {
		observed := &during{err}
		if best := j.members.member().Verdict(observed, verdictWait); best != observed {
			return j.explain(err, best)
		}
	}
	return j.missed(err)
}

// missed returns err, or, without a coordinator, an error that names the awaited rank.
func (j *Job) missed(err error) error {
	left := (*transport.Error)(nil)
	if j.members.member() != nil || !errors.As(err, &left) || !errors.Is(left, transport.ErrGoodbye) {
		return err
	}
	status := "it left the job"
	if j.members.stops != nil {
		status += j.members.stops.After(left.Peer)
	}
	return j.explain(err, &transport.LostError{Rank: left.Peer, Reason: failure.Early(status, failure.Rank(j.rank), during{err}.Operation())})
}

// during is an error that can name the first failed operation.
type during struct{ error }

// Unwrap returns the error.
func (d during) Unwrap() error { return d.error }

// Operation returns "allreduce 12"; "" if no operation failed.
func (d during) Operation() string {
	name, _, _ := strings.Cut(operation(d.error), " on rank ")
	return name
}

// explain returns best, the reason of the job's end, extended by err, the error of this rank.
func (j *Job) explain(err, best error) error {
	if known := (*explained)(nil); errors.As(best, &known) {
		return best
	}
	return &explained{rank: j.rank, ranks: j.size, stopped: j.life.stoppedBy(best), best: best, observed: err}
}

// explained is the reason of the job's end, with the error of a rank.
type explained struct {
	rank, ranks    int
	stopped        bool // the caller's context ended the job
	best, observed error
}

// Is reports that a requested end is a context.Canceled, with any cause of the context.
func (e *explained) Is(target error) bool { return e.stopped && target == context.Canceled }

// Error names the lost rank, this rank's position in the run, the failed operation and its message.
func (e *explained) Error() string {
	lost, at := (*transport.LostError)(nil), failure.PositionOf(e.observed)
	if !errors.As(e.best, &lost) {
		return failure.At(e.best.Error(), at)
	}
	text := failure.LostProcess{
		Name: failure.Rank(lost.Rank), Status: lost.Reason, Rank: lost.Rank, Ranks: e.ranks,
		Affected: []failure.Exit{{Rank: e.rank, Cause: failure.Rank(lost.Rank), Place: at}},
	}.String()
	if op := operation(e.observed); op != "" {
		text += ": " + op
	}
	return text
}

// Reason returns why the job ended: the reason names the lost rank, not the awaited rank.
func (e *explained) Reason() error { return e.best }

// Unwrap returns the reason of the job's end, then this rank's error.
func (e *explained) Unwrap() []error { return []error{e.best, e.observed} }

// operation returns the first failed operation and its message; "" without one.
func operation(err error) string {
	text := ""
	if op := (*collective.OpError)(nil); errors.As(err, &op) {
		for first := op; errors.As(first.Err, &first); {
			op = first
		}
		text, err = fmt.Sprintf("%s %d on rank %d", op.Op, op.Seq, op.Rank), op
	} else if op := (*aggregate.Error)(nil); errors.As(err, &op) {
		for first := op; errors.As(first.Err, &first); {
			op = first
		}
		text, err = fmt.Sprintf("%s %d on rank %d", op.Op, op.Seq, op.Rank), op
	}
	if link := (*transport.Error)(nil); text != "" && errors.As(err, &link) {
		text += fmt.Sprintf(", at message %v with rank %d", link.Tag, link.Peer)
	}
	return text
}

// Fail ends the job because of err: the other ranks' operations fail with this rank and err. Fail
// returns the error to report, a more precise one if err is a consequence of another rank's error.
// Without an err the job continues.
func (j *Job) Fail(err error) error {
	best := j.Err(err)
	if best == nil {
		return nil
	}
	reported := false
	if m := j.members.member(); m != nil {
		reported = m.Fail(during{best})
	} else if j.members.reportExit != nil {
		reported = j.members.reportExit(cluster.EndOf(j.rank, best))
	}
	j.links.mesh.Abort(best)
	j.records.retain.Store(!errors.Is(best, context.Canceled)) // a requested end needs no record
	_ = j.close(func() error { return nil })                   // any error would be a consequence of best
	if best = j.markReported(best, reported); !j.records.retain.Load() {
		return best
	}
	return j.records.files.WithRecords(best) // the file stays: other ranks may fail next
}

// markReported returns err, marked if the launcher prints it.
func (j *Job) markReported(err error, reported bool) error {
	if !j.launched || !reported {
		return err
	}
	return reportedError{err}
}

// reportedError is an error received by the launcher.
type reportedError struct{ error }

// Unwrap returns the error.
func (t reportedError) Unwrap() error { return t.error }

// Reported reports whether the launcher has received err, a result of Run, Join, Serve or Job.Fail.
// The launcher prints the error once for all ranks after the last rank's exit, so the program
// should not:
//
//	if err := ringo.Run(ctx, ringo.Config{}, train); err != nil {
//		if !ringo.Reported(err) {
//			fmt.Fprintln(os.Stderr, err)
//		}
//		os.Exit(1)
//	}
func Reported(err error) bool {
	var t reportedError
	return errors.As(err, &t)
}
