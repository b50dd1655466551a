package bindings

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/transport"
)

// Code is a result across the C boundary. The numbers never change.
type Code int

// The codes, negative for errors.
const (
	OK       Code = 0
	Pending  Code = 1  // the operation continues
	Invalid  Code = -1 // wrong argument or handle: nothing was started
	Lost     Code = -2 // a rank is gone, or has ended the job
	TimedOut Code = -3 // a rank did not join or answer in time
	Mismatch Code = -4 // ranks have started different operations
	Closed   Code = -5 // the group or the job was closed locally
	Forked   Code = -6 // this process is a fork of the library's process
	Internal Code = -7 // a library bug
	Failed   Code = -8 // all other errors
)

// Of returns an error's code and the rank of the culprit in the job, or -1 if unknown.
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

// Text is an error's text in at most room bytes, without zero bytes, cut between characters.
func Text(err error, room int) string {
	text := strings.ReplaceAll(err.Error(), "\x00", "\\0")
	if len(text) <= room {
		return text
	}
	for room = max(0, room-3); room > 0 && !utf8.RuneStart(text[room]); room-- {
	}
	return text[:room] + "..."
}
