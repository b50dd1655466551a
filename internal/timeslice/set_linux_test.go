package timeslice

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childVar makes the test's program print its slice instead.
const childVar = "TIMESLICE_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		slice, err := Of()
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(slice.String())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// own is the slice that the test begins with, which it gets back at its end.
func own(t *testing.T) time.Duration {
	t.Helper()
	slice, err := Of()
	if err != nil {
		t.Fatal(err)
	}
	if slice == 0 {
		t.Skip("threads have no slices on this system")
	}
	t.Cleanup(func() {
		if err := Set(slice); err != nil {
			t.Error(err)
		}
	})
	return slice
}

// onThreads starts so many threads, calls before, and then f on each of them.
func onThreads(n int, before, f func()) {
	started, done, all := make(chan bool), make(chan bool), make(chan bool)
	for range n {
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			started <- true
			<-all
			f()
			done <- true
		}()
	}
	for range n {
		<-started
	}
	before()
	close(all)
	for range n {
		<-done
	}
}

func TestAllThreadsAndThoseThatTheyStart(t *testing.T) {
	before := own(t)
	const want = 300 * time.Microsecond
	if before == want {
		t.Fatalf("the slice is %v already", before)
	}
	check := func() {
		if got, err := Of(); err != nil || got != want {
			t.Errorf("slice %v, %v; want %v", got, err, want)
		}
	}
	set := func() {
		if err := Set(want); err != nil {
			t.Error(err)
		}
	}
	onThreads(4, set, check)
	onThreads(20, func() {}, check) // more than there can be already
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVar+"=1")
	out, err := child.Output()
	if err != nil || string(out) != want.String() {
		t.Errorf("a program that was started has slices of %s, %v; want %v", out, err, want)
	}
}

func TestPriorityAndPolicyStay(t *testing.T) {
	own(t)
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		id := unix.Gettid()
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, 7); err != nil {
			t.Error(err)
			return
		}
		if err := Set(Short); err != nil {
			t.Error(err)
		}
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil || attr.Nice != 7 || attr.Policy != unix.SCHED_NORMAL || time.Duration(attr.Runtime) != Short {
			t.Errorf("nice %d, policy %d, slice %v, %v; want 7, 0 and %v", attr.Nice, attr.Policy, time.Duration(attr.Runtime), err, Short)
		}
	}()
	<-done
}

func TestSetRefusesWhatTheSystemWouldRound(t *testing.T) {
	before, _ := Of()
	for _, slice := range []time.Duration{-1, 0, Short - 1, Longest + 1} {
		if err := Set(slice); err == nil {
			t.Errorf("a slice of %v was not refused", slice)
		}
	}
	if after, _ := Of(); after != before {
		t.Errorf("slice %v after refused ones, was %v", after, before)
	}
}
