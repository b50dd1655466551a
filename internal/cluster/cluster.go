// Package cluster knows who is in the job.
//
// One Coordinator, in the launcher or, when ranks are started by hand, in rank
// 0's process, holds one control connection per rank. It gathers the ranks and
// hands everyone the list of addresses, exchanges heartbeats, and when a rank is
// lost it tells all the others the same verdict, so that every survivor names
// the same rank. A rank that is only slow is reported by name and left alone.
//
// The decisions (judge, FindSlow) are pure functions; Coordinator and Member are
// the shell that moves messages. Nothing that trains goes over the control
// connections: about 100 bytes per rank and second.
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

// answerTimeout bounds what one side waits for the other to read or answer one
// control message.
const answerTimeout = 2 * time.Second

// MissingError says that ranks did not join in time.
type MissingError struct {
	Ranks     []int // who is missing, ascending
	WorldSize int
	Servers   int // how many of all, the last, are servers
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

// ErrNoCoordinator: the coordinator ended or cannot be reached. A rank of a
// running job cannot go on without it, since nobody would tell it of a loss.
var ErrNoCoordinator = errors.New("the coordinator is gone")

// DialError says that a rank could not reach the coordinator, or that the
// coordinator refused it.
type DialError struct {
	Rank       int
	Rendezvous string
	Err        error // the last attempt's fault
}

// Error names the rank and the rendezvous.
func (e *DialError) Error() string {
	return fmt.Sprintf("rank %d cannot join at %s: %v", e.Rank, e.Rendezvous, e.Err)
}

// Unwrap returns the last attempt's fault.
func (e *DialError) Unwrap() error { return e.Err }

// ServerName is what the reason of a lost rank begins with if it was a server:
// "server 1: "; of a negative number nothing.
func ServerName(server int) string {
	if server < 0 {
		return ""
	}
	return fmt.Sprintf("server %d: ", server)
}

// rankList writes "rank 1", "ranks 1 and 3" or "ranks 1, 2 and 5".
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

// blamed returns the rank that err accuses, or -1 when it accuses nobody: the
// fault is then of the rank that has it.
func blamed(err error) int {
	var mismatch *transport.MismatchError
	if errors.Is(err, transport.ErrLength) || errors.As(err, &mismatch) {
		return -1 // the ranks' programs differ; the peer is alive
	}
	var ended interface{ Reason() error }
	if errors.As(err, &ended) {
		err = ended.Reason() // what the rank saw of others then, it has done itself
	}
	return transport.Culprit(err, -1)
}

// clip shortens a text to at most n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}
