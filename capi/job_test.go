//go:build cgo

package main

import (
	"errors"
	"io"
	"runtime/cgo"
	"testing"

	"github.com/ringo-ml/ringo/internal/bindings"
)

// A part's handle is given up once, by close or by the job's leave, whichever comes first.
func TestPartsAreGivenUpOnce(t *testing.T) {
	part := &strategy{}
	closed, left := cgo.NewHandle(part), cgo.NewHandle(part)
	j := &job{parts: map[cgo.Handle]io.Closer{closed: part, left: part}}
	refused := func(h cgo.Handle) bool {
		misuse := (*bindings.Misuse)(nil)
		return errors.As(j.disown(h), &misuse)
	}
	if refused(closed) || !refused(closed) {
		t.Error("a part is not closed once")
	}
	j.parts = nil // as in borderLeave, ahead of giving handles up
	if !refused(left) || left.Value() != part {
		t.Error("a part is closed that its job closes")
	}
	left.Delete()
}
