package transport

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// Errors that callers tell apart with errors.Is. What the package returns wraps
// one of them with the rank, the peer and the tag.
var (
	// ErrTimeout: the deadline of a send, a receive or a handshake passed. It is also an
	// os.ErrDeadlineExceeded.
	ErrTimeout error = timeout{}
	// ErrClosed: this rank's own mesh or link was closed.
	ErrClosed = errors.New("closed on this side")
	// ErrGoodbye: the peer closed its mesh in good order.
	ErrGoodbye = errors.New("the peer closed its mesh and left")
	// ErrAborted: this rank or a peer called Abort.
	ErrAborted = errors.New("aborted")
	// ErrLength: a message and its receive differ in length.
	ErrLength = errors.New("lengths differ")
	// ErrNotRingo: what is at the other end does not speak this protocol.
	ErrNotRingo = errors.New("not a ringo process")
	// ErrVersion: the other end is another version of the program.
	ErrVersion = errors.New("versions differ")
	// ErrTicket: the other end does not hold the same ticket.
	ErrTicket = errors.New("the tickets differ")
	// ErrRefused: the other end refused the connection for a reason of its own.
	ErrRefused = errors.New("refused")
)

// timeout is ErrTimeout.
type timeout struct{}

func (timeout) Error() string        { return "timed out" }
func (timeout) Timeout() bool        { return true } // a net.Error's
func (timeout) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// TimedOut tells whether an operation of this rank has timed out, and not one that it was told
// of, which is an ErrTimeout, too.
func TimedOut(err error) bool {
	var abort *AbortError
	var lost *LostError
	return errors.Is(err, ErrTimeout) && !errors.As(err, &abort) && !errors.As(err, &lost)
}

// Error is a fault of one operation on a mesh.
type Error struct {
	Op   string // "send", "receive"
	Rank int    // where it happened
	Peer int    // the other end
	Tag  Tag    // which message; zero when the fault is the link's
	Err  error  // the cause
}

// Error returns the fault in one line, with both ends and the message.
func (e *Error) Error() string {
	way := "to"
	if e.Op == "receive" {
		way = "from"
	}
	return fmt.Sprintf("rank %d: %s %s rank %d (message %v): %v", e.Rank, e.Op, way, e.Peer, e.Tag, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// MismatchError says that this rank and a peer do not run the same operation:
// their signatures (Tag.Sig) differ.
type MismatchError struct {
	Mine, Theirs uint64
}

// Error shows both signatures; who made them can say more.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("the operations differ: signature %#x here, %#x there; do all ranks run the same program with the same sizes?", e.Mine, e.Theirs)
}

// LostError says that a rank is gone: its process died, or its host cannot be
// reached. It crosses the wire with Abort, so that every survivor names the
// same rank.
type LostError struct {
	Rank   int
	Reason string
	// Timeout says that it was found lost because an operation with it timed out: the error
	// is then an ErrTimeout, too.
	Timeout bool
}

// Error names the rank.
func (e *LostError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("rank %d is lost", e.Rank)
	}
	return failure.Lost(failure.Rank(e.Rank), e.Reason)
}

// ServerLostError says that a process of the job that is no member of the mesh is gone, such as a server that keeps
// parameters: no rank is to blame, whichever has noticed it first.
type ServerLostError struct {
	Process string // "parameter server 0"
	Addr    string // where it listened, HOST:PORT, or "": nowhere
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

// Unwrap returns ErrTimeout if a timeout was the reason.
func (e *LostError) Unwrap() error {
	if e.Timeout {
		return ErrTimeout
	}
	return nil
}

// AbortError is what a rank's operations fail with after a peer called Abort.
// It unwraps to ErrAborted and, when the cause there was a lost rank, to the
// same *LostError, and when an operation there had timed out, to ErrTimeout.
type AbortError struct {
	Rank    int    // who called Abort
	Reason  string // what it gave as the cause
	Lost    *LostError
	Timeout bool // an operation had timed out there
}

// Error names who aborted, and why.
func (e *AbortError) Error() string {
	return fmt.Sprintf("rank %d aborted: %s", e.Rank, e.Reason)
}

// Unwrap returns ErrAborted and what the cause was: the lost rank, a timeout.
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

// NewAbortError describes cause as the peers of rank will see it. What they can
// take from it is a *LostError and ErrTimeout; the rest is text. What follows from another rank's Abort
// is that one: whoever hears of it first, all name the same rank.
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

// aborted is the cause of an Abort on the rank that called it.
type aborted struct{ cause error }

func (a *aborted) Error() string   { return a.cause.Error() }
func (a *aborted) Unwrap() []error { return []error{ErrAborted, a.cause} }

// Aborted wraps the cause given to Abort so that it is also an ErrAborted.
func Aborted(cause error) error {
	switch {
	case cause == nil:
		return ErrAborted
	case errors.Is(cause, ErrAborted):
		return cause
	}
	return &aborted{cause}
}

// Culprit returns the rank to blame for err: one that is lost, else who aborted, or
// the other end of the message that failed; fallback where err names nobody.
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

// Permanent reports whether err is a refusal of a handshake, which another try would only repeat.
func Permanent(err error) bool {
	return slices.ContainsFunc([]error{ErrNotRingo, ErrVersion, ErrTicket, ErrCertificate, ErrRefused}, func(e error) bool { return errors.Is(err, e) })
}
