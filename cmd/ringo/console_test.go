package main

import (
	"io"
	"os"
	"testing"
)

// TestColoursNeedATerminal: text has colours on a terminal only, and not with NO_COLOR.
func TestColoursNeedATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo-terminals: ", err)
	}
	defer terminal.Close()
	for _, c := range []struct {
		to    io.Writer
		no    string
		wants bool
	}{{terminal, "", true}, {terminal, "1", false}, {io.Discard, "", false}} {
		env := func(name string) (string, bool) { return c.no, name == "NO_COLOR" && c.no != "" }
		if got := hasColours(c.to, env); got != c.wants {
			t.Errorf("NO_COLOR %q: colours %v, want %v", c.no, got, c.wants)
		}
	}
}
