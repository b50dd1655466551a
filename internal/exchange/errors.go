package exchange

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Error is an error of an exchange.
type Error struct {
	Op     string     // "allreduce", "chunks", "counts", or the algorithm of a sparse exchange
	Rank   int        // mesh rank that noticed the error
	Peer   int        // mesh rank that is lost or sent bad data; Rank: none
	Lo, Hi int        // range of the bucket in the arena
	Bucket BucketInfo // number and layers, if named
	Err    error      // the cause
}

// Error returns a single line.
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

// ValueError is a sum outside the range of its code.
type ValueError struct {
	At    int     // index in the arena
	Value float32 // infinite or NaN
	Code  string  // the code's name
}

// Error names the index and a remedy.
func (e *ValueError) Error() string {
	return fmt.Sprintf("the sum over the ranks is %s at place %d of the arena, which %s has no room for: clip, lower the learning rate, or use a code of wider range", quantity.Exact(e.Value), e.At, e.Code)
}

// peerError is an error in data from a rank of the group.
type peerError struct {
	rank int
	err  error
}

func (e *peerError) Error() string { return e.err.Error() }
func (e *peerError) Unwrap() error { return e.err }

// damaged returns an error in data from a rank.
func damaged(rank int, format string, args ...any) error {
	return &peerError{rank, fmt.Errorf(format, args...)}
}

// fault makes err an error of op.
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
		return out // recorded by its group
	case errors.As(err, new(*ValueError)):
		return out // the same on all ranks, about gradients: not recorded, because the caller may skip the step
	}
	e.record(out)
	return out
}

// record records an error in exchanged data, which no operation of the group records.
func (e *GroupReducer) record(fault *Error) {
	rec := e.g.Recorder()
	event := record.Event{Kind: record.Fault, Name: rec.Name(fault.Error()), Bucket: -1, Other: -1, Peer: int32(fault.Peer), Sent: -1, Begun: rec.Now(), Done: rec.Now()}
	if b := fault.Bucket; b.First != "" {
		event.Bucket, event.Label = int32(b.Number), b.Label
	}
	rec.Add(&event)
}
