package service

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// A server that was frozen counts nobody's absence meanwhile, whenever that began; what it has seen of an absence
// before counts.
func TestAbsenceWhileFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessionTable
		clock := liveness.New(time.Second)
		s.init(2, 1, clock)
		run := func(seconds int) {
			for range seconds {
				time.Sleep(time.Second)
				clock.Tick()
			}
		}
		check := func(when string, lost int) {
			t.Helper()
			if got := s.overdue(10 * time.Second); len(got) != lost {
				t.Errorf("%s: %v are lost, want %d", when, got, lost)
			}
		}
		s.begin(0)
		run(6)
		check("at first", 0)
		time.Sleep(time.Hour)
		check("when it goes on", 0)
		clock.Tick()
		check("at its next tick", 0)
		run(1)
		check("after some more seconds", 0)
		run(4)
		check("after 10 s of its own", 2)
		if s.departed(0); s.done(10*time.Second) != true {
			t.Error("all are lost, and it goes on")
		}
	})
}
