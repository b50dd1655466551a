package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/internal/server/store/storetest"
	"github.com/ringo-ml/ringo/internal/zipf"
)

// stores are what a table may stand on.
func stores(t *testing.T) map[string]store.Store {
	s, err := store.OpenSegments(dirOf(t, "segments"), store.MinLimitBytes)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return map[string]store.Store{"none": nil, "memory": storetest.NewMemory(0), "segments": s}
}

// Whatever is pulled, pushed, evicted and brought in again, a table is a map.
func TestAgainstMap(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			w := newTwin(newTable(t, small(s)))
			const keys = 15_000 // memory has room for a third
			steps := 80
			if testing.Short() {
				steps = 30
			}
			for step := range steps {
				batch := some(r, 1+r.IntN(1500), keys)
				switch r.IntN(6) {
				case 5: // no twin: nothing is to be different by it
					w.t.Prefetch(t.Context(), append(batch[:min(100, len(batch))], batch[0]))
				case 0:
					w.pull(t, append(batch, batch[:len(batch)/3]...))
				case 1, 2:
					w.push(t, r, r.IntN(5), batch)
				case 3:
					w.pull(t, batch)
					w.push(t, r, 9, batch)
				case 4:
					if s != nil {
						_, err := w.t.Evict(r.IntN(2000))
						must(t, err)
					}
				}
				if step%20 == 19 {
					tiers(t, w.t)
				}
			}
			w.check(t, w.t, keys)
			st := statsOf(w.t)
			if s != nil && (st.Evicted == 0 || st.Written == 0 || st.StoreHits == 0 || st.Prefetched == 0 || st.Made == 0 || st.StoreRows == 0) {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Rows that were not changed since they were read are not written again, and those
// that were never pushed leave no trace.
func TestCleanRowsAreNotWritten(t *testing.T) {
	tb := tiered(t)
	const n = 2000
	keys, x := sequence(0, n), make([]float32, n*dim)
	must(t, tb.Pull(keys, x))
	evictAll(t, tb)
	if s := statsOf(tb); s.Written != 0 || s.StoreRows != 0 || s.MemoryRows != 0 || s.Made != n {
		t.Fatalf("after a pull: %+v", s)
	}
	must(t, tb.Push(0, 1, keys, x, 1))
	evictAll(t, tb)
	if s := statsOf(tb); s.Written != n || s.StoreRows != n {
		t.Fatalf("after a push: %+v", s)
	}
	must(t, tb.Pull(keys, x))
	if s := statsOf(tb); s.StoreRows != 0 || s.MemoryRows != n || s.StoreHits != n {
		t.Fatalf("after another pull: %+v", s)
	}
	must(t, tb.Push(0, 2, keys[:10], x[:10*dim], 1))
	evictAll(t, tb)
	if s := statsOf(tb); s.Written != n+10 || s.StoreRows != n {
		t.Errorf("after ten pushes: %+v", s)
	}
	tiers(t, tb)
}

func evictAll(t testing.TB, tb *Table) {
	t.Helper()
	if _, err := tb.Evict(1 << 30); err != nil {
		t.Fatal(err)
	}
}

// ledger counts what goroutines have pushed to each key.
type ledger struct {
	pushed []atomic.Int64
	base   []float32 // initial weights
}

func newLedger(tb *Table, keys int) *ledger {
	l := &ledger{pushed: make([]atomic.Int64, keys), base: make([]float32, keys*dim)}
	for key := range keys {
		tb.rows.Initial(uint64(key), l.base[key*dim:][:dim])
	}
	return l
}

// check compares what a table has with what was pushed. Weights of testConfig begin as
// zeros, so that sums are exact.
func (l *ledger) check(t *testing.T, tb *Table) {
	t.Helper()
	for key := range l.pushed {
		n := float32(l.pushed[key].Load())
		if got := whole(t, tb, uint64(key)); got[0] != n || got[dim-1] != n || got[dim] != n {
			t.Fatalf("key %d is %v, want %v pushes", key, got, n)
		}
	}
}

// zeros is a small table whose rows count pushes.
func zeros(s store.Store) Config {
	c := small(s)
	c.Rows.Init = rowinit.Constant(0)
	return c
}

// train pushes ones from several goroutines, each a session, as trainers do: a pull, a
// push, sometimes the same push again. Pulls see at least what the session itself has
// pushed before. record, unless it is nil, gets every push.
func train(t *testing.T, tb *Table, l *ledger, goroutines, rounds int, seed uint64, record func(session int, seq uint64, keys []uint64)) {
	most := len(l.pushed)
	workers(goroutines, func(session int) {
		r := rand.New(rand.NewPCG(seed, uint64(session)))
		own := make([]float32, most)
		for round := range rounds {
			n := 1 + r.IntN(600)
			keys := some(r, n, most)
			x, ones := make([]float32, n*dim), slices.Repeat([]float32{1}, n*dim)
			if err := tb.Pull(keys, x); err != nil {
				t.Error(err)
				return
			}
			for i, key := range keys {
				if x[i*dim] != x[i*dim+dim-1] || x[i*dim] < own[key] {
					t.Errorf("session %d pulls %v of key %d, to which it has pushed %v", session, x[i*dim:][:dim], key, own[key])
					return
				}
			}
			seq := seed*1_000_000 + uint64(round) + 1
			if record != nil {
				record(session, seq, keys)
			}
			for range 1 + r.IntN(2) {
				if err := tb.Push(session, seq, keys, ones, 1); err != nil {
					t.Error(err)
					return
				}
			}
			for _, key := range keys {
				own[key]++
				l.pushed[key].Add(1)
			}
		}
	})
}

// While many goroutines pull and push rows of three times the memory, and rows leave
// all the time, no update is lost or made twice and no row is shadowed.
func TestManyGoroutines(t *testing.T) {
	for name, s := range stores(t) {
		if s == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			tb := newTable(t, zeros(s))
			l := newLedger(tb, 14_000)
			rounds := 60
			if testing.Short() {
				rounds = 20
			}
			var done atomic.Bool
			var wg sync.WaitGroup
			wg.Go(func() {
				for r := rand.New(rand.NewPCG(5, 6)); !done.Load(); {
					if _, err := tb.Evict(300); err != nil {
						t.Error(err)
					}
					tb.Prefetch(t.Context(), some(r, 200, 14_000))
				}
			})
			train(t, tb, l, 4, rounds, 1, nil)
			done.Store(true)
			wg.Wait()
			l.check(t, tb)
			tiers(t, tb)
			if st := statsOf(tb); st.Evicted < 4000 || st.Prefetched == 0 || st.StoreHits == 0 {
				t.Errorf("little happened: %+v", st)
			}
		})
	}
}

