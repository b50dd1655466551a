// Package cluster tracks the membership of a job.
//
// One Coordinator, in the launcher or, for ranks started by hand, in rank 0's process, has a
// control connection per rank. The Coordinator gathers the ranks, distributes the list of addresses
// and exchanges heartbeats. When a rank is lost, the Coordinator sends all other ranks the same
// verdict, so that every survivor names the same rank. Slow ranks are only reported.
//
// Pure functions (judge, FindSlow) make the decisions; Coordinator and Member exchange messages.
// Control connections carry no training data: about 100 bytes per rank and second.
package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// Defaults of CoordinatorConfig's zero values.
const (
	defaultSlowAfter  = 5 * time.Second
	defaultStuckAfter = 30 * time.Second
)

// answerTimeout limits the wait for the peer to read or answer a control message.
const answerTimeout = 2 * time.Second

// MissingError means that ranks did not join in time.
type MissingError struct {
	Ranks     []int // missing ranks, ascending
	WorldSize int
	Servers   int // number of servers, the last members
	Timeout   time.Duration
}

// Error names the missing ranks.
func (e *MissingError) Error() string {
	servers := ""
	switch {
	case e.Servers == 1:
		servers = ", the last of which is a server,"
	case e.Servers > 1:
		servers = fmt.Sprintf(", the last %d of which are servers,", e.Servers)
	}
	return fmt.Sprintf("%s of %d%s did not join within %v: are they started, with the same ticket and rendezvous?",
		rankList(e.Ranks), e.WorldSize, servers, e.Timeout)
}

// Unwrap returns transport.ErrTimeout.
func (e *MissingError) Unwrap() error { return transport.ErrTimeout }

// ErrNoCoordinator means that the coordinator ended or is unreachable. A rank of a running job
// cannot continue without the coordinator, because no losses would be reported to the rank.
var ErrNoCoordinator = errors.New("the coordinator is gone")

// DialError means that a rank could not reach the coordinator, or was refused.
type DialError struct {
	Rank       int
	Rendezvous string
	Err        error // error of the last attempt
}

// Error names the rank and the rendezvous.
func (e *DialError) Error() string {
	return fmt.Sprintf("rank %d cannot join at %s: %v", e.Rank, e.Rendezvous, e.Err)
}

// Unwrap returns the error of the last attempt.
func (e *DialError) Unwrap() error { return e.Err }

// ServerName returns the prefix of a lost server's reason, "server 1: ", or "" below 0.
func ServerName(server int) string {
	if server < 0 {
		return ""
	}
	return fmt.Sprintf("server %d: ", server)
}

// rankList formats "rank 1", "ranks 1 and 3" or "ranks 1, 2 and 5".
func rankList(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + strconv.Itoa(ranks[0])
	}
	var b strings.Builder
	b.WriteString("ranks ")
	for i, r := range ranks {
		switch {
		case i > 0 && i == len(ranks)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(r))
	}
	return b.String()
}

// blamed returns the rank that err names as the cause, or -1 if the cause is this rank.
func blamed(err error) int {
	var mismatch *transport.MismatchError
	if errors.Is(err, transport.ErrLength) || errors.As(err, &mismatch) {
		return -1 // the ranks' programs differ; the peer is alive
	}
	var ended interface{ Reason() error }
	if errors.As(err, &ended) {
		err = ended.Reason() // errors of peers afterwards are consequences of the rank's own end
	}
	return transport.Culprit(err, -1)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}
