package nn

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/simd"
)

// counted counts how often each part was run, and by how many at once.
type counted struct {
	parts []atomic.Int32
	seen  []atomic.Int32 // by worker
	p     *pool
	slow  func(w *worker, i int)
}

func (c *counted) part(w *worker, i int) {
	c.parts[i].Add(1)
	for j := range c.p.workers {
		if w == &c.p.workers[j] {
			c.seen[j].Add(1)
		}
	}
	if c.slow != nil {
		c.slow(w, i)
	}
}

func newCounted(p *pool, parts int) *counted {
	return &counted{parts: make([]atomic.Int32, parts), seen: make([]atomic.Int32, p.threads()), p: p}
}

// Every part of every job runs exactly once, on a worker that no other part has
// at that time, and is done when run returns: with as many threads as one likes,
// whether helpers are awake or asleep.
func TestPoolRunsEachPartOnce(t *testing.T) {
	leakcheck.Check(t)
	for _, threads := range []int{1, 2, 3, 8} {
		p := newPool(simd.Host(), threads)
		var sum int // by the caller alone: run orders what parts do before what follows it
		for round := range 300 {
			parts := round % 19
			c := newCounted(p, parts)
			values := make([]int, parts) // not atomic: the race detector sees to it
			var using [8]atomic.Int32
			c.slow = func(w *worker, i int) {
				for j := range p.workers {
					if w == &p.workers[j] && using[j].Add(1) != 1 {
						t.Error("two parts have one worker at a time")
					}
				}
				values[i] = i + 1
				for j := range p.workers {
					if w == &p.workers[j] {
						using[j].Add(-1)
					}
				}
			}
			p.run(c, parts)
			for i := range parts {
				if n := c.parts[i].Load(); n != 1 || values[i] != i+1 {
					t.Fatalf("%d threads, round %d: part %d of %d ran %d times", threads, round, i, parts, n)
				}
				sum += values[i]
			}
			if round%100 == 99 {
				time.Sleep(4 * patience) // helpers fall asleep
			}
		}
		if sum == 0 {
			t.Error("nothing ran")
		}
		p.close()
	}
}

// A helper that is asleep is woken, and one that takes long over its part holds up
// no other part.
func TestPoolSharesWhatIsLeft(t *testing.T) {
	p := newPool(simd.Host(), 2)
	defer p.close()
	for range 3 {
		time.Sleep(4 * patience)
		c := newCounted(p, 9)
		others := make(chan struct{})
		var done atomic.Int32
		c.slow = func(_ *worker, i int) {
			if i == 0 { // waits until the other thread has done all the rest
				<-others
			} else if done.Add(1) == 8 {
				close(others)
			}
		}
		p.run(c, 9)
		// The caller begins with the first part, if it has come that far before the other thread has done all nine.
		if own, other := c.seen[0].Load(), c.seen[1].Load(); own > 1 || own+other != 9 {
			t.Errorf("the threads did %d and %d parts, want 1 and 8, or 0 and 9", own, other)
		}
	}
}

// A job of a pool allocates nothing.
func TestPoolDoesNotAllocate(t *testing.T) {
	p := newPool(simd.Host(), 3)
	defer p.close()
	c := newCounted(p, 7)
	p.run(c, 7)
	if n := testing.AllocsPerRun(20, func() { p.run(c, 7) }); n != 0 {
		t.Errorf("%v allocations a job", n)
	}
}

// A thread takes its own parts from the first on, and another the last of them: neighbours stay together.
func TestSharesAreTakenFromBothEnds(t *testing.T) {
	var s share
	s.remaining.Store(3<<32 | 7)
	for _, want := range []struct {
		last bool
		part int
	}{{false, 3}, {true, 6}, {true, 5}, {false, 4}} {
		if part, ok := s.take(want.last); !ok || part != want.part {
			t.Errorf("took part %d (%v), want %d", part, ok, want.part)
		}
	}
	for _, last := range []bool{false, true} {
		if part, ok := s.take(last); ok {
			t.Errorf("took part %d of none", part)
		}
	}
}

// Parts are as many as threads can share with a little to spare, but not too small, and one for one thread.
func TestCut(t *testing.T) {
	for _, c := range []struct{ threads, units, least, want int }{
		{1, 1000, 1, 1}, {2, 1000, 1, 8}, {2, 1000, 300, 2}, {2, 1000, 240, 4}, {2, 1000, 900, 2}, {2, 5, 1, 4}, {2, 1, 1, 1}, {3, 4, 1, 3}, {2, 0, 1, 1}, {7, 1000, 1 << 40, 7}, {3, 2, 9, 2},
	} {
		p := pool{workers: make([]worker, c.threads)}
		if got := p.cut(c.units, c.least); got != c.want {
			t.Errorf("%d units of at least %d for %d threads: %d parts, want %d", c.units, c.least, c.threads, got, c.want)
		}
	}
}
