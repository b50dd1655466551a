package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/timeslice"
)

// A launcher and the processes that it starts have short slices.
func TestSlices(t *testing.T) {
	own, err := timeslice.Of()
	if _, missing := os.Stat("/proc/self/sched"); err != nil || own == 0 || missing != nil {
		t.Skip("threads have no slices on this system, or it does not tell")
	}
	p := start(t, "run --np 1 -- grep ^se.slice /proc/self/sched")
	p.checkEnd(0)
	fields := strings.Fields(p.out.String())
	if len(fields) == 0 || fields[len(fields)-1] != strconv.FormatInt(timeslice.Short.Nanoseconds(), 10) {
		t.Errorf("%q, want a slice of %v in ns", p.out.String(), timeslice.Short)
	}
}
