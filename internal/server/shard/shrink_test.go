package shard

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store/storetest"
	"github.com/ringo-ml/ringo/optim"
)

// clicks is a click table whose decay makes no rounding: days that pass at once or one
// by one are the same.
func clicks(t testing.TB) (*optim.ClickRows, Clicks) {
	t.Helper()
	rule := optim.NewClickRows(0.5)
	rule.Policy.Decay = 0.5
	rule.Policy.DeleteBelow = 0.04 // the score of one show is 0.1 at first
	rule.Policy.ExtendAt = 2
	c, err := NewClicks(rule, dim)
	must(t, err)
	return rule, c
}

// clickTwin is a click table as a map.
type clickTwin struct {
	t    *Table
	rule *optim.ClickRows
	rows map[uint64][]float32

	extended int
}

func (w *clickTwin) row(key uint64) []float32 {
	if row := w.rows[key]; row != nil {
		return row
	}
	row := make([]float32, w.t.rows.Width())
	w.t.rows.Initial(key, row[:dim])
	row[dim+5] = -1 // no extension
	w.rows[key] = row
	return row
}

func (w *clickTwin) push(t *testing.T, r *rand.Rand, seq uint64, keys []uint64) {
	const width = dim + 2
	grads := integers(r, len(keys)*width)
	for i := range keys {
		shows := 1 + r.IntN(3)
		grads[i*width+dim], grads[i*width+dim+1] = float32(shows), float32(r.IntN(shows+1))
	}
	for range 1 + r.IntN(2) {
		must(t, w.t.Push(0, seq, keys, grads, 1))
	}
	for i, key := range keys {
		row := w.row(key)
		parts := [][]float32{row[dim : dim+1], row[dim+1 : dim+5], row[dim+5:]}
		if due := w.rule.UpdateCounted(row[:dim], parts, dim, []int32{0}, grads[i*width:][:width], 1, nil); len(due) > 0 {
			initial := make([]float32, dim)
			w.t.cfg.Rows.Init(initial, rowinit.Row(rowinit.Table(w.t.cfg.Rows.Seed, w.t.cfg.Rows.Name), key))
			w.rule.Extend(row[:dim], parts, dim, 0, initial)
			w.extended++
		}
	}
}

// shrink shrinks both and compares how many rows went.
func (w *clickTwin) shrink(t *testing.T, days int) {
	t.Helper()
	gone := int64(0)
	maps.DeleteFunc(w.rows, func(_ uint64, row []float32) bool {
		f := optim.ClickStatsOf(row[dim+1:], 0)
		if f == (optim.ClickStats{}) {
			return true // it was only looked at
		}
		f = w.rule.Policy.Age(f, days)
		f.Put(row[dim+1:], 0)
		if w.rule.Policy.Deletes(f) {
			gone++
			return true
		}
		return false
	})
	if got := shrink(t, w.t, days); got.Deleted != gone || got.Kept != int64(len(w.rows)) {
		t.Fatalf("%+v, want %d rows deleted and %d kept", got, gone, len(w.rows))
	}
}

// A click table over both tiers ages and deletes as a map does, and so does one that
// was loaded from a checkpoint and deltas with days between them.
func TestClicksAgainstMap(t *testing.T) {
	for from, newStore := range kinds() {
		t.Run(from, func(t *testing.T) {
			rule, shrinker := clicks(t)
			c := small(newStore(t))
			c.Rows.Rule, c.Shrinker, c.Policy = rule, shrinker, ByScore(shrinker)
			if c.Store != nil {
				c.MemoryBytes = costOf(c.Rows, leastRows)
			}
			w := &clickTwin{t: newTable(t, c), rule: rule, rows: map[uint64][]float32{}}
			r := rand.New(rand.NewPCG(11, 12))
			const keys = 9000
			parent := t.TempDir()
			var dirs []string
			since := uint64(0)
			for day := range 7 {
				for i := range 6 {
					w.push(t, r, uint64(day*10+i+1), some(r, 900, keys-day*900))
				}
				if day%3 == 1 {
					dirs = append(dirs, filepath.Join(parent, fmt.Sprint(day)))
					if since == 0 {
						since = save(t, w.t, dirs[0]).Epoch
					} else {
						since = saveDelta(t, w.t, dirs[len(dirs)-1], since).Epoch
					}
				}
				w.shrink(t, 1+day%2)
				for key := range uint64(keys) {
					if got, want := whole(t, w.t, key), w.row(key); !slices.Equal(got, want) {
						t.Fatalf("day %d, key %d: %v, want %v", day, key, got, want)
					}
				}
				tiers(t, w.t)
			}
			if w.extended == 0 {
				t.Error("no row was extended")
			}
			dirs = append(dirs, filepath.Join(parent, "last"))
			saveDelta(t, w.t, dirs[len(dirs)-1], since)
			c = c2(t, c, newStore)
			tb := newTable(t, c)
			load(t, tb, dirs...)
			for key := range uint64(keys) {
				if got, want := whole(t, tb, key), w.row(key); !slices.Equal(got, want) {
					t.Fatalf("loaded key %d: %v, want %v", key, got, want)
				}
			}
			checkScan(t, tb, dirs)
			tiers(t, tb)
		})
	}
}

