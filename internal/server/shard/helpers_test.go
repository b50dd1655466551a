package shard

import (
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/internal/server/store/storetest"
	"github.com/ringo-ml/ringo/optim"
)

// adder adds scaled gradients and counts a row's pushes in its state: sums of small
// integers do not depend on the order of pushes, and a push that is lost or made twice
// shows.
type adder struct{}

func (adder) Name() string              { return "adder" }
func (adder) Validate() error           { return nil }
func (adder) Parts(int) []optim.RowPart { return []optim.RowPart{{Name: "count", Width: 1}} }

func (adder) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, scale float32) {
	for i, id := range ids {
		for j := range dim {
			data[int(id)*dim+j] += scale * grads[i*dim+j]
		}
		state[0][id]++
	}
}

const dim = 3

// small is a table with room for few more than leastRows rows in memory.
func small(s store.Store) Config {
	c := Config{Rows: rows.Config{Name: "ads", Dim: dim, Rule: adder{}, Init: rowinit.Uniform(1), MaxRows: 1 << 16}, Number: 7, Store: s, Deltas: true}
	if s != nil {
		c.Rows.Usage = true
		c.MemoryBytes = costOf(c.Rows, leastRows)
	}
	return c
}

func newTable(t testing.TB, cfg Config) *Table {
	t.Helper()
	leakcheck.Check(t)
	tb, err := New(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, tb.Close()) })
	return tb
}

// tiered is a small table over a store in memory.
// tableStats are the counters and sizes that the tests compare.
type tableStats struct {
	Memory               rows.Stats
	MemoryRows, MostRows int
	StoreRows, StoreHits int64
	Pulled, Missed, Made int64
	Denied, Prefetched   int64
	Evicted, Written     int64
}

func statsOf(t *Table) tableStats {
	s, c, m := t.Stats(), &t.counts, t.rows.Stats()
	return tableStats{m, int(s.Rows), m.MaxRows, s.StoredRows, s.Found, s.Pulled, s.Missed, c.made.Load(), c.denied.Load(), s.Prefetched, s.Evicted, c.written.Load()}
}

func tiered(t testing.TB) *Table { return newTable(t, small(storetest.NewMemory(0))) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sequence(from uint64, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = from + uint64(i)
	}
	return out
}

// some are n different keys below most.
func some(r *rand.Rand, n, most int) []uint64 {
	seen := make(map[uint64]bool, n)
	out := make([]uint64, 0, n)
	for len(out) < n {
		if key := r.Uint64N(uint64(most)); !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out
}

func integers(r *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.IntN(7) - 3)
	}
	return out
}

