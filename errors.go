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

// verdictWait is the longest wait of a rank with a broken link for the coordinator's decision about
// which rank is lost, and of a rank of Local for the rank that caused an error. It is below 10 s,
// the time in which all ranks must end. The decision about a killed process takes no time.
const verdictWait = 3 * time.Second

// coordination connects a process with the decisions that all ranks share: the lost rank, and the
// last step before a stop.
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

// StoppedError reports that the job ended as requested, with the last step and the run's folder.
type StoppedError = cluster.StoppedError

// ErrCannotStop reports that ranks cannot agree on a last step: a rank has not called Stoppable.
var ErrCannotStop = cluster.ErrCannotStop

// Stoppable registers this rank, after done steps, as able to stop after any later step and to save
// its run in the folder saved. Before each step the rank calls the Stopper's Begin with the number
// of finished steps, equal on all ranks. If Begin returns a *StoppedError, all ranks have done the
// same number of steps: the rank saves its run, and ends with that error. Cost: an uncontended lock
// per step, about 15 ns (BenchmarkBegin of package cluster).
func (j *Job) Stoppable(saved string, done int64) *Stopper {
	s := cluster.NewStopper(saved, done)
	if m := j.members.member(); m != nil {
		m.Stoppable(s)
	} else if j.members.stops != nil {
		j.members.stops.Add(j.rank, s)
	}
	return s
}

// Stop stops all ranks of the job after the same step, the last step that any rank has begun. why
// is the name of a signal. Stop returns when the ranks have agreed on the step, at most after 10 s.
// Errors: ErrCannotStop if the ranks cannot agree, or the reason of the job's end.
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

// Err explains an error of this rank: after a broken link Err waits up to 3 s for the coordinator's
// decision, so that all ranks name the same lost rank. The result wraps the errors of err, such as
// a *train.StepError or a *distopt.Error.
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

// missed returns err. In a job without a coordinator, if err reports that an awaited rank has left,
// missed returns an error that names that rank.
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

// during wraps an error, and names the first failed operation in that error.
type during struct{ error }

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

// explained is the reason of the job's end, together with the error that this rank has observed.
type explained struct {
	rank, ranks    int
	stopped        bool // the caller's context ended the job
	best, observed error
}

// Is reports that the end of a job that its caller cancelled is a context.Canceled too.
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

// Reason returns why the job ended. It names the lost rank, while this rank's error names the rank
// that this rank waited for.
func (e *explained) Reason() error { return e.best }

// Unwrap returns the reason of the job's end, then this rank's error.
func (e *explained) Unwrap() []error { return []error{e.best, e.observed} }

// operation names the first failed operation in err, and its message; "" if err has no operation.
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

// Fail ends the job because of err: the other ranks' operations fail with this rank and err. It
// returns the error to report: err, or another rank's error that caused err. With a nil err the job
// continues.
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

// markReported returns err; if the launcher prints err, the result is a reportedError.
func (j *Job) markReported(err error, reported bool) error {
	if !j.launched || !reported {
		return err
	}
	return reportedError{err}
}

// reportedError is an error received by the launcher.
type reportedError struct{ error }

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
