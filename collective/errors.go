package collective

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// OpError is a fault of one operation. The first one of a group is the cause
// of all later ones, which wrap it.
type OpError struct {
	Op   string // "allreduce", "broadcast", …, "close" or "fail"
	Rank int    // where it was seen, as the mesh numbers ranks
	Peer int    // likewise the lost rank if one is known to be, else the other end; Rank itself: a fault of the caller
	Seq  uint32 // which operation of the group, from 0
	Err  error  // the cause
}

// Error returns the fault in one line.
func (e *OpError) Error() string {
	var first *OpError
	if errors.As(e.Err, &first) {
		return fmt.Sprintf("collective: %s %d on rank %d: the group is broken: %v", e.Op, e.Seq, e.Rank, e.Err)
	}
	hint := ""
	if m := (*transport.MismatchError)(nil); errors.As(e.Err, &m) {
		low, high := fmt.Sprintf("rank %d started %v", e.Rank, signature(m.Mine)), fmt.Sprintf("rank %d started %v", e.Peer, signature(m.Theirs))
		if e.Peer < e.Rank {
			low, high = high, low // both ranks say the same, so that it is told once
		}
		return fmt.Sprintf("collective: operation %d: %s, %s: all ranks must start the same operations in the same order", e.Seq, low, high)
	}
	if gone := (*transport.Error)(nil); errors.As(e.Err, &gone) && errors.Is(gone, transport.ErrGoodbye) {
		early := failure.Early("it left the job", failure.Rank(e.Rank), fmt.Sprintf("%s %d", e.Op, e.Seq))
		return fmt.Sprintf("collective: %s (message %v)", failure.Lost(failure.Rank(gone.Peer), early), gone.Tag)
	}
	if transport.TimedOut(e.Err) {
		hint = "; is the rank stuck, and do all ranks start the same operations in the same order?"
	}
	return fmt.Sprintf("collective: %s %d on rank %d: %v%s", e.Op, e.Seq, e.Rank, e.Err, hint)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// wrap makes err a fault of w. A fault of another operation stays visible as
// the cause.
func (w *Work) wrap(err error) *OpError {
	var first *OpError
	if errors.As(err, &first) && first.Op == w.kind.String() && first.Seq == w.seq {
		return first
	}
	rank := w.g.mesh.Rank()
	return &OpError{Op: w.kind.String(), Rank: rank, Peer: culprit(err, rank), Seq: w.seq, Err: err}
}

// culprit returns the rank to blame for err: transport.Culprit, or else whom an
// operation inside err blames, or else this rank.
func culprit(err error, rank int) int {
	if op := (*OpError)(nil); errors.As(err, &op) {
		rank = op.Peer
	}
	return transport.Culprit(err, rank)
}

// misuse is a fault of the caller: nothing was started, and the group goes on
// working if all ranks made the same mistake. Its number is the one that the operation
// would have had.
func (w *Work) misuse(format string, args ...any) *Work {
	g, rank := w.g, w.g.mesh.Rank()
	seq := uint32(0)
	if !w.kind.pairs() { // whose number is of a pair, which may not be one
		g.mu.Lock()
		seq = g.next
		g.mu.Unlock()
	}
	return w.refuse(&OpError{Op: w.kind.String(), Rank: rank, Peer: rank, Seq: seq, Err: fmt.Errorf(format, args...)})
}