// workers runs f in so many goroutines and waits for all.
func workers(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// inMemory copies a row with its state, if it is in memory.
func inMemory(t testing.TB, tb *Table, key uint64, out []float32) (is bool) {
	t.Helper()
	must(t, tb.rows.Visit([]uint64{key}, func(_ int, r *rows.Row) rows.Verdict {
		to := out[copy(out, r.Weights):]
		for _, part := range r.State {
			to = to[copy(to, part):]
		}
		is = true
		return rows.Keep
	}))
	return is
}

// whole is a row with its state: what Peek does not show.
func whole(t testing.TB, tb *Table, key uint64) []float32 {
	t.Helper()
	out := make([]float32, tb.rows.Width())
	if inMemory(t, tb, key, out) {
		return out
	}
	var found store.Rows
	if tb.store != nil {
		must(t, tb.store.Get(tb.cfg.Number, []uint64{key}, &found))
	}
	if found.Len() == 1 {
		_, day, err := tb.readImage(key, found.Row(0), out)
		must(t, err)
		var r rows.Row
		tb.view(&r, key, out)
		tb.age(&r, day, tb.days.day)
		return out
	}
	tb.rows.Initial(key, out[:dim])
	at := dim
	for _, p := range tb.rows.Parts() {
		for range p.Width {
			out[at] = p.Initial
			at++
		}
	}
	return out
}

// twin is a table as a plain map: rows as they are when they were pushed. seqs are the
// sessions' numbers.
type twin struct {
	t    *Table
	rows map[uint64][]float32
	seqs map[int]uint64
}

func newTwin(tb *Table) *twin { return &twin{tb, map[uint64][]float32{}, map[int]uint64{}} }

func (w *twin) row(key uint64) []float32 {
	if row := w.rows[key]; row != nil {
		return row
	}
	row := make([]float32, w.t.rows.Width())
	w.t.rows.Initial(key, row[:dim])
	w.rows[key] = row
	return row
}

func (w *twin) pull(t *testing.T, keys []uint64) {
	t.Helper()
	dst := make([]float32, len(keys)*dim)
	must(t, w.t.Pull(keys, dst))
	w.compare(t, "pull", keys, dst)
	must(t, w.t.Peek(keys, dst))
	w.compare(t, "peek", keys, dst)
}

func (w *twin) compare(t *testing.T, what string, keys []uint64, dst []float32) {
	t.Helper()
	for i, key := range keys {
		if got, want := dst[i*dim:][:dim], w.row(key)[:dim]; !slices.Equal(got, want) {
			t.Fatalf("%s: key %d: %v, want %v", what, key, got, want)
		}
	}
}

// push pushes once, or twice the same.
func (w *twin) push(t *testing.T, r *rand.Rand, session int, keys []uint64) {
	t.Helper()
	grads := integers(r, len(keys)*dim)
	w.seqs[session]++
	for range 1 + r.IntN(2) {
		must(t, w.t.Push(session, w.seqs[session], keys, grads, 2))
	}
	for i, key := range keys {
		row := w.row(key)
		adder{}.UpdateRows(row, [][]float32{row[dim:]}, dim, []int32{0}, grads[i*dim:][:dim], 2)
	}
}

// check compares all rows of keys below most with another table's, tiers included.
func (w *twin) check(t *testing.T, tb *Table, most int) {
	t.Helper()
	for key := range uint64(most) {
		if got, want := whole(t, tb, key), w.row(key); !slices.Equal(got, want) {
			t.Fatalf("key %d: %v, want %v", key, got, want)
		}
	}
	tiers(t, tb)
}

// tiers checks what a table says of its tiers.
func tiers(t *testing.T, tb *Table) {
	t.Helper()
	if tb.store == nil {
		return
	}
	tb.upkeep.Lock()
	defer tb.upkeep.Unlock()
	have := map[uint64]bool{}
	must(t, tb.store.Iterate(tb.cfg.Number, func(key uint64, _ []byte) error { have[key] = true; return nil }))
	n, both := 0, 0
	var at rows.Cursor
	for more := true; more; {
		var err error
		at, more, err = tb.rows.Walk(at, 1000, func(r *rows.Row) rows.Verdict {
			n++
			if have[r.Key] != r.Usage.Stored {
				t.Fatalf("key %d: stored %t, says %t", r.Key, have[r.Key], r.Usage.Stored)
			}
			if r.Usage.Stored {
				both++
			}
			return rows.Keep
		})
		must(t, err)
	}
	if s := statsOf(tb); s.MemoryRows != n || s.StoreRows != int64(len(have)-both) || n > s.MostRows {
		t.Fatalf("%d rows in memory, %d in the store alone, %d at most; the table says %+v", n, len(have)-both, s.MostRows, s)
	}
	tb.room.mu.Lock()
	defer tb.room.mu.Unlock()
	if tb.room.rows != n {
		t.Fatalf("room counts %d rows, memory has %d", tb.room.rows, n)
	}
	if b := statsOf(tb).Memory.Resident(); countsPages && int64(b) > tb.cfg.MemoryBytes {
		t.Fatalf("%d bytes are resident, the budget is %d", b, tb.cfg.MemoryBytes)
	}
}

// countsPages says whether package rows lays its arrays out in pages: elsewhere they are
// slabs, and a table that is small has memory for more rows than it may have.
const countsPages = runtime.GOOS == "linux" && !raceDetector

func dirOf(t testing.TB, name string) string { return filepath.Join(t.TempDir(), name) }

func contains(err error, what string) bool { return strings.Contains(err.Error(), what) }

func rowWise() optim.RowRule { return optim.NewRowWiseAdagrad(0.05) }
