package transport

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// Errors for errors.Is. The package wraps them with the rank, the peer and the tag.
var (
	// ErrTimeout means that the deadline of a send, a receive or a handshake passed. ErrTimeout is
	// also an os.ErrDeadlineExceeded.
	ErrTimeout error = timeout{}
	// ErrClosed means that this rank's mesh or link was closed.
	ErrClosed = errors.New("closed on this side")
	// ErrGoodbye means that the peer closed its mesh without an error.
	ErrGoodbye = errors.New("the peer closed its mesh and left")
	// ErrAborted means that this rank or a peer called Abort.
	ErrAborted = errors.New("aborted")
	// ErrLength means that a message and its receive differ in length.
	ErrLength = errors.New("lengths differ")
	// ErrNotRingo means that the peer does not use this protocol.
	ErrNotRingo = errors.New("not a ringo process")
	// ErrVersion means that the peer runs another version of the program.
	ErrVersion = errors.New("versions differ")
	// ErrTicket means that the peer has another ticket.
	ErrTicket = errors.New("the tickets differ")
	// ErrRefused means that the peer refused the connection for a reason not listed above.
	ErrRefused = errors.New("refused")
)

type timeout struct{}

func (timeout) Error() string        { return "timed out" }
func (timeout) Timeout() bool        { return true } // implements net.Error
func (timeout) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// TimedOut reports whether an operation of this rank has timed out. It is false for another rank's
// timeout, although that is an ErrTimeout too.
func TimedOut(err error) bool {
	var abort *AbortError
	var lost *LostError
	return errors.Is(err, ErrTimeout) && !errors.As(err, &abort) && !errors.As(err, &lost)
}

// Error is an error of an operation on a mesh.
type Error struct {
	Op   string // "send", "receive"
	Rank int    // this rank
	Peer int    // peer rank
	Tag  Tag    // message; zero for an error of the link
	Err  error  // cause
}

// Error returns the error on one line, with both ranks and the message.
func (e *Error) Error() string {
	way := "to"
	if e.Op == "receive" {
		way = "from"
	}
	return fmt.Sprintf("rank %d: %s %s rank %d (message %v): %v", e.Rank, e.Op, way, e.Peer, e.Tag, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// MismatchError means that this rank and a peer run different operations: Tag.Sig differs.
type MismatchError struct {
	Mine, Theirs uint64
}

// Error returns both signatures; the caller of the mesh can describe the operations.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("the operations differ: signature %#x here, %#x there; do all ranks run the same program with the same sizes?", e.Mine, e.Theirs)
}

// LostError means that a rank is lost: its process died, or its host is unreachable. Abort sends
// the LostError to the other ranks, so that all of them name the same rank.
type LostError struct {
	Rank   int
	Reason string
	// Timeout reports whether the rank counts as lost because an operation timed out. If so, the
	// error is also an ErrTimeout.
	Timeout bool
}

// Error names the rank.
func (e *LostError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("rank %d is lost", e.Rank)
	}
	return failure.Lost(failure.Rank(e.Rank), e.Reason)
}

// ServerLostError means that a process outside the mesh is lost, such as a parameter server. No
// rank is to blame, not even the first that noticed.
type ServerLostError struct {
	Process string // "parameter server 0"
	Addr    string // listen address, HOST:PORT, or ""
	Reason  string
}

// Error names the process.
func (e *ServerLostError) Error() string {
	at := ""
	if e.Addr != "" {
		at = " at " + e.Addr
	}
	return fmt.Sprintf("%s%s is lost: %s", e.Process, at, e.Reason)
}

// Unwrap returns ErrTimeout for a rank lost by a timeout, else nil.
func (e *LostError) Unwrap() error {
	if e.Timeout {
		return ErrTimeout
	}
	return nil
}

// AbortError is the error of a rank's operations after a peer called Abort. It unwraps to
// ErrAborted and to the cause that the peer gave: the same *LostError for a lost rank, or
// ErrTimeout for a timeout.
type AbortError struct {
	Rank    int    // aborting rank
	Reason  string // cause on the aborting rank
	Lost    *LostError
	Timeout bool // an operation of the aborting rank had timed out
}

// Error returns the aborting rank and the reason.
func (e *AbortError) Error() string {
	return fmt.Sprintf("rank %d aborted: %s", e.Rank, e.Reason)
}

// Unwrap returns ErrAborted, and the lost rank or the timeout that was the cause.
func (e *AbortError) Unwrap() []error {
	out := []error{ErrAborted}
	if e.Lost != nil {
		out = append(out, e.Lost)
	}
	if e.Timeout {
		out = append(out, ErrTimeout)
	}
	return out
}

// NewAbortError returns the error that the peers of rank receive for cause: a *LostError and
// ErrTimeout keep their types; of other errors only the text remains. If cause follows from another
// rank's Abort, NewAbortError returns that AbortError, so that all ranks name the same rank.
func NewAbortError(rank int, cause error) *AbortError {
	if by := (*AbortError)(nil); errors.As(cause, &by) {
		return by
	}
	if cause == nil {
		cause = ErrAborted
	}
	e := &AbortError{Rank: rank, Reason: cause.Error(), Timeout: errors.Is(cause, os.ErrDeadlineExceeded)}
	errors.As(cause, &e.Lost)
	return e
}

type aborted struct{ cause error }

func (a *aborted) Error() string   { return a.cause.Error() }
func (a *aborted) Unwrap() []error { return []error{ErrAborted, a.cause} }

// Aborted wraps the cause of an Abort as an ErrAborted.
func Aborted(cause error) error {
	switch {
	case cause == nil:
		return ErrAborted
	case errors.Is(cause, ErrAborted):
		return cause
	}
	return &aborted{cause}
}

// Culprit returns the rank to blame for err: the lost rank, or else the rank that aborted, or else
// the peer of the failed message, or else fallback.
func Culprit(err error, fallback int) int {
	var (
		lost  *LostError
		abort *AbortError
		link  *Error
	)
	switch {
	case errors.As(err, &lost):
		return lost.Rank
	case errors.As(err, &abort):
		return abort.Rank
	case errors.As(err, &link):
		return link.Peer
	}
	return fallback
}

// Permanent reports whether err is a refusal of a handshake that another attempt would also get.
func Permanent(err error) bool {
	return slices.ContainsFunc([]error{ErrNotRingo, ErrVersion, ErrTicket, ErrCertificate, ErrRefused}, func(e error) bool { return errors.Is(err, e) })
}
