package transport

import (
	"errors"
	"fmt"
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
