package exchange

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Error is a fault of an exchange.
type Error struct {
	Op     string     // "allreduce", "chunks", "counts", or the algorithm of a sparse exchange
	Rank   int        // where it was seen, as the mesh numbers ranks
	Peer   int        // likewise the lost rank, or whose data are at fault; Rank: this rank
	Lo, Hi int        // the bucket, as a range of the arena
	Bucket BucketInfo // its number and layers, where the operation names them
	Err    error      // the cause
}

// Error returns one line.
func (e *Error) Error() string {
	who := ""
	if e.Peer != e.Rank {
		who = fmt.Sprintf(" with rank %d", e.Peer)
	}
	what := fmt.Sprintf("gradients %d to %d", e.Lo, e.Hi)
	if name := e.Bucket.String(); name != "" {
		what = name + ", " + what + ","
	}
	return fmt.Sprintf("exchange: %s of %s on rank %d%s: %v", e.Op, what, e.Rank, who, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Place is the bucket in words.
func (e *Error) Place() failure.Position { return failure.Position{Bucket: e.Bucket.String()} }

// ValueError is a sum that its code has no room for.
type ValueError struct {
	At    int     // its place in the arena
	Value float32 // infinite or NaN
	Code  string  // the code's name
}

// Error says where, and what to do.
func (e *ValueError) Error() string {
	return fmt.Sprintf("the sum over the ranks is %s at place %d of the arena, which %s has no room for: clip, lower the learning rate, or use a code of wider range", quantity.Exact(e.Value), e.At, e.Code)
}

// peerError is a fault in what a rank of the group sent.
type peerError struct {
	rank int
	err  error
}

func (e *peerError) Error() string { return e.err.Error() }
func (e *peerError) Unwrap() error { return e.err }

// damaged says that what a rank sent is not right.
func damaged(rank int, format string, args ...any) error {
	return &peerError{rank, fmt.Errorf(format, args...)}
}

// fault makes err one of op.
func (e *GroupReducer) fault(op *Request, what string, err error) error {
	out := &Error{Op: what, Rank: e.g.MeshRank(e.g.Rank()), Lo: op.Lo, Hi: op.Lo + len(op.X), Bucket: op.Bucket, Err: err}
	out.Peer = out.Rank
	var peer *peerError
	var inside *collective.OpError
	switch {
	case errors.As(err, &peer):
		out.Peer, out.Err = e.g.MeshRank(peer.rank), peer.err
	case errors.As(err, &inside):
		out.Peer = inside.Peer
		return out // its group has recorded it
	case errors.As(err, new(*ValueError)):
		return out // all ranks have it, of their gradients: no fault of the exchange, and the caller may skip the step
	}
	e.record(out)
	return out
}

// record records a fault that no operation of the group shows: of what was exchanged by them.
func (e *GroupReducer) record(fault *Error) {
	rec := e.g.Recorder()
	event := record.Event{Kind: record.Fault, Name: rec.Name(fault.Error()), Bucket: -1, Other: -1, Peer: int32(fault.Peer), Sent: -1, Begun: rec.Now(), Done: rec.Now()}
	if b := fault.Bucket; b.First != "" {
		event.Bucket, event.Label = int32(b.Number), b.Label
	}
	rec.Add(&event)
}
