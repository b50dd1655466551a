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
	for flags, want := range map[string]time.Duration{"": timeslice.Short, "--slice 700us ": 700 * time.Microsecond, "--slice 0 ": own} {
		p := start(t, "run --np 1 "+flags+"-- grep ^se.slice /proc/self/sched")
		p.checkEnd(0)
		fields := strings.Fields(p.out.String())
		if len(fields) == 0 || fields[len(fields)-1] != strconv.FormatInt(want.Nanoseconds(), 10) {
			t.Errorf("%q: %q, want a slice of %v in ns", flags, p.out.String(), want)
		}
	}
}

// Slices that the system would round are refused.
func TestSliceUsage(t *testing.T) {
	for _, line := range []string{"train mlp --np 2 ", "run --np 2 ", "server --np 2 --servers 1 --index 0 --rendezvous 127.0.0.1:1 ", "bench allreduce --np 2 "} {
		if strings.HasPrefix(line, "run") {
			checkRefused(t, exitUsage, line+"--slice 99us -- true", "--slice: time slice 99µs: want 100µs to 100ms, or 0")
		} else {
			checkRefused(t, exitUsage, line+"--slice 1s", "--slice: time slice 1s: want 100µs to 100ms, or 0")
		}
	}
}
