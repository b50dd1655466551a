//go:build cgo

package main

import (
	"errors"
	"io"
	"runtime/cgo"
	"testing"

	"github.com/ringo-ml/ringo/internal/bindings"
)

// The handle of a part is given up once, by who closes it or by the leave of its job, whoever comes first.
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
	j.parts = nil // as borderLeave does before it gives the handles up
	if !refused(left) || left.Value() != part {
		t.Error("a part is closed that its job closes")
	}
	left.Delete()
}