// thousands adds 1000 to a row's count for each day and deletes nothing.
type thousands struct{}

func (thousands) Age(r *rows.Row, days int)   { r.State[0][0] += float32(1000 * days) }
func (thousands) Deletes(*rows.Row, int) bool { return false }
func (thousands) Days() bool                  { return false }

// While goroutines train and rows come and go between the tiers, each row ages once for
// each day.
func TestShrinkWhileTraining(t *testing.T) {
	for name, newStore := range kinds() {
		t.Run(name, func(t *testing.T) {
			c := zeros(newStore(t))
			c.Shrinker = thousands{}
			tb := newTable(t, c)
			const keys, days = 9000, 4
			l := newLedger(tb, keys)
			for at := range keys / 500 {
				batch := sequence(uint64(at*500), 500)
				must(t, tb.Push(0, uint64(at+1), batch, slices.Repeat([]float32{1}, 500*dim), 1))
				for _, key := range batch {
					l.pushed[key].Add(1)
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for range days {
					if s := shrink(t, tb, 1); s.Deleted != 0 {
						t.Errorf("%+v", s)
					}
				}
			})
			train(t, tb, l, 3, 40, 1, nil)
			wg.Wait()
			for key := range l.pushed {
				n := float32(l.pushed[key].Load())
				if got := whole(t, tb, uint64(key)); got[0] != n || got[dim] != n+1000*days {
					t.Fatalf("key %d is %v, want %v pushes and %d days", key, got, n, days)
				}
			}
			tiers(t, tb)
		})
	}
}

// What was deleted is remembered for deltas until a checkpoint is safe.
func TestGraves(t *testing.T) {
	c := small(nil)
	c.Shrinker = UnseenDays{0}
	tb := newTable(t, c)
	keys := sequence(0, 100)
	must(t, tb.Pull(keys, make([]float32, 100*dim)))
	if s := shrink(t, tb, 1); s.Deleted != 100 || s.Kept != 0 {
		t.Fatalf("%+v", s)
	}
	if n := len(tb.deleted.list); n != 1 || len(tb.deleted.list[0].keys) != 100 {
		t.Fatalf("%d lists of deleted keys", n)
	}
	s := save(t, tb, dirOf(t, "base"))
	tb.Committed(s.Epoch - 2)
	if len(tb.deleted.list) != 1 {
		t.Error("forgotten too early")
	}
	tb.Committed(s.Epoch)
	if len(tb.deleted.list) != 0 {
		t.Error("not forgotten")
	}
	c.Deltas = false
	tb = newTable(t, c)
	must(t, tb.Pull(keys, make([]float32, 100*dim)))
	if s := shrink(t, tb, 1); s.Deleted != 100 || len(tb.deleted.list) != 0 {
		t.Errorf("%+v, %d lists of deleted keys", s, len(tb.deleted.list))
	}
}

func TestPolicies(t *testing.T) {
	often := &rows.Row{Usage: rows.Usage{Last: 3, Touches: 9}}
	lately := &rows.Row{Usage: rows.Usage{Last: 7, Touches: 2}}
	early := &rows.Row{Usage: rows.Usage{Last: 1, Touches: 2}}
	if !(byUse(often, 8) > byUse(lately, 8) && byUse(lately, 8) > byUse(early, 8)) {
		t.Error("byUse")
	}
	_, c := clicks(t)
	shown := func(show, click float32) *rows.Row {
		return &rows.Row{State: [][]float32{{0}, {show, click, 0, 0}}}
	}
	score := ByScore(c)
	if !(score(shown(3, 1), 0) > score(shown(9, 0), 0) && score(shown(9, 0), 0) > score(shown(8, 0), 0)) {
		t.Error("ByScore")
	}
	cold := shown(9, 9)
	if cold.State[1][2] = 1; !(score(shown(0, 0), 0) > score(cold, 0) && score(cold, 0) < score(&rows.Row{State: [][]float32{{0}, {9.5, 9.5, 1, 0}}}, 0)) {
		t.Error("ByScore of cold rows")
	}
	if _, err := NewClicks(optim.NewClickRows(1), 5); err != nil {
		t.Error(err)
	}
}

// A row that was only pulled has been seen, whichever tier it is in when the day ends.
func TestPulledRowsAreSeen(t *testing.T) {
	c := small(storetest.NewMemory(0))
	c.Shrinker = UnseenDays{1}
	tb := newTable(t, c)
	const n = 300
	keys, x := sequence(0, n), make([]float32, n*dim)
	must(t, tb.Push(0, 1, keys, x, 1))
	for day := range 6 {
		if day%2 == 0 {
			evictAll(t, tb)
		}
		if s := shrink(t, tb, 1); s.Deleted != 0 || s.Kept != n {
			t.Fatalf("day %d: %+v", day, s)
		}
		must(t, tb.Pull(keys, x))
		if day%3 == 0 {
			evictAll(t, tb)
		}
	}
	shrink(t, tb, 1)
	if s := shrink(t, tb, 1); s.Deleted != n || s.Kept != 0 {
		t.Errorf("after two days unseen: %+v", s)
	}
}
