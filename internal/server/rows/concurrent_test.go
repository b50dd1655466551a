package rows

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// workers runs f in so many goroutines and waits for all.
func workers(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// Many goroutines push and pull the same keys from the first touch on: no update is
// lost, no key gets two rows, and a pull never sees half an update.
func TestManyGoroutines(t *testing.T) {
	const all, n, dim, rounds = 4, 700, 5, 20
	var made atomic.Int64
	tb := newTable(t, Config{Dim: dim, shift: 7, Init: func(dst []float32, _ uint64) { made.Add(1); rowinit.Constant(0)(dst, 0) }})
	workers(all, func(w int) {
		r := rand.New(rand.NewPCG(8, uint64(w)))
		keys := sequence(0, n)
		x, ones := make([]float32, n*dim), slices.Repeat([]float32{1}, n*dim)
		for range rounds {
			r.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			if err := tb.Push(keys, ones, -1); err != nil {
				t.Error(err)
			}
			if err := tb.Pull(keys, x); err != nil {
				t.Error(err)
			}
			for i := range keys {
				row := x[i*dim:][:dim]
				if slices.Min(row) != slices.Max(row) || row[0] < 1 || row[0] > all*rounds {
					t.Errorf("a pull saw %v", row)
					return
				}
			}
		}
	})
	x := make([]float32, n*dim)
	must(t, tb.Pull(sequence(0, n), x))
	if slices.Min(x) != all*rounds || slices.Max(x) != all*rounds {
		t.Errorf("values from %v to %v, want %d", slices.Min(x), slices.Max(x), all*rounds)
	}
	if tb.Len() != n || made.Load() != n {
		t.Errorf("%d rows, made %d times, want %d", tb.Len(), made.Load(), n)
	}
	must(t, tb.index.check())
}

// While others insert, delete and update, a walk sees each row that stays exactly
// once, whole, and what it drops is gone.
func TestWalkMeanwhile(t *testing.T) {
	const stay, dim = 3000, 3
	for _, most := range []int{1, 30, 1 << 30} {
		tb := newTable(t, Config{Dim: dim, shift: 8})
		x := make([]float32, stay*dim)
		must(t, tb.Pull(sequence(0, stay), x))
		var done atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			ones := slices.Repeat([]float32{1}, 500*dim)
			for at := uint64(0); !done.Load(); at += 500 {
				fresh := sequence(1<<32+at%20000, 500)
				if err := tb.Push(fresh, ones, 1); err != nil {
					t.Error(err)
				}
				if err := tb.Push(sequence(at%2500, 500), ones, 1); err != nil {
					t.Error(err)
				}
				if at%3000 == 0 {
					if _, err := tb.Delete(sequence(1<<32+(at+9000)%20000, 1500)); err != nil {
						t.Error(err)
					}
				}
			}
		})
		for range 3 {
			seen := make([]int, stay)
			walkAll(t, tb, most, func(r *Row) Verdict {
				if slices.Min(r.Weights) != slices.Max(r.Weights) {
					t.Errorf("key %d: half an update: %v", r.Key, r.Weights)
				}
				if r.Key >= stay {
					return Verdict(r.Key%5 == 0)
				}
				seen[r.Key]++
				return Keep
			})
			if slices.Min(seen) != 1 || slices.Max(seen) != 1 {
				t.Fatalf("%d rows at a time: rows that stay were seen %d to %d times", most, slices.Min(seen), slices.Max(seen))
			}
		}
		done.Store(true)
		wg.Wait()
		must(t, tb.index.check())
	}
}
