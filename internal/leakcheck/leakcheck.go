// Package leakcheck finds leaks of a test: goroutines, file descriptors and shared memory.
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

// patience is the time limit for cleanup after a test.
const patience = 20 * time.Second

// Check fails t if the test leaves goroutines, open files or mapped shared memory that did not
// exist at the call. Call Check first, to run after all other cleanups. Parallel tests are not
// supported, because Check covers the whole process.
//
// File descriptors are checked on Linux and macOS, shared memory on Linux.
func Check(t testing.TB) {
	t.Helper()
	before := goroutines()
	files := append(openFiles(), segments()...)
	t.Cleanup(func() {
		t.Helper()
		if t.Failed() {
			return // a failed test may leak
		}
		for _, leak := range settle(before, files) {
			t.Errorf("leak: %s", leak)
		}
	})
}

// settle waits until no leak remains, and returns the remaining leaks.
func settle(before map[string]bool, files []string) []string {
	pause := 50 * time.Microsecond // most ends are near, and fuzz targets have thousands of cases
	for deadline := time.Now().Add(patience); ; pause = min(2*pause, 5*time.Millisecond) {
		leaks := append(newGoroutines(before), newFiles(files)...)
		if len(leaks) == 0 || time.Now().After(deadline) {
			return leaks
		}
		time.Sleep(pause)
	}
}

func goroutines() map[string]bool {
	ids := make(map[string]bool)
	for _, s := range stacks() {
		ids[id(s)] = true
	}
	return ids
}

func newGoroutines(before map[string]bool) []string {
	var out []string
	for _, s := range stacks()[1:] { // the first is the current goroutine
		if !before[id(s)] && !background(s) {
			out = append(out, s)
		}
	}
	return out
}

// id returns the number in "goroutine 7 [running]:".
func id(stack string) string {
	rest := strings.TrimPrefix(stack, "goroutine ")
	number, _, _ := strings.Cut(rest, " ")
	return number
}

// background reports goroutines of the runtime or the testing package.
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

// openFiles describes the open file descriptors; nil if unsupported.
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
			continue // the closed descriptor of the listing
		}
		if strings.HasPrefix(target, "anon_inode:") {
			continue // used by the runtime
		}
		out = append(out, fmt.Sprintf("file descriptor %s %s", e.Name(), target))
	}
	return out
}

// segments describes the mapped shared memory; nil if unsupported.
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

// newFiles returns the open files and mapped segments that are not in before. A descriptor that now
// is of another file counts as new.
func newFiles(before []string) []string {
	var out []string
	for _, f := range append(openFiles(), segments()...) {
		if !slices.Contains(before, f) {
			out = append(out, f)
		}
	}
	return out
}
