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

// Members report why they end over the control connection, so that the coordinator's process can
// report a failure once, for all ranks that end because of it.

// failedPrefix is the prefix of a reason that the rank itself reported.
const failedPrefix = "it failed: "

// Failed extracts a rank's own error from a verdict's reason; ok is false for other losses.
func Failed(why string) (text string, ok bool) { return strings.CutPrefix(why, failedPrefix) }

// Failure returns the reason for the error text; Failed is the inverse.
func Failure(text string) string { return failedPrefix + text }

// EndOf returns the end of a rank because of err, for processes without a coordinator.
func EndOf(rank int, err error) failure.Exit { return failed(rank, err).end(rank) }

func (m message) end(rank int) failure.Exit {
	return failure.Exit{Rank: rank, Cause: m.Cause, Reason: m.Reason, Place: failure.Position{Where: m.Where, Bucket: m.Bucket}, Stopped: m.Stopped}
}

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

// missedIn returns the operation that failed because another rank ended early, or "".
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

// jobEnded is the prefix of the refusal after a verdict.
const jobEnded = "the job has ended: "

// IsVerdict reports whether an error of Join is a verdict of the coordinator.
func IsVerdict(err error) bool {
	var lost *transport.LostError
	var server *transport.ServerLostError
	var missing *MissingError
	var conflict *setting.ConflictError
	late := errors.Is(err, transport.ErrRefused) && strings.Contains(err.Error(), jobEnded)
	return late || errors.As(err, &lost) || errors.As(err, &server) || errors.As(err, &missing) || errors.As(err, &conflict)
}

// note stores a rank's report of why it ends. The caller holds mu.
func (c *Coordinator) note(rank int, m message) {
	if !slices.ContainsFunc(c.ends, func(e failure.Exit) bool { return e.Rank == rank }) {
		c.ends = append(c.ends, m.end(rank))
	}
}

// Ends returns the reports of members that ended by an error, their own or the loss of another
// member, sorted by rank.
func (c *Coordinator) Ends() []failure.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Clone(c.ends)
	slices.SortFunc(out, func(a, b failure.Exit) int { return a.Rank - b.Rank })
	return out
}
