package aggregate

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// Error is a fault of one exchange. The first one of a client or server is the
// cause of all later ones.
type Error struct {
	Op       string // "push", "pull", "serve", "leave"
	Seq      uint32 // which exchange, from 0
	Exchange string // what it is: "fp32, 4096 values at 0, in segments of 131072"; "" where that is not known
	Rank     int    // where it was seen, as the mesh numbers members
	Peer     int    // the lost member if one is known to be, else the other end; Rank itself: nobody else is to blame
	Trainers int    // the members below are ranks that train, the others servers
	Err      error  // the cause

	Bucket exchange.BucketInfo // what is exchanged, where the trainer names it
}

// Place is the bucket in words.
func (e *Error) Place() failure.Position { return failure.Position{Bucket: e.Bucket.String()} }

// Error says which exchange failed, where, with whom, and why.
func (e *Error) Error() string {
	what := ""
	if e.Exchange != "" {
		what = " (" + e.Exchange + ")"
	}
	if name := e.Bucket.String(); name != "" {
		what = " of " + name + what
	}
	with := ""
	if e.Peer != e.Rank {
		with = " with " + role(e.Peer, e.Trainers)
	}
	hint := ""
	if transport.TimedOut(e.Err) {
		hint = "; is it stuck, and do all trainers start the same exchanges?"
	}
	return fmt.Sprintf("aggregate: %s %d%s on %s%s: %v%s", e.Op, e.Seq, what, role(e.Rank, e.Trainers), with, e.Err, hint)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// MismatchError says that trainers differ in what they exchange.
type MismatchError struct {
	Ranks     [2]int
	Exchanges [2]string
}

// Error describes both.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("rank %d pushed %s, but rank %d pushed %s: all trainers must exchange the same buckets in the same order with the same settings",
		e.Ranks[0], e.Exchanges[0], e.Ranks[1], e.Exchanges[1])
}

// valueFault makes a code's error about a value that of a place in the arena:
// values from place lo on, or of the entries listed, counted from there.
func valueFault(err error, lo int, index []int32) error {
	v := (*compress.ValueError)(nil)
	if !errors.As(err, &v) || index != nil && v.Index >= len(index) {
		return err
	}
	at := lo + v.Index
	if index != nil {
		at = lo + int(index[v.Index])
	}
	return &exchange.ValueError{At: at, Value: v.Value, Code: v.Code}
}
