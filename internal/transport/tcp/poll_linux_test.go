package tcp

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onOneCore calls f on a thread of its own that is bound to this process's first core.
// The thread ends with it.
func onOneCore(t *testing.T, f func()) (done chan bool) {
	t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Skip(err)
	}
	for i := range 1024 {
		if all.IsSet(i) {
			one.Set(i)
			break
		}
	}
	done = make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	return done
}

// A poller lets a thread run that needs its core, and notices that it did, whatever
// is known of the host: that thread may be of another job or in another container.
func TestGiveWay(t *testing.T) {
	var stop atomic.Bool
	computes := onOneCore(t, func() {
		for !stop.Load() {
		}
	})
	found := false
	<-onOneCore(t, func() {
		for end := time.Now().Add(5 * time.Second); !found && time.Now().Before(end); {
			found = gaveWay(time.Now())
		}
	})
	stop.Store(true)
	<-computes
	if !found {
		t.Error("nobody ran while a thread gave way to one that computes on its core")
	}
}
