package bindings

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/transport"
)

// Code is what a function returns across the border. Its numbers never change.
type Code int

// The codes. Those of faults are negative.
const (
	OK       Code = 0
	Pending  Code = 1  // the operation goes on
	Invalid  Code = -1 // an argument or a handle is wrong: nothing was started
	Lost     Code = -2 // a rank is gone, or has ended the job
	TimedOut Code = -3 // a rank did not come or answer in time
	Mismatch Code = -4 // ranks have started different operations
	Closed   Code = -5 // the group or the job was closed on this side
	Forked   Code = -6 // this process is a fork of the one that has the library
	Internal Code = -7 // a fault of the library
	Failed   Code = -8 // anything else
)

// Of sorts a fault, and says which rank of the job is to blame, -1: none is known.
func Of(err error) (code Code, rank int) {
	if err == nil {
		return OK, -1
	}
	var (
		misuse *Misuse
		differ *transport.MismatchError
		lost   *transport.LostError
		abort  *transport.AbortError
		op     *collective.OpError
	)
	rank = transport.Culprit(err, -1)
	switch {
	case errors.As(err, &misuse):
		return Invalid, -1
	case errors.As(err, &differ):
		return Mismatch, rank
	case errors.As(err, &lost):
		return Lost, rank
	case errors.Is(err, transport.ErrTimeout):
		return TimedOut, rank
	case errors.As(err, &abort), errors.Is(err, transport.ErrGoodbye):
		return Lost, rank
	case errors.Is(err, transport.ErrClosed):
		return Closed, -1
	case errors.As(err, &op) && op.Peer == op.Rank && rank < 0:
		return Invalid, -1
	}
	return Failed, rank
}

// Text is an error's text in at most room bytes, without a zero byte, cut between characters.
func Text(err error, room int) string {
	text := strings.ReplaceAll(err.Error(), "\x00", "\\0")
	if len(text) <= room {
		return text
	}
	for room = max(0, room-3); room > 0 && !utf8.RuneStart(text[room]); room-- {
	}
	return text[:room] + "..."
}