// Push makes its way where every attempt finds that its rows have left again.
func TestPushHeld(t *testing.T) {
	tb := newTable(t, zeros(&thief{Memory: storetest.NewMemory(0)}))
	s := tb.store.(*thief)
	const n = 3000
	keys, ones := sequence(0, n), slices.Repeat([]float32{1}, n*dim)
	must(t, tb.Push(0, 1, keys, ones, 1))
	evictAll(t, tb)
	s.after = func() {
		// Between this read and the push that follows it all rows leave again.
		s.wg.Go(func() {
			if _, err := tb.Evict(n); err != nil {
				t.Error(err)
			}
		})
	}
	must(t, tb.Push(0, 2, keys, ones, 1))
	s.wg.Wait()
	s.after = nil
	for _, key := range keys {
		if got := whole(t, tb, key); got[0] != 2 || got[dim] != 2 {
			t.Fatalf("key %d is %v, want 2 pushes", key, got)
		}
	}
}

// thief is a store that calls after when it was read.
type thief struct {
	*storetest.Memory
	wg    sync.WaitGroup
	after func()
}

func (s *thief) Get(table uint32, keys []uint64, found *store.Rows) error {
	err := s.Memory.Get(table, keys, found)
	if s.after != nil {
		s.after()
	}
	return err
}

