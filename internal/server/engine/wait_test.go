package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/ps/schema"
)

// sparseOnly has nothing that waits for initial values.
func sparseOnly() schema.Schema {
	s := whole(2)
	s.Dense = nil
	return s
}

func waiting(t *testing.T, e *Engine, trainer int, step uint64) (result func() (error, bool)) {
	t.Helper()
	var mu sync.Mutex
	var err error
	done := false
	go func() {
		got := e.Await(context.Background(), trainer, step)
		mu.Lock()
		defer mu.Unlock()
		err, done = got, true
	}()
	return func() (error, bool) {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return err, done
	}
}

// A wait of each mode ends exactly when it may.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		mode      Mode
		staleness int
		ahead     uint64 // steps that the fast trainer may begin at once
	}{{BSP, 0, 1}, {SSP, 0, 1}, {SSP, 1, 2}, {SSP, 3, 4}} {
		synctest.Test(t, func(t *testing.T) {
			e, err := Open(Config{Trainers: 2, Mode: c.mode, Staleness: c.staleness, Durability: None}, sparseOnly())
			must(t, err)
			defer e.Close()
			fast, slow := newClient(t, e, 0), newClient(t, e, 1)
			for range c.ahead {
				must(t, e.Await(t.Context(), 0, fast.step))
				fast.clock(-1)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := e.Await(ctx, 0, fast.step); err != context.Canceled {
				t.Fatalf("%s %d: a try of step %d: %v", c.mode, c.staleness, fast.step, err)
			}
			must(t, e.Await(ctx, 0, fast.step-1)) // what need not wait does not look
			wait := waiting(t, e, 0, fast.step)
			if err, done := wait(); done {
				t.Fatalf("%s %d: step %d began at once: %v", c.mode, c.staleness, fast.step, err)
			}
			slow.clock(-1)
			if err, done := wait(); !done || err != nil {
				t.Fatalf("%s %d: step %d after the slowest: %v %v", c.mode, c.staleness, fast.step, err, done)
			}
			fast.clock(-1)
			wait = waiting(t, e, 0, fast.step)
			if _, done := wait(); done {
				t.Fatal("the next step began at once")
			}
			slow.leave()
			if err, done := wait(); !done || err != nil {
				t.Fatalf("after the slowest has left: %v %v", err, done)
			}
		})
	}
}

// Async and geo do not wait.
func TestNoWaits(t *testing.T) {
	for _, mode := range []Mode{Async, Geo} {
		e := open(t, Config{Trainers: 2, Mode: mode, Durability: None}, sparseOnly())
		must(t, e.Await(context.Background(), 0, 1000))
	}
}

// A wait that is too long names who it is for; what ends with its context does so too.
func TestWaitNamesWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := Open(Config{Trainers: 4, Sessions: 2, Mode: BSP, Durability: None, WaitLimit: time.Minute}, sparseOnly())
		must(t, err)
		defer e.Close()
		for _, session := range []int{0, 1, 2, 4, 5} { // trainer 1 with one of its sessions, 3 not at all
			newClient(t, e, session).clock(-1)
		}
		begun := time.Now()
		var wait *waitError
		if err := e.Await(t.Context(), 2, 2); !errors.As(err, &wait) || !slices.Equal(wait.WaitedFor, []int{1, 3}) || wait.Trainer != 2 || wait.Step != 2 || !strings.Contains(err.Error(), "trainers [1 3]") {
			t.Errorf("a wait too long: %v", err)
		}
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("it took %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Await(ctx, 0, 2); !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait whose context ended: %v", err)
		}
		if e.Err() != nil {
			t.Errorf("a wait stopped the server: %v", e.Err())
		}
	})
}

func TestWaitsForInitialValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := whole(2)
		e, err := Open(Config{Trainers: 2, Mode: Async, Durability: None, WaitLimit: time.Minute}, s)
		must(t, err)
		defer e.Close()
		var wait *waitError
		if err := e.Await(t.Context(), 1, 1); !errors.As(err, &wait) || !wait.Unset {
			t.Errorf("without initial values: %v", err)
		}
		c := newClient(t, e, 0)
		if _, err := e.PushDense(0, c.seq+1, 0, 1, 0, make([]float32, 4)); err == nil {
			t.Error("a push before initial values was taken")
		}
		if _, err := e.SetDense(0, c.seq+1, 0, 8, make([]float32, 4)); err == nil {
			t.Error("initial values with a gap were taken")
		}
		result := waiting(t, e, 1, 1)
		c.set(0, 0, ramp(0, 30))
		if _, done := result(); done {
			t.Error("a part was enough")
		}
		newClient(t, e, 1).set(0, 0, ramp(100, 40)) // values that are there stay
		if err, done := result(); !done || err != nil {
			t.Errorf("with all initial values: %v", err)
		}
		got := make([]float32, 40)
		must(t, e.PullDense(0, 0, got))
		if want := append(ramp(0, 30), ramp(130, 10)...); !same(got, want) {
			t.Errorf("initial values %v, want %v", got, want)
		}
	})
}

