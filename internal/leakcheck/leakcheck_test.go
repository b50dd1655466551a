package leakcheck

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// recorder is a test that only notes what happens to it.
type recorder struct {
	testing.TB
	cleanup func()
	errors  []string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Failed() bool                 { return false }
func (r *recorder) Cleanup(f func())             { r.cleanup = f }
func (r *recorder) Errorf(_ string, args ...any) { r.errors = append(r.errors, args[0].(string)) }

func TestNothingLeft(t *testing.T) {
	r := new(recorder)
	Check(r)
	done := make(chan struct{})
	go close(done)
	<-done
	r.cleanup()
	if len(r.errors) != 0 {
		t.Errorf("found leaks where none are: %q", r.errors)
	}
}

func TestLeaksAreFound(t *testing.T) {
	before, files := goroutines(), openFiles()
	stop := make(chan struct{})
	go func() { <-stop }()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	leaks := append(newGoroutines(before), newFiles(files)...)
	close(stop)
	f.Close()
	if len(leaks) < 1 || !strings.Contains(leaks[0], "TestLeaksAreFound") {
		t.Errorf("the goroutine is not among the leaks: %q", leaks)
	}
	if runtime.GOOS == "linux" && (len(leaks) != 2 || !strings.Contains(leaks[1], os.DevNull)) {
		t.Errorf("the file is not among the leaks: %q", leaks)
	}
}
