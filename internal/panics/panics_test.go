package panics

import (
	"errors"
	"strings"
	"testing"
)

// TestDo returns errors and panics of every kind, with the place of a panic.
func TestDo(t *testing.T) {
	fault := errors.New("a fault")
	var none []int
	for _, c := range []struct {
		fn   func() error
		want string
		is   bool
	}{
		{func() error { return nil }, "", false},
		{func() error { return fault }, "a fault", true},
		{func() error { panic(fault) }, "panic: a fault (in ", true},
		{func() error { panic("a text") }, "panic: a text (in ", false},
		{func() error { return errors.New(string(rune(none[len(none)]))) }, "index out of range [0] with length 0 (in ", false},
	} {
		err := Do(c.fn)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || errors.Is(err, fault) != c.is {
			t.Errorf("%v, want %q", err, c.want)
		}
		if strings.HasSuffix(c.want, "(in ") && !strings.Contains(err.Error(), "panics.TestDo.func") {
			t.Errorf("no place: %v", err)
		}
	}
}
