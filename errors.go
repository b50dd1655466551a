package ringo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// Err explains a fault of this rank: where a link broke, it waits a moment for
// the coordinator to say who is lost, so that every rank names the same one. What err
// wraps, such as a *train.StepError or a *distopt.Error, the result wraps, too.
func (j *Job) Err(err error) error {
	if known := (*explained)(nil); err == nil || errors.As(err, &known) {
		return err
	}
	switch cause := context.Cause(j.ctx); cause {
	case nil:
	case errDone: // nobody will say more
		return err
	default:
		return j.explain(err, cause)
	}
	if differ := (*transport.MismatchError)(nil); errors.As(err, &differ) {
		return err // nobody is lost, and nobody knows more
	}
	// A fault that never touched a link is this rank's own.
	if link := (*transport.Error)(nil); j.member != nil && errors.As(err, &link) {
		told := &during{err}
		if best := j.member.Verdict(told, verdictWait); best != told {
			return j.explain(err, best)
		}
	}
	return j.missed(err)
}

// missed is err, or of a job without a coordinator, if a rank has left for which an operation
// waited, that rank's early end.
func (j *Job) missed(err error) error {
	gone := (*transport.Error)(nil)
	if j.member != nil || !errors.As(err, &gone) || !errors.Is(gone, transport.ErrGoodbye) {
		return err
	}
	how := "it left the job"
	if j.stops != nil {
		how += j.stops.after(gone.Peer)
	}
	return j.explain(err, &transport.LostError{Rank: gone.Peer, Reason: failure.Early(how, failure.Rank(j.rank), during{err}.Operation())})
}

// during is an error with the name of the operation that failed first.
type during struct{ error }

// Unwrap returns the error.
func (d during) Unwrap() error { return d.error }

// Operation is "allreduce 12"; "" if no operation failed.
func (d during) Operation() string {
	name, _, _ := strings.Cut(operation(d.error), " on rank ")
	return name
}

// explain is best, which is why the job ended, with what this rank saw of it.
func (j *Job) explain(err, best error) error {
	if said := (*explained)(nil); errors.As(best, &said) {
		return best
	}
	return &explained{rank: j.rank, ranks: j.size, stopped: j.outer != nil && context.Cause(j.outer) == best, best: best, observed: err}
}

// explained is why the job ended, and what a rank saw of that.
type explained struct {
	rank, ranks    int
	stopped        bool // by whoever has started it
	best, observed error
}

// Is tells that an end that was asked for is a context.Canceled, whatever the context's cause.
func (e *explained) Is(target error) bool { return e.stopped && target == context.Canceled }

// Error names who is lost, where this rank was in its run, and the operation and the message
// at which it noticed.
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

// Reason is why the job ended: whom it names, if anybody, is to blame, and not whom this rank was waiting for then.
func (e *explained) Reason() error { return e.best }

// Unwrap returns why the job ended, then what this rank saw.
func (e *explained) Unwrap() []error { return []error{e.best, e.observed} }

// operation names the first of the operations that failed, and its message; "" if none did.
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

// Fail ends the job because of err: the other ranks' operations fail, naming
// this rank and err. It returns the error to report, which is a better one when
// err was only the echo of another rank's fault. Without an err the job goes on.
func (j *Job) Fail(err error) error {
	best := j.Err(err)
	if best == nil {
		return nil
	}
	known := false
	switch {
	case j.member != nil:
		known = j.member.Fail(during{best})
	case j.reportExit != nil:
		known = j.reportExit(cluster.EndOf(j.rank, best))
	}
	j.mesh.Abort(best)
	j.failed.Store(!errors.Is(best, context.Canceled)) // nobody asks what a job was doing that was told to end
	_ = j.close(reported)                              // what it could say is the echo of best
	if best = j.markReported(best, known); !j.failed.Load() {
		return best
	}
	return j.recordFiles.WithRecords(best) // the file stays: others may be about to wait for this rank
}

// markReported makes err one that a launcher tells.
func (j *Job) markReported(err error, known bool) error {
	if !j.launched || !known {
		return err
	}
	return reportedError{err}
}

// reportedError is an error that a launcher has heard of.
type reportedError struct{ error }

// Unwrap returns the error.
func (t reportedError) Unwrap() error { return t.error }

// Reported tells whether a launcher has been told of err, which Run, Join, Serve or Job.Fail has
// returned. It then tells of it once for all ranks, when the last of them has ended, and a
// program that printed err too would only repeat that:
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
