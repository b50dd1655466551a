package trace

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// onRanks runs fn on n ranks and returns their errors.
func onRanks(t *testing.T, n int, fn func(*collective.Group) error) []error {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank, mesh := range mem.New(n) {
		g, err := collective.New(mesh, collective.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			errs[rank] = fn(g)
			_ = g.Close()
		})
	}
	wg.Wait()
	return errs
}

func TestShortestTripCounts(t *testing.T) {
	// Rank 0's clock is 1000 ahead. The second trip is the shortest; the others
	// spent more time on the way there, or back.
	got := shortest([]trip{{10, 1100, 120}, {200, 1206, 210}, {300, 1301, 390}})
	want := reading{at: 205, offset: 1001, bound: 6}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestClockFollowsADrift(t *testing.T) {
	// Rank 0's clock is 100 ahead at 1000 and 300 ahead at 5000.
	c := newClock([]reading{{1000, 100, 7}, {2000, 9999, 50}, {5000, 300, 3}})
	for _, x := range []struct{ at, want int64 }{{0, 100}, {1000, 100}, {2000, 150}, {3000, 200}, {5000, 300}, {9000, 300}} {
		if got := c.offset(x.at); got != x.want {
			t.Errorf("at %d the offset is %d, want %d", x.at, got, x.want)
		}
	}
	if c.bound() != 7 {
		t.Errorf("bound %d, want 7", c.bound())
	}
	if none := newClock(nil); none.offset(55) != 0 || none.bound() != 0 {
		t.Error("without a reading times are changed")
	}
	if one := newClock([]reading{{1000, 100, 7}}); one.offset(0) != 100 || one.offset(1000) != 100 || one.offset(2000) != 100 {
		t.Error("with one reading the offset is not the same everywhere")
	}
}

// The ranks of a test share a clock, so that the true offset is known: it is the
// difference of what their recorders count from.
func TestAlignFindsTheOffset(t *testing.T) {
	const n = 5
	start := time.Now()
	errs := onRanks(t, n, func(g *collective.Group) error {
		rank := time.Duration(g.Rank())
		r := newTimeline(t, Config{}, start.Add(rank*rank*time.Hour))
		for range 2 {
			if err := r.Align(g); err != nil {
				return err
			}
		}
		if g.Rank() == 0 {
			if len(r.clocks) > 0 {
				return fmt.Errorf("rank 0 compares its clock with its own")
			}
			return nil
		}
		if len(r.clocks) != 2 {
			return fmt.Errorf("%d readings, want 2", len(r.clocks))
		}
		for _, c := range r.clocks {
			want := int64(rank * rank * time.Hour)
			if wrong := c.offset - want; wrong > c.bound || -wrong > c.bound {
				return fmt.Errorf("offset %d is wrong by %d, and is said to be by at most %d", c.offset, wrong, c.bound)
			}
			if c.bound > int64(time.Minute) {
				return fmt.Errorf("an error of up to %v says nothing", time.Duration(c.bound))
			}
		}
		return nil
	})
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestARankThatDoesNotTraceIsFound(t *testing.T) {
	errs := onRanks(t, 2, func(g *collective.Group) error {
		if g.Rank() == 0 {
			return newRecorder(t, Config{}).Align(g)
		}
		return collective.AllReduce(g, make([]int64, 1), collective.Sum) // what a program does next
	})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "trace: aligning the clock of rank 0") || !strings.Contains(errs[0].Error(), "allreduce") {
		t.Errorf("rank 0: error %v, want one that says what the other rank did", errs[0])
	}
}
