package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// What members tell of their end travels over the control connection, so that whoever hosts
// the coordinator can tell of one fault once, however many ranks end because of it.

// failedPrefix is what the reason of a rank begins with that said itself that it failed.
const failedPrefix = "it failed: "

// Failed is the error with which a rank has ended by itself, of the reason that a verdict
// gives; ok is false of one that was lost otherwise.
func Failed(why string) (text string, ok bool) { return strings.CutPrefix(why, failedPrefix) }

// Failure is the reason of which Failed finds the error.
func Failure(text string) string { return failedPrefix + text }

// EndOf is how a rank ends because of err, for whoever is told without a coordinator.
func EndOf(rank int, err error) failure.Exit { return failed(rank, err).end(rank) }

// end is what a rank tells of its end.
func (m message) end(rank int) failure.Exit {
	return failure.Exit{Rank: rank, Cause: m.Cause, Reason: m.Reason, Place: failure.Position{Where: m.Where, Bucket: m.Bucket}, Stopped: m.Stopped}
}

// failed is what a rank tells of its end.
func failed(rank int, err error) message {
	at := failure.PositionOf(err)
	out := message{Kind: kindFailed, Peer: blamed(err), Reason: err.Error(), TimedOut: errors.Is(err, transport.ErrTimeout), Where: at.Where, Bucket: at.Bucket, Stopped: errors.Is(err, context.Canceled)}
	out.In = missedIn(err)
	lost, server := (*transport.LostError)(nil), (*transport.ServerLostError)(nil)
	switch {
	case errors.As(err, &server):
		out.Cause, out.Peer = server.Process, -1
		out.Addr, out.Reason = clip(server.Addr, maxAddr), server.Reason
	case errors.As(err, &lost) && lost.Rank != rank:
		out.Cause = failure.Rank(lost.Rank)
	}
	return out
}

// missedIn is the operation that failed because the other rank ended early; "": err has another
// reason.
func missedIn(err error) string {
	abort, lost := (*transport.AbortError)(nil), (*transport.LostError)(nil)
	early := errors.Is(err, transport.ErrGoodbye) && !errors.As(err, &abort)
	if !early && !(errors.As(err, &lost) && strings.HasPrefix(lost.Reason, failure.Early("", "", ""))) {
		return ""
	}
	if op := (interface{ Operation() string })(nil); errors.As(err, &op) && op.Operation() != "" {
		return op.Operation()
	}
	return "an operation"
}

// jobEnded begins what a rank is told that comes after the verdict.
const jobEnded = "the job has ended: "

// IsVerdict tells whether an error of Join is the verdict, which the coordinator has come to
// itself.
func IsVerdict(err error) bool {
	var lost *transport.LostError
	var server *transport.ServerLostError
	var missing *MissingError
	var conflict *setting.ConflictError
	late := errors.Is(err, transport.ErrRefused) && strings.Contains(err.Error(), jobEnded)
	return late || errors.As(err, &lost) || errors.As(err, &server) || errors.As(err, &missing) || errors.As(err, &conflict)
}

// note keeps what a rank tells of its end. The caller holds mu.
func (c *Coordinator) note(rank int, m message) {
	if !slices.ContainsFunc(c.ends, func(e failure.Exit) bool { return e.Rank == rank }) {
		c.ends = append(c.ends, m.end(rank))
	}
}

// Ends is what members have told of their end, by rank: those that failed or that another's
// loss has ended, and could say so.
func (c *Coordinator) Ends() []failure.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Clone(c.ends)
	slices.SortFunc(out, func(a, b failure.Exit) int { return a.Rank - b.Rank })
	return out
}
