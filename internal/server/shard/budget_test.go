package shard

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/internal/server/store/storetest"
	"github.com/ringo-ml/ringo/optim"
)

// 50 million rows of width 16 with row-wise Adagrad need at most 88 bytes each, marks
// and tiers included, where no store or delta needs Usage.
func TestBytesOfManyRows(t *testing.T) {
	c := rows.Config{Name: "t", Dim: 16, Rule: optim.NewRowWiseAdagrad(0.1)}
	const n = 50_000_000
	marks := int64(rows.MaxSessions * (rows.StripeOf(math.MaxUint64) + 1) * 8)
	if each := float64(costOf(c, n)+marks) / n; each > 88 {
		t.Errorf("%.2f bytes a row", each)
	}
	c.Usage = true
	budget := int64(1) << 30
	if rows := roomOf(c, budget); costOf(c, rows) > budget || costOf(c, rows+1) <= budget {
		t.Errorf("%d rows for %d bytes", rows, budget)
	}
}

// Memory stays within its budget, as rows count it, whatever comes and goes.
func TestBudget(t *testing.T) {
	for _, width := range []int{1, 16, 33} {
		c := Config{Rows: rows.Config{Name: "t", Dim: width, Rule: optim.NewRowWiseAdagrad(0.1), Usage: true}, Store: storetest.NewMemory(0)}
		c.MemoryBytes = costOf(c.Rows, 10_000)
		tb := newTable(t, c)
		r := rand.New(rand.NewPCG(1, uint64(width)))
		most := 0
		for seq := range uint64(60) {
			keys := some(r, 1+r.IntN(2000), 50_000)
			x := make([]float32, len(keys)*width)
			must(t, tb.Pull(keys, x))
			must(t, tb.Push(0, seq+1, keys, x, 1))
			s := statsOf(tb)
			if countsPages && int64(s.Memory.Resident()) > c.MemoryBytes {
				t.Fatalf("width %d: %d bytes are resident, the budget is %d", width, s.Memory.Resident(), c.MemoryBytes)
			}
			most = max(most, s.MemoryRows)
		}
		if s := statsOf(tb); most > s.MostRows || most < s.MostRows*3/4 || s.MostRows < 10_000 || s.Evicted == 0 {
			t.Errorf("width %d: up to %d rows in memory: %+v", width, most, s)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	full := storetest.NewMemory(0)
	var image store.Rows
	image.Add(1, []byte("x"))
	must(t, full.Put(7, &image))
	c := small(full)
	c.MemoryBytes = 100
	c.Rows.Admit = func(uint64, bool) bool { return true }
	c.Admission = Admission{Count: 99, Share: 2, FilterBytes: 1}
	_, err := New(c)
	for _, want := range []string{"Admit is set", "99 pulls", "share of 2", "filter of 1 bytes"} {
		if err == nil || !contains(err, want) {
			t.Errorf("%v does not hold %q", err, want)
		}
	}
	c = small(full)
	c.MemoryBytes /= 2
	_, err = New(c)
	for _, want := range []string{"want room for 4096", "1 rows of table 7 already"} {
		if err == nil || !contains(err, want) {
			t.Errorf("%v does not hold %q", err, want)
		}
	}
	c = small(nil)
	c.Store = storetest.NewMemory(0)
	if _, err := New(c); err == nil || !contains(err, "set MemoryBytes") {
		t.Error(err)
	}
	if _, err := New(Config{}); err == nil || !contains(err, "no name") {
		t.Error(err)
	}
}

// A table without a store is full at its budget, and says so.
func TestFullWithoutStore(t *testing.T) {
	c := small(nil)
	c.MemoryBytes = costOf(c.Rows, 5000) + 1<<20
	tb := newTable(t, c)
	n := statsOf(tb).MostRows
	must(t, tb.Pull(sequence(0, n), make([]float32, n*dim)))
	if err := tb.Pull(sequence(uint64(n), 1), make([]float32, dim)); !errors.Is(err, rows.ErrFull) {
		t.Errorf("a row beyond %d: %v", n, err)
	}
}

// failing is a store whose Put fails while fails is set.
type failing struct {
	*storetest.Memory
	fails atomic.Pointer[error]
	done  atomic.Int32
}

func (f *failing) Put(table uint32, rows *store.Rows) error {
	if err := f.fails.Load(); err != nil {
		return *err
	}
	return f.Memory.Put(table, rows)
}

func (f *failing) fail(err error) {
	if err == nil {
		f.fails.Store(nil)
		return
	}
	f.fails.Store(&err)
}

// Where the store takes no more, calls that need room fail with its error, those that
// need none go on, nothing is lost, and all is well when it takes rows again.
func TestStoreFails(t *testing.T) {
	s := &failing{Memory: storetest.NewMemory(0)}
	w := newTwin(newTable(t, small(s)))
	r := rand.New(rand.NewPCG(9, 10))
	const keys = 12_000
	for range 12 {
		w.push(t, r, 0, some(r, 800, keys))
	}
	full := &store.LimitError{Need: 1, Over: 1}
	s.fail(full)
	var err error
	x := make([]float32, 500*dim)
	failed := []uint64{}
	for lo := uint64(keys); err == nil; lo += 500 {
		batch := sequence(lo, 500)
		w.seqs[1]++
		err = w.t.Push(1, w.seqs[1], batch, x, 1)
		if failed = batch; err == nil {
			for _, key := range batch {
				row := w.row(key)
				adder{}.UpdateRows(row, [][]float32{row[dim:]}, dim, []int32{0}, x[:dim], 1)
			}
		}
	}
	var limit *store.LimitError
	if !errors.As(err, &limit) || !strings.Contains(err.Error(), "rows cannot leave") {
		t.Fatal(err)
	}
	if _, err := w.t.Evict(100); !errors.As(err, &limit) {
		t.Error(err)
	}
	// What is in memory is served.
	var in []uint64
	var at rows.Cursor
	_, _, err = w.t.rows.Walk(at, 50, func(r *rows.Row) rows.Verdict { in = append(in, r.Key); return rows.Keep })
	must(t, err)
	for _, key := range in {
		if key < keys {
			w.push(t, r, 2, []uint64{key})
			w.pull(t, []uint64{key})
		}
	}
	s.fail(nil)
	must(t, w.t.Push(1, w.seqs[1], failed, x, 1)) // the same again
	for _, key := range failed {
		row := w.row(key)
		adder{}.UpdateRows(row, [][]float32{row[dim:]}, dim, []int32{0}, x[:dim], 1)
	}
	evictAll(t, w.t)
	w.check(t, w.t, keys+int(w.seqs[1])*500)
}

// compacting is a store that has room again when it was compacted.
type compacting struct {
	failing
}

func (c *compacting) Compact(context.Context) error {
	c.done.Add(1)
	c.fail(nil)
	return nil
}

func TestFullStoreIsCompacted(t *testing.T) {
	s := &compacting{failing{Memory: storetest.NewMemory(0)}}
	tb := newTable(t, small(s))
	must(t, tb.Push(0, 1, sequence(0, 1000), make([]float32, 1000*dim), 1))
	s.fail(&store.LimitError{Owed: 10, Limit: 1000}) // too little to be worth it
	var limit *store.LimitError
	if _, err := tb.Evict(10); !errors.As(err, &limit) || s.done.Load() != 0 {
		t.Errorf("compacted %d times: %v", s.done.Load(), err)
	}
	s.fail(&store.LimitError{Owed: 100, Limit: 1000})
	evictAll(t, tb)
	if s.done.Load() != 1 {
		t.Errorf("compacted %d times", s.done.Load())
	}
	tiers(t, tb)
}

// Who waits for room waits as long as it was told, or until there is some.
func TestRoomWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(100, time.Minute)
		must(t, r.take(90))
		start := time.Now()
		if err := r.take(20); err == nil || !contains(err, "no memory for 20 more rows (90 in use) after 1m0s") {
			t.Error(err)
		}
		if d := time.Since(start); d != time.Minute {
			t.Errorf("waited for %v", d)
		}
		var wg sync.WaitGroup
		wg.Go(func() { must(t, r.take(20)) })
		wg.Go(func() { must(t, r.take(20)) })
		synctest.Wait()
		if want := r.begin(); want != 90-max(88-40, 50) {
			t.Errorf("%d rows are to leave", want)
		}
		r.give(40)
		r.end(nil)
		wg.Wait()
		// The error of a round that had begun before is none for who comes now.
		if r.begin() == 0 {
			t.Fatal("no round")
		}
		var late error
		wg.Go(func() { late = r.take(30) })
		synctest.Wait()
		broken := errors.New("broken")
		r.end(broken)
		synctest.Wait()
		if late != nil {
			t.Errorf("told of an older round: %v", late)
		}
		r.begin()
		r.end(broken)
		wg.Wait()
		if !errors.Is(late, broken) {
			t.Error(late)
		}
		if r.rows != 90 || r.waiting != 0 {
			t.Errorf("%d rows, waits for %d", r.rows, r.waiting)
		}
	})
}
