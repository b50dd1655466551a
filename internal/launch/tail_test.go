package launch

import (
	"fmt"
	"strings"
	"testing"
)

// TestTailKeepsThePanic quotes the first lines of a panic, however long its trace is, and the last lines without one.
func TestTailKeepsThePanic(t *testing.T) {
	trace := []string{"panic: boom", "", "goroutine 7 [running]:", "main.train(...)", "\t/main.go:36 +0x1"}
	for i := range 20 {
		trace = append(trace, fmt.Sprint("frame ", i))
	}
	for _, c := range []struct {
		max         int
		lines       []string
		last, quote string
	}{
		{3, []string{"a", "b", "c", "d"}, "b|c|d", `; its last line: "d"`},
		{10, trace, "panic: boom||goroutine 7 [running]:|main.train(...)|\t/main.go:36 +0x1|...|frame 16|frame 17|frame 18|frame 19", `; it wrote: "panic: boom"`},
		{10, trace[:7], strings.Join(trace[:7], "|"), `; it wrote: "panic: boom"`},
		{1, trace, "panic: boom", `; it wrote: "panic: boom"`},
		{2, append(trace, make([]string, panicReach)...), "|", `; its last line: ""`},
		{2, nil, "", ""},
	} {
		kept := tail{max: c.max}
		for _, line := range c.lines {
			kept.add([]byte(line))
		}
		if got := strings.Join(kept.last(), "|"); got != c.last || lastLine(kept.last()) != c.quote {
			t.Errorf("%d lines of %d: got %q, %s, want %q, %s", c.max, len(c.lines), got, lastLine(kept.last()), c.last, c.quote)
		}
	}
}
