package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// steps has a rank do steps of some time each until it is stopped, and returns how many it has done. With
// others not nil, it waits for them at the end of each.
func steps(s *Stopper, others func(step int64), each func() time.Duration) (done int64, err error) {
	for ; ; done++ {
		if err := s.Begin(done); err != nil {
			return done, err
		}
		time.Sleep(each())
		if others != nil {
			others(done)
		}
	}
}

// barriers makes ranks wait for each other after each step.
func barriers(n int) func(step int64) {
	var mu sync.Mutex
	at := map[int64]*sync.WaitGroup{}
	return func(step int64) {
		mu.Lock()
		if at[step] == nil {
			at[step] = new(sync.WaitGroup)
			at[step].Add(n)
		}
		w := at[step]
		mu.Unlock()
		w.Done()
		w.Wait()
	}
}

// All ranks stop after the same step, which some had begun when they were asked, whoever asks and whenever: ranks that wait for each
// other, and such as do not.
// It holds invariant[one-last-step].
func TestAllStopAfterTheSameStep(t *testing.T) {
	for seed := range uint64(40) {
		const n = 4
		rng := rand.New(rand.NewPCG(seed, 1))
		var pause [n]time.Duration
		for r := range n {
			pause[r] = time.Duration(1 + rng.IntN(5000))
		}
		when := time.Duration(rng.IntN(100000))
		play(t, n, func(t *testing.T, s *scene) {
			var together func(int64)
			if seed%2 == 0 {
				together = barriers(n)
			}
			var all sync.WaitGroup
			var done [n]int64
			var errs [n]error
			for r, m := range s.members {
				stopper := NewStopper(fmt.Sprintf("folder %d", r), 0)
				m.Stoppable(stopper)
				all.Go(func() {
					done[r], errs[r] = steps(stopper, together, func() time.Duration { return pause[r] })
				})
			}
			synctest.Wait()
			time.Sleep(when)
			if asker := int(seed % (n + 1)); asker == n {
				if !s.Stop("SIGTERM") {
					t.Fatal("the ranks cannot stop")
				}
			} else if _, err := s.members[asker].Stop("SIGTERM"); err != nil {
				t.Fatal(err)
			}
			at := <-s.Stopping()
			all.Wait()
			for r := range n {
				var stopped *StoppedError
				if !errors.As(errs[r], &stopped) || done[r] != at.Step || stopped.Step != at.Step || stopped.Reason != "SIGTERM" {
					t.Errorf("seed %d: rank %d has done %d steps, agreed on %d: %v", seed, r, done[r], at.Step, errs[r])
				}
			}
			if at.Saved != "folder 0" || at.Step == 0 {
				t.Errorf("seed %d: %+v", seed, at)
			}
			s.members[2].Leave("")
			if synctest.Wait(); !s.Stopped(2) || s.Stopped(1) {
				t.Errorf("rank 2 has left after the job was stopped: %v; rank 1: %v", s.Stopped(2), s.Stopped(1))
			}
		})
	}
}

// Ranks of which one cannot stop are not asked; who asks is told, and all go on.
func TestCannotStop(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		stopper := NewStopper("x", 0)
		if _, err := s.members[0].Stop("SIGHUP"); err != ErrCannotStop {
			t.Error("a rank that cannot stop:", err)
		}
		s.members[0].Stoppable(stopper)
		s.members[1].Stoppable(NewStopper("x", 0))
		if _, err := s.members[0].Stop("SIGHUP"); err != ErrCannotStop {
			t.Error("rank 2 cannot stop:", err)
		}
		if s.Stop("SIGHUP") {
			t.Error("the coordinator asks ranks that cannot stop")
		}
		for done := range int64(3) {
			if err := stopper.Begin(done); err != nil {
				t.Error(err)
			}
		}
	})
	process := NewLocalStops(2)
	process.Add(0, NewStopper("x", 0))
	if _, err := process.Stop("SIGHUP"); err != ErrCannotStop {
		t.Error("ranks of one process:", err)
	}
	if err := (*Stopper)(nil).Begin(7); err != nil {
		t.Error("of nobody:", err)
	}
}

