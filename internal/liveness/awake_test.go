package liveness

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock goes with its ticks, and stands still while they are late.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(time.Second)
		start, want := c.Now(), time.Duration(0)
		pass := func(d, counts time.Duration, tick bool) {
			t.Helper()
			time.Sleep(d)
			if tick {
				c.Tick()
			}
			if want += counts; c.Now().Sub(start) != want {
				t.Fatalf("after %v more it is %v, want %v", d, c.Now().Sub(start), want)
			}
		}
		for range 100 {
			pass(time.Second, time.Second, true)
		}
		pass(1500*time.Millisecond, 1500*time.Millisecond, true) // somewhat late, as on a busy machine
		pass(time.Hour, 2*time.Second, true)
		pass(time.Second, time.Second, false)
		pass(time.Hour, time.Second, false) // nobody has said yet that it goes on
		pass(time.Hour, 0, true)
		pass(time.Second, time.Second, true)
	})
}

// A silence is as long as the limit says, or one wait longer than what was heard last; a process that
// was suspended meanwhile has waited once.
// It holds invariant[silence-while-awake].
func TestSilence(t *testing.T) {
	s := Detector{Limit: 4 * time.Second}
	if s.Wait()*pieces != s.Limit {
		t.Fatalf("%d waits of %v", pieces, s.Wait())
	}
	for range 3 {
		for i := range pieces - 1 {
			if s.Missed(false) {
				t.Fatalf("silent after %d waits", i+1)
			}
		}
		s.Reset()
	}
	for i := range pieces {
		if s.Missed(false) != (i == pieces-1) {
			t.Errorf("wait %d", i+1)
		}
	}
	if s := (Detector{Limit: 1}); s.Wait() <= 0 {
		t.Error("no wait at all")
	}
}

// A process that is seen to run may be silent until it has not run for half of the limit, for at most four times as long.
func TestSilenceOfOneThatRuns(t *testing.T) {
	for _, ran := range []int{0, 2, 5, longest * pieces} {
		s, waits := Detector{Limit: time.Second}, 1
		for ; !s.Missed(waits <= ran); waits++ {
		}
		if want := min(max(pieces, ran+pieces/2), longest*pieces); waits != want {
			t.Errorf("it ran for %d waits: lost after %d, want %d", ran, waits, want)
		}
		if s.Reset(); s.Missed(false) || s.Missed(true) {
			t.Error("a sign of life was not heard")
		}
	}
}