func TestPushFaults(t *testing.T) {
	tb := tiered(t)
	x := make([]float32, 3*dim)
	for want, err := range map[string]error{
		"numbers begin at 1":    tb.Push(0, 0, sequence(0, 3), x, 1),
		"session 1024":          tb.Push(rows.MaxSessions, 1, sequence(0, 3), x, 1),
		"9 values for 2 rows":   tb.Push(0, 1, sequence(0, 2), x, 1),
		"twice":                 tb.Push(0, 1, []uint64{1, 1, 2}, x, 1),
		"keys in a batch, memo": tb.Push(0, 1, sequence(0, 6000), make([]float32, 6000*dim), 1),
		"9 values for 4 rows":   tb.Pull(sequence(0, 4), x),
		"9 values for 1 rows":   tb.Peek(sequence(0, 1), x),
	} {
		if err == nil || !contains(err, want) || !contains(err, `shard: table "ads": `) {
			t.Errorf("%v does not hold %q", err, want)
		}
	}
	if n := statsOf(tb).MemoryRows; n != 0 {
		t.Errorf("%d rows", n)
	}
}

// What is in memory is pulled and pushed without garbage.
func TestNoAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for name, s := range map[string]store.Store{"none": nil, "memory": storetest.NewMemory(0)} {
		tb := newTable(t, small(s))
		const n = 1000
		keys, x, seq := sequence(0, n), make([]float32, n*dim), uint64(0)
		must(t, tb.Pull(keys, x))
		for what, f := range map[string]func() error{
			"Pull": func() error { return tb.Pull(keys, x) },
			"Peek": func() error { return tb.Peek(keys, x) },
			"Push": func() error { seq++; return tb.Push(1, seq, keys, x, 0) },
		} {
			must(t, f())
			if n := testing.AllocsPerRun(20, func() { must(t, f()) }); n != 0 {
				t.Errorf("store %s: %s makes %v allocations", name, what, n)
			}
		}
	}
}

func BenchmarkShard(b *testing.B) {
	const n, batch = 1 << 20, 4096
	for _, part := range []int{1, 8} {
		b.Run(fmt.Sprintf("memory=1/%d", part), func(b *testing.B) {
			s, err := store.OpenSegments(dirOf(b, "segments"), 0)
			must(b, err)
			defer func() { must(b, s.Close()) }()
			c := Config{Rows: rows.Config{Name: "b", Dim: 16, Rule: rowWise(), Usage: true}, Store: s}
			c.MemoryBytes = costOf(c.Rows, n/part+n/part/4)
			tb, err := New(c)
			must(b, err)
			defer func() { must(b, tb.Close()) }()
			r, x := rand.New(rand.NewPCG(1, 2)), make([]float32, batch*16)
			for i := range x {
				x[i] = 1e-3
			}
			seq := uint64(0)
			step := func(keys []uint64) {
				seq++
				must(b, tb.Pull(keys, x))
				must(b, tb.Push(0, seq, keys, x, 1))
			}
			for at := uint64(0); at < n; at += batch {
				keys := sequence(at, batch)
				for i, k := range keys {
					keys[i] = mix(k)
				}
				step(keys)
			}
			law, err := zipf.New(1.01, n)
			must(b, err)
			batches := make([][]uint64, 512) // so many that what is rare is not there by chance
			for i := range batches {
				batches[i] = hotKeys(r, law, batch)
			}
			for _, keys := range batches[:256] { // until memory has what is hot
				step(keys)
			}
			before := statsOf(tb)
			b.ResetTimer()
			for i := range b.N {
				step(batches[(256+i)%len(batches)])
			}
			after := statsOf(tb)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/row")
			b.ReportMetric(100-100*float64(after.Missed-before.Missed)/float64(after.Pulled-before.Pulled), "%hits")
		})
	}
}

// hotKeys draws different keys of a law's values, which are neighbours nowhere.
func hotKeys(r *rand.Rand, law *zipf.Law, count int) []uint64 {
	seen := map[uint64]bool{}
	out := make([]uint64, 0, count)
	for len(out) < count {
		if key := mix(law.Draw(r.Uint64(), r.Uint64(), r.Uint64())); !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out
}
