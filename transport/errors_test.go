package transport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
)

// Whoever passes an abort on, first or third, names the rank that began it, and its words.
func TestEchoOfAnAbort(t *testing.T) {
	first := NewAbortError(2, errors.New("out of paper"))
	echo := NewAbortError(1, fmt.Errorf("allreduce 7: %w", &Error{Op: "send", Rank: 1, Peer: 0, Err: first}))
	if echo != first || Culprit(echo, -1) != 2 || echo.Error() != "rank 2 aborted: out of paper" {
		t.Errorf("got %v", echo)
	}
	if own := NewAbortError(1, Aborted(&LostError{Rank: 3})); own.Rank != 1 || Culprit(own, -1) != 3 {
		t.Errorf("got %v", own)
	}
}

// Permanent is true of each refusal of a handshake, however wrapped, and false of what another try may change.
func TestPermanentIsOfRefusals(t *testing.T) {
	for _, err := range []error{ErrNotRingo, ErrVersion, ErrTicket, ErrCertificate, ErrRefused} {
		if !Permanent(fmt.Errorf("dial: %w", err)) {
			t.Errorf("%v would be tried again", err)
		}
	}
	for _, err := range []error{nil, ErrTimeout, ErrClosed, errCrowded, io.EOF, os.ErrDeadlineExceeded} {
		if Permanent(err) {
			t.Errorf("%v would not be tried again", err)
		}
	}
}
