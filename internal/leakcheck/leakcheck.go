// Package leakcheck finds what a test leaves behind: goroutines, file
// descriptors and shared memory.
package leakcheck

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is how long what a test started may take to end after it.
const patience = 20 * time.Second

// Check fails t if, when it ends, goroutines run, files are open or shared memory
// is mapped that were not at the time of the call. Call it first, so that it looks after all other
// cleanups. It cannot tell the tests of a process apart: do not use it in
// parallel ones.
//
// File descriptors are looked at where the system lists them (Linux and macOS),
// and so is shared memory (Linux).
func Check(t testing.TB) {
	t.Helper()
	before := goroutines()
	files := append(openFiles(), segments()...)
	t.Cleanup(func() {
		t.Helper()
		if t.Failed() {
			return // what failed may well have left things behind
		}
		for _, leak := range settle(before, files) {
			t.Errorf("leak: %s", leak)
		}
	})
}

// settle waits until nothing is left, or returns what is.
func settle(before map[string]bool, files []string) []string {
	pause := 50 * time.Microsecond // most ends are under way, and fuzz targets have thousands of cases
	for deadline := time.Now().Add(patience); ; pause = min(2*pause, 5*time.Millisecond) {
		leaks := append(newGoroutines(before), newFiles(files)...)
		if len(leaks) == 0 || time.Now().After(deadline) {
			return leaks
		}
		time.Sleep(pause)
	}
}

// goroutines returns the ids of all goroutines.
func goroutines() map[string]bool {
	ids := make(map[string]bool)
	for _, s := range stacks() {
		ids[id(s)] = true
	}
	return ids
}

func newGoroutines(before map[string]bool) []string {
	var out []string
	for _, s := range stacks()[1:] { // the first one is this one
		if !before[id(s)] && !background(s) {
			out = append(out, s)
		}
	}
	return out
}

// id is the number in "goroutine 7 [running]:".
func id(stack string) string {
	rest := strings.TrimPrefix(stack, "goroutine ")
	number, _, _ := strings.Cut(rest, " ")
	return number
}

// background goroutines belong to the runtime or to the testing package.
func background(stack string) bool {
	return slices.ContainsFunc([]string{
		"testing.(*T).Run", "testing.(*M).", "testing.runFuzzing", "testing.(*B).", "runtime.goexit0",
		"os/signal.loop", "runtime.ensureSigM", "created by runtime.",
	}, func(mark string) bool { return strings.Contains(stack, mark) })
}

func stacks() []string {
	for buf := make([]byte, 64<<10); ; buf = make([]byte, 2*len(buf)) {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n")
		}
	}
}

// openFiles describes the open file descriptors, or returns nil where they
// cannot be listed.
func openFiles() []string {
	dir := "/proc/self/fd"
	if runtime.GOOS == "darwin" {
		dir = "/dev/fd"
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil && runtime.GOOS == "linux" {
			continue // the descriptor that lists the folder is closed again
		}
		if strings.HasPrefix(target, "anon_inode:") {
			continue // the runtime's own
		}
		out = append(out, fmt.Sprintf("file descriptor %s %s", e.Name(), target))
	}
	return out
}

// segments describes the mapped segments of shared memory, or returns nil where
// they cannot be listed.
func segments() []string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(maps)) {
		for _, mark := range []string{"/memfd:", "/dev/shm/", "/SYSV"} {
			if strings.Contains(line, mark) {
				out = append(out, "shared memory "+strings.TrimSpace(line))
				break
			}
		}
	}
	return out
}

// newFiles returns the files that are open and the segments that are mapped now
// and were not before. A number that now stands for another file counts.
func newFiles(before []string) []string {
	var out []string
	for _, f := range append(openFiles(), segments()...) {
		if !slices.Contains(before, f) {
			out = append(out, f)
		}
	}
	return out
}
