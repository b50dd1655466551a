package faults

import (
	"errors"
	"io"
	"testing"
)

// TestListJoinsErrors compares the text of a list, and finds the causes in it.
func TestListJoinsErrors(t *testing.T) {
	bad := In("100%s: ")
	bad.If(false, "%d", 1)
	bad.Wrap(nil)
	bad.Add(nil, nil)
	if err := bad.Err(); err != nil || !bad.Empty() {
		t.Fatalf("no error gives %v", err)
	}
	bad.If(true, "%d of %w", 2, io.EOF)
	bad.Wrap(io.ErrClosedPipe)
	bad.Add(io.ErrNoProgress)
	want := "100%s: 2 of EOF\n100%s: io: read/write on closed pipe\nmultiple Read calls return no data or error"
	if err := bad.Err(); err == nil || err.Error() != want || bad.Empty() {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, cause := range []error{io.EOF, io.ErrClosedPipe, io.ErrNoProgress} {
		if !errors.Is(bad.Err(), cause) {
			t.Errorf("%v is no cause", cause)
		}
	}
}
