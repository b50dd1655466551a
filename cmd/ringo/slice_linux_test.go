package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/timeslice"
)

// What a launcher starts has its slices: short ones, unless it is told otherwise.
func TestSlices(t *testing.T) {
	own, err := timeslice.Of()
	if _, missing := os.Stat("/proc/self/sched"); err != nil || own == 0 || missing != nil {
		t.Skip("threads have no slices on this system, or it does not tell")
	}
	for flags, want := range map[string]time.Duration{"": timeslice.Short, "--set job.slice=700us ": 700 * time.Microsecond, "--set job.slice=0 ": own} {
		p := start(t, "run --np 1 "+flags+"-- grep ^se.slice /proc/self/sched")
		p.checkEnd(0)
		fields := strings.Fields(p.out.String())
		if len(fields) == 0 || fields[len(fields)-1] != strconv.FormatInt(want.Nanoseconds(), 10) {
			t.Errorf("%q: %q, want a slice of %v in ns", flags, p.out.String(), want)
		}
	}
}