func ramp(from, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(from + i)
	}
	return x
}

// A lost trainer ends all waits and changes with an error that names it, or counts as
// one that has left.
func TestLost(t *testing.T) {
	cause := errors.New("no connection for a minute")
	synctest.Test(t, func(t *testing.T) {
		e, err := Open(Config{Trainers: 3, Mode: BSP, Durability: None}, sparseOnly())
		must(t, err)
		defer e.Close()
		c := newClient(t, e, 0)
		c.clock(-1)
		result := waiting(t, e, 0, 2)
		var lost *LostError
		if err := e.Lost(2, cause); !errors.As(err, &lost) {
			t.Errorf("Lost returned %v", err)
		}
		if err, done := result(); !done || !errors.As(err, &lost) || lost.Trainer != 2 || !errors.Is(err, cause) {
			t.Errorf("a wait for a lost trainer: %v", err)
		}
		select {
		case <-e.Failed():
		default:
			t.Error("the server works on")
		}
		if _, err := e.PushRows(1, 1, 0, 1, []uint64{1}, []float32{1, 1}); !errors.As(err, &lost) {
			t.Errorf("a push afterwards: %v", err)
		}
		if err := e.PullRows(anyPull, 0, []uint64{1}, make([]float32, 2)); !errors.As(err, &lost) {
			t.Errorf("a pull afterwards: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e, err := Open(Config{Trainers: 3, Mode: BSP, Durability: None, Lost: ContinueJob}, sparseOnly())
		must(t, err)
		defer e.Close()
		a, b, gone := newClient(t, e, 0), newClient(t, e, 1), newClient(t, e, 2)
		for i, c := range []*client{a, b, gone} {
			c.rows(0, []uint64{7}, []float32{float32(int(4) << i), 0})
		}
		a.clock(-1)
		b.clock(-1)
		result := waiting(t, e, 0, 2)
		must(t, e.Lost(2, cause))
		must(t, e.Lost(2, cause)) // nothing new
		if err, done := result(); !done || err != nil {
			t.Errorf("a wait for a trainer that is given up: %v", err)
		}
		got := make([]float32, 2)
		must(t, e.PullRows(anyPull, 0, []uint64{7}, got))
		if got[0] != -(4.0+8)/2 { // the mean of those that took part
			t.Errorf("the row is %v", got)
		}
		if _, err := e.Join(2, 2, 0); err == nil || !strings.Contains(err.Error(), "too late") {
			t.Errorf("a lost trainer joins: %v", err)
		}
		if _, err := e.Clock(2, gone.seq+1, 1, -1); !errors.Is(err, cause) {
			t.Errorf("a lost trainer goes on: %v", err)
		}
		if err := e.Lost(3, cause); err == nil {
			t.Error("trainer 3 of 3 was lost")
		}
	})
}

// With bounded staleness no trainer is ever further ahead than it may, whatever the
// order of things.
// It holds invariant[staleness-bound].
func TestStalenessHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const staleness, steps = 2, 40
		e, err := Open(Config{Trainers: 4, Mode: SSP, Staleness: staleness, Durability: None}, sparseOnly())
		must(t, err)
		defer e.Close()
		var mu sync.Mutex
		clocks := make([]uint64, 4)
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(n), 1))
				c := newClient(t, e, n)
				for step := uint64(1); step <= steps; step++ {
					if err := e.Await(t.Context(), n, step); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if slowest := slices.Min(clocks); step > slowest+1+staleness {
						t.Errorf("trainer %d began step %d while the slowest had clocked %d", n, step, slowest)
					}
					mu.Unlock()
					time.Sleep(time.Duration(rng.IntN(1000)*(n+1)) * time.Millisecond)
					mu.Lock() // before: others may begin as soon as Clock has moved
					clocks[n] = step
					mu.Unlock()
					c.clock(-1)
				}
				c.leave()
			})
		}
		all.Wait()
	})
}

// Close ends waits.
func TestCloseEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := Open(Config{Trainers: 2, Mode: BSP, Durability: None}, sparseOnly())
		must(t, err)
		result := waiting(t, e, 0, 2)
		must(t, e.Close())
		if err, done := result(); !done || err != ErrClosed {
			t.Errorf("a wait when the server is closed: %v", err)
		}
		if err := e.Close(); err != ErrClosed {
			t.Errorf("a second Close: %v", err)
		}
	})
}
