package aggregate

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// Error is an error of an exchange. The first one of a client or server is the cause of later ones.
type Error struct {
	Op       string // "push", "pull", "serve", "leave"
	Seq      uint32 // number of the exchange, from 0
	Exchange string // description: "fp32, 4096 values at 0, in segments of 131072", or ""
	Rank     int    // mesh rank that noticed the error
	Peer     int    // lost member if known, else the other end; Rank itself: no other member
	Trainers int    // members below are trainers, the rest servers
	Err      error  // the cause

	Bucket exchange.BucketInfo // the bucket, if the trainer names it
}

// Place is the bucket in words.
func (e *Error) Place() failure.Position { return failure.Position{Bucket: e.Bucket.String()} }

// Error names the exchange, the member, the peer and the cause.
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

// MismatchError reports trainers with different exchanges.
type MismatchError struct {
	Ranks     [2]int
	Exchanges [2]string
}

// Error describes both.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("rank %d pushed %s, but rank %d pushed %s: all trainers must exchange the same buckets in the same order with the same settings",
		e.Ranks[0], e.Exchanges[0], e.Ranks[1], e.Exchanges[1])
}

// valueFault changes the index in a code's error, which counts the values sent, to an index of all
// gradients: lo plus that index, or lo plus index[i] for listed entries.
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
