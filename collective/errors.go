package collective

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// OpError is the error of an operation. All later errors of a group wrap the first.
type OpError struct {
	Op   string // "allreduce", "broadcast", …, "close" or "fail"
	Rank int    // rank with the error, by its number in the mesh
	Peer int    // lost rank in the mesh, if known, else the peer; Rank for an error of the caller
	Seq  uint32 // number of the operation in the group, from 0
	Err  error  // the cause
}

// Error returns one line of text.
func (e *OpError) Error() string {
	var first *OpError
	if errors.As(e.Err, &first) {
		return fmt.Sprintf("collective: %s %d on rank %d: the group is broken: %v", e.Op, e.Seq, e.Rank, e.Err)
	}
	hint := ""
	if m := (*transport.MismatchError)(nil); errors.As(e.Err, &m) {
		low, high := fmt.Sprintf("rank %d started %v", e.Rank, signature(m.Mine)), fmt.Sprintf("rank %d started %v", e.Peer, signature(m.Theirs))
		if e.Peer < e.Rank {
			low, high = high, low // both ranks return the same text, which is then printed once
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

// wrap returns err as an error of w. An error of another operation remains the cause.
func (w *Work) wrap(err error) *OpError {
	var first *OpError
	if errors.As(err, &first) && first.Op == w.kind.String() && first.Seq == w.seq {
		return first
	}
	rank := w.g.mesh.Rank()
	return &OpError{Op: w.kind.String(), Rank: rank, Peer: culprit(err, rank), Seq: w.seq, Err: err}
}

// culprit returns the mesh rank that caused err: transport.Culprit's, else that of an operation
// inside err, else rank.
func culprit(err error, rank int) int {
	if op := (*OpError)(nil); errors.As(err, &op) {
		rank = op.Peer
	}
	return transport.Culprit(err, rank)
}

// misuse returns an error of the caller: no operation starts, and the group remains usable if all
// ranks made the same mistake. The error has the number of the operation that did not start.
func (w *Work) misuse(format string, args ...any) *Work {
	g, rank := w.g, w.g.mesh.Rank()
	seq := uint32(0)
	if !w.kind.pairs() { // operations of a pair have other numbers, and the pair may be invalid
		g.mu.Lock()
		seq = g.next
		g.mu.Unlock()
	}
	return w.refuse(&OpError{Op: w.kind.String(), Rank: rank, Peer: rank, Seq: seq, Err: fmt.Errorf(format, args...)})
}