// A rank that waits for the answer hears of the loss of another; and there is a limit to the wait.
func TestStopWithoutAnswer(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		a, b := NewStopper("x", 0), NewStopper("x", 0)
		s.members[0].Stoppable(a)
		s.members[1].Stoppable(b)
		synctest.Wait()
		a.ask() // as if its answer had been lost
		go func() { time.Sleep(time.Second); s.MarkLost(1, "killed") }()
		if err := a.Begin(0); err == nil || err.Error() != "rank 1 is lost: killed" {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := NewStopper("x", 0)
		s.ask()
		start := time.Now()
		if err := s.Begin(0); err == nil || time.Since(start) != stopAgreement {
			t.Error(err, time.Since(start))
		}
	})
}

// Threads of a rank that do a round of steps together stop behind one, or at its border.
func TestThreadsStopTogether(t *testing.T) {
	a, b := NewStopper("x", 0), NewStopper("x", 0)
	for _, err := range []error{a.BeginMany(0, 4), a.BeginMany(4, 4), b.BeginMany(0, 4)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	process := NewLocalStops(2)
	process.Add(0, a)
	process.Add(1, b)
	at, err := process.Stop("SIGINT")
	if err != nil || at.Step != 8 {
		t.Fatal(at, err)
	}
	if err := b.BeginMany(4, 4); err != nil {
		t.Error("the other rank has begun these steps:", err)
	}
	for _, s := range []*Stopper{a, b} {
		var stopped *StoppedError
		if err := s.BeginMany(8, 2); !errors.As(err, &stopped) || stopped.Step != 8 {
			t.Error(err)
		}
	}
}

// BenchmarkBegin is what it costs a step that it can be the last.
func BenchmarkBegin(b *testing.B) {
	s := NewStopper("", 0)
	b.ReportAllocs()
	for done := int64(0); b.Loop(); done++ {
		if err := s.Begin(done); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRejoin wants a rank's request to leave passed on, and all ranks to leave after the same step.
func TestRejoin(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.Coordinator.mu.Lock()
		s.cfg.Rejoin = true
		s.Coordinator.mu.Unlock()
		var all sync.WaitGroup
		var done [3]int64
		var errs [3]error
		together := barriers(3)
		for r, m := range s.members {
			stopper := NewStopper("x", 0)
			m.Stoppable(stopper)
			all.Go(func() {
				done[r], errs[r] = steps(stopper, together, func() time.Duration { return time.Millisecond })
			})
		}
		synctest.Wait()
		if at, err := s.members[1].Stop("SIGTERM"); err != nil || at.Step != 0 {
			t.Errorf("%+v, %v", at, err)
		}
		if d := <-s.Departures(); d != (Departure{1, "SIGTERM"}) {
			t.Errorf("%+v", d)
		}
		for range 2 {
			if !s.Rejoin() {
				t.Fatal("the ranks cannot leave")
			}
		}
		all.Wait()
		for r, m := range s.members {
			var rejoin *RejoinError
			if !errors.As(errs[r], &rejoin) || rejoin.Step != done[0] || done[r] != done[0] {
				t.Errorf("rank %d: %d steps, %v", r, done[r], errs[r])
			}
			select {
			case <-s.Rejoined():
				t.Errorf("all have left before rank %d", r)
			default:
			}
			m.Leave("")
		}
		<-s.Rejoined()
		if len(s.Stopping()) > 0 {
			t.Error("the job stops")
		}
	})
}

// TestRejoinAfterTheLastStep wants ranks that end after their last step, and not because of Rejoin,
// to end the job.
func TestRejoinAfterTheLastStep(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		for _, m := range s.members {
			stopper := NewStopper("x", 0)
			m.Stoppable(stopper)
			if err := stopper.Begin(0); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if !s.Rejoin() {
			t.Fatal("the ranks cannot leave")
		}
		synctest.Wait()
		for _, m := range s.members {
			m.Leave("")
		}
		synctest.Wait()
		select {
		case <-s.Rejoined():
			t.Error("ranks that have finished join again")
		default:
		}
	})
}
