package shard

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/internal/server/store/storetest"
)

var background = context.Background()

// saved describes a checkpoint.
type saved struct {
	About
	Epoch uint64
	Bytes int64
}

func savedAt(t testing.TB, dir string, epoch uint64) (s saved) {
	t.Helper()
	about, err := Describe(dir, "")
	must(t, err)
	s = saved{About: about, Epoch: epoch}
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		info, err := f.Info()
		must(t, err)
		s.Bytes += info.Size()
	}
	return s
}

func save(t testing.TB, tb *Table, dir string) saved {
	t.Helper()
	epoch, err := tb.Save(background, dir, "", 0)
	must(t, err)
	return savedAt(t, dir, epoch)
}

func saveDelta(t testing.TB, tb *Table, dir string, since uint64) saved {
	t.Helper()
	epoch, err := tb.Save(background, dir, "", since)
	must(t, err)
	tb.Committed(epoch)
	return savedAt(t, dir, epoch)
}

func load(t testing.TB, tb *Table, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		_, err := tb.Load(background, dir, "", nil)
		must(t, err)
	}
}

// kinds are tables with and without a store: with the race detector one of segments is in
// TestAgainstMap alone.
func kinds() map[string]func(t *testing.T) store.Store {
	out := map[string]func(t *testing.T) store.Store{
		"none":   func(*testing.T) store.Store { return nil },
		"memory": func(*testing.T) store.Store { return storetest.NewMemory(0) },
	}
	if !testing.Short() {
		out["segments"] = func(t *testing.T) store.Store {
			s, err := store.OpenSegments(t.TempDir(), store.MinLimitBytes)
			must(t, err)
			t.Cleanup(func() { must(t, s.Close()) })
			return s
		}
	}
	return out
}

// A table at rest, its deltas and what was deleted are loaded as they were, by a table
// with a store or without.
func TestSaveAndLoad(t *testing.T) {
	for from, newStore := range kinds() {
		t.Run(from, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			c := small(newStore(t))
			c.Shrinker = UnseenDays{1}
			w := newTwin(newTable(t, c))
			const keys = 12_000
			parent := t.TempDir()
			at := func(name string) string { return filepath.Join(parent, name) }
			for range 12 {
				w.push(t, r, 0, some(r, 900, keys))
			}
			base := save(t, w.t, at("base"))
			w.push(t, r, 1, some(r, 300, keys))
			one := saveDelta(t, w.t, at("one"), base.Epoch)
			if one.Rows < 300 || one.Rows > 700 || one.Bytes > base.Bytes/5 {
				t.Errorf("the delta has %d rows in %d bytes, the base %d in %d", one.Rows, one.Bytes, base.Rows, base.Bytes)
			}
			// Nobody has seen rows below 100 for two days: they are deleted.
			shrink(t, w.t, 1)
			for lo := uint64(100); lo < keys; lo += 700 {
				w.pull(t, sequence(lo, min(700, keys-int(lo))))
			}
			gone := shrink(t, w.t, 1).Deleted
			for key := range uint64(100) {
				delete(w.rows, key)
			}
			w.push(t, r, 1, sequence(50, 20)) // made anew
			two := saveDelta(t, w.t, at("two"), one.Epoch)
			if two.Deleted != gone || gone == 0 {
				t.Errorf("%d deleted keys are saved, %d were deleted", two.Deleted, gone)
			}
			w.check(t, w.t, keys)
			for to, newStore := range kinds() {
				c := small(newStore(t))
				c.Shrinker = UnseenDays{1}
				tb := newTable(t, c)
				load(t, tb, at("base"), at("one"), at("two"))
				w.check(t, tb, keys)
				must(t, tb.Replayed())
				// It goes on: another delta after these.
				again := &twin{tb, w.rows, map[int]uint64{0: 1000}}
				next := sequence(0, 500)
				before := map[uint64][]float32{}
				for _, key := range next {
					before[key] = slices.Clone(w.row(key))
				}
				again.push(t, r, 0, next)
				saveDelta(t, tb, at("three from "+to), two.Epoch)
				last := newTable(t, c2(t, c, newStore))
				load(t, last, at("base"), at("one"), at("two"), at("three from "+to))
				again.check(t, last, keys)
				for key, row := range before {
					w.rows[key] = row
				}
			}
		})
	}
}

// c2 is a setting with another store.
func c2(t *testing.T, c Config, newStore func(*testing.T) store.Store) Config {
	c.Store = newStore(t)
	return c
}

// shrunk has the rows that a Shrink deleted, and the remaining rows.
type shrunk struct{ Deleted, Kept int64 }

func shrink(t testing.TB, tb *Table, days int) shrunk {
	t.Helper()
	deleted, err := tb.Shrink(background, days)
	must(t, err)
	return shrunk{deleted, rowsOf(tb)}
}

// rowsOf is the number of rows in both tiers.
func rowsOf(tb *Table) int64 {
	tb.upkeep.Lock() // no row is being evicted
	defer tb.upkeep.Unlock()
	s := tb.Stats()
	return s.Rows + s.StoredRows
}

// journal is what a log would hold: all pushes of each session.
type journal struct {
	sync.Mutex
	pushes map[int][]logged
}

type logged struct {
	seq  uint64
	keys []uint64
}

func (j *journal) record(session int, seq uint64, keys []uint64) {
	j.Lock()
	defer j.Unlock()
	if j.pushes == nil {
		j.pushes = map[int][]logged{}
	}
	j.pushes[session] = append(j.pushes[session], logged{seq, slices.Clone(keys)})
}

// replay makes all pushes again, sessions at once.
func (j *journal) replay(t *testing.T, tb *Table) {
	var wg sync.WaitGroup
	for session, pushes := range j.pushes {
		wg.Go(func() {
			for _, p := range pushes {
				if err := tb.Push(session, p.seq, p.keys, slices.Repeat([]float32{1}, len(p.keys)*dim), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// asked is a context that does something whenever it is asked for its error.
type asked struct {
	context.Context
	do func()
}

func (a asked) Err() error {
	a.do()
	return nil
}

// Checkpoints made while goroutines train are exact: with the log on top, of which
// nobody says where to begin, each push is there once. Every chain of a full one and its
// deltas is, and the checkpoint of a table that was recovered so.
func TestSaveWhileTraining(t *testing.T) {
	for name, newStore := range kinds() {
		t.Run(name, func(t *testing.T) {
			tb := newTable(t, zeros(newStore(t)))
			const keys = 11_000
			l, j := newLedger(tb, keys), &journal{}
			rounds := 50
			if testing.Short() {
				rounds = 15
			}
			parent := t.TempDir()
			dirs := []string{filepath.Join(parent, "0"), filepath.Join(parent, "1"), filepath.Join(parent, "2"), filepath.Join(parent, "3")}
			train(t, tb, l, 3, rounds, 1, j.record)
			var wg sync.WaitGroup
			wg.Go(func() {
				// Between any two pieces rows leave memory, as many as may.
				ctx := asked{background, func() {
					if tb.store != nil {
						if _, err := tb.evictSome(100); err != nil {
							t.Error(err)
						}
					}
				}}
				epoch, err := tb.Save(ctx, dirs[0], "", 0)
				for _, dir := range dirs[1:] {
					if err != nil {
						break
					}
					epoch, err = tb.Save(ctx, dir, "", epoch)
				}
				if err != nil {
					t.Error(err)
				}
			})
			train(t, tb, l, 3, 2*rounds, 2, j.record)
			wg.Wait()
			train(t, tb, l, 3, 5, 3, j.record)
			for n := range dirs {
				got := newTable(t, zeros(newStore(t)))
				load(t, got, dirs[:n+1]...)
				j.replay(t, got)
				l.check(t, got)
				must(t, got.Replayed())
				j.replay(t, got) // the marks know all of it
				l.check(t, got)
				tiers(t, got)
			}
			got := newTable(t, zeros(newStore(t)))
			load(t, got, dirs[:2]...)
			j.replay(t, got)
			must(t, got.Replayed())
			save(t, got, filepath.Join(parent, "again"))
			last := newTable(t, zeros(newStore(t)))
			load(t, last, filepath.Join(parent, "again"))
			j.replay(t, last)
			l.check(t, last)
		})
	}
}

// Two servers' tables are loaded by three, each its own keys.
func TestLoadByOtherServers(t *testing.T) {
	owner := func(key uint64, servers int) int { return int(mix(key) % uint64(servers)) }
	r := rand.New(rand.NewPCG(5, 6))
	parent := t.TempDir()
	const keys = 9000
	want := map[uint64][]float32{}
	var dirs [2][2]string // by checkpoint, then by server
	for server := range 2 {
		w := newTwin(tiered(t))
		mine := slices.DeleteFunc(sequence(0, keys), func(key uint64) bool { return owner(key, 2) != server })
		for lo := 0; lo < len(mine); lo += 700 {
			w.push(t, r, 0, mine[lo:min(len(mine), lo+700)])
		}
		for i, name := range []string{"base", "delta"} {
			dirs[i][server] = filepath.Join(parent, name+string(rune('0'+server)))
		}
		s := save(t, w.t, dirs[0][server])
		w.push(t, r, 0, mine[:500])
		saveDelta(t, w.t, dirs[1][server], s.Epoch)
		for _, key := range mine {
			want[key] = w.row(key)
		}
	}
	for server := range 3 {
		tb := tiered(t)
		for _, checkpoint := range dirs {
			for _, dir := range checkpoint {
				_, err := tb.Load(background, dir, "", func(key uint64) bool { return owner(key, 3) == server })
				must(t, err)
			}
		}
		mine := int64(0)
		for key := range uint64(keys) {
			if owner(key, 3) != server {
				continue
			}
			mine++
			if got := whole(t, tb, key); !slices.Equal(got, want[key]) {
				t.Fatalf("server %d, key %d: %v, want %v", server, key, got, want[key])
			}
		}
		if s := statsOf(tb); int64(s.MemoryRows)+s.StoreRows != mine {
			t.Errorf("server %d has %d and %d rows, want %d", server, s.MemoryRows, s.StoreRows, mine)
		}
		tiers(t, tb)
	}
}

func TestLoadFaults(t *testing.T) {
	parent := t.TempDir()
	at := func(name string) string { return filepath.Join(parent, name) }
	tb := tiered(t)
	must(t, tb.Push(0, 1, sequence(0, 10), make([]float32, 10*dim), 1))
	base := save(t, tb, at("base"))
	delta := saveDelta(t, tb, at("delta"), base.Epoch)
	saveDelta(t, tb, at("next"), delta.Epoch)

	for want, do := range map[string]func(tb *Table) error{
		"since epoch 1, and epoch 0 was loaded last": func(tb *Table) error { _, err := tb.Load(background, at("delta"), "", nil); return err },
		"since epoch 2, and epoch 1 was loaded last": func(tb *Table) error {
			load(t, tb, at("base"))
			_, err := tb.Load(background, at("next"), "", nil)
			return err
		},
		"has 10 rows already": func(tb *Table) error {
			load(t, tb, at("base"))
			_, err := tb.Load(background, at("base"), "", nil)
			return err
		},
		"file already exists":   func(tb *Table) error { _, err := tb.Save(background, at("base"), "", 0); return err },
		"a delta since epoch 9": func(tb *Table) error { _, err := tb.Save(background, at("x"), "", 9); return err },
		"no such file":          func(tb *Table) error { _, err := tb.Load(background, at("nowhere"), "", nil); return err },
		"it is of table \"ads\" with rows of 3 weights": func(*Table) error {
			c := small(nil)
			c.Rows.Seed = 4
			_, err := newTable(t, c).Load(background, at("base"), "", nil)
			return err
		},
		"want 1 or more":    func(tb *Table) error { _, err := tb.Shrink(background, 0); return err },
		"there is no store": func(*Table) error { _, err := newTable(t, small(nil)).Evict(1); return err },
		"set Deltas": func(*Table) error {
			c := small(nil)
			c.Deltas = false
			_, err := newTable(t, c).Save(background, at("x"), "", 1)
			return err
		},
	} {
		if err := do(tiered(t)); err == nil || !contains(err, want) {
			t.Errorf("%v does not hold %q", err, want)
		}
	}
	// A delta that cannot be told apart from older ones.
	tb.upkeep.Lock()
	for range 70_000 {
		tb.tick()
	}
	tb.upkeep.Unlock()
	if _, err := tb.Save(background, at("x"), "", delta.Epoch); err == nil || !contains(err, "save all") {
		t.Error(err)
	}
	if files, err := filepath.Glob(at("x*")); err != nil || len(files) > 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// A checkpoint that is given up leaves no files, and the table goes on, eviction too.
func TestSaveCancelled(t *testing.T) {
	tb := tiered(t)
	const n = 3000
	must(t, tb.Push(0, 1, sequence(0, n), make([]float32, n*dim), 1))
	evictAll(t, tb)
	must(t, tb.Push(0, 2, sequence(0, n/2), make([]float32, n/2*dim), 1))
	ctx, cancel := context.WithCancel(background)
	cancel()
	dir := dirOf(t, "never")
	if _, err := tb.Save(ctx, dir, "", 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
	evictAll(t, tb)
	if s := statsOf(tb); s.MemoryRows != 0 {
		t.Errorf("%d rows stay in memory", s.MemoryRows)
	}
	if _, err := tb.Shrink(ctx, 1); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := tb.Load(ctx, dir, "", nil); err == nil {
		t.Error("loaded what is not there")
	}
}

// While the walk over memory has not passed a row, it does not leave if it was changed,
// and leaves if it was not.
func TestBarred(t *testing.T) {
	tb := tiered(t)
	const n = 2000
	must(t, tb.Push(0, 1, sequence(0, n), make([]float32, n*dim), 1))
	evictAll(t, tb)
	x := make([]float32, n*dim)
	must(t, tb.Pull(sequence(0, n), x))
	must(t, tb.Push(0, 2, sequence(0, n/2), x[:n/2*dim], 1))
	half := uint64(1) << 63
	tb.saving.walking = true
	tb.saving.next.Store(half)
	evictAll(t, tb)
	tb.saving.walking = false
	for key := range uint64(n) {
		if stays := inMemory(t, tb, key, x); stays != (key < n/2 && tb.rows.Hash(key) >= half) {
			t.Fatalf("key %d with hash %#x: in memory %t", key, tb.rows.Hash(key), stays)
		}
	}
	tiers(t, tb)
}

// Damage anywhere is an error that names the file; whatever is cut off too.
func TestDamage(t *testing.T) {
	c := small(storetest.NewMemory(0))
	tb := newTable(t, c)
	x := make([]float32, 40*dim)
	must(t, tb.Push(0, 1, sequence(0, 40), x, 1))
	base := save(t, tb, dirOf(t, "base"))
	evictAll(t, tb)
	must(t, tb.Push(3, 7, sequence(20, 30), x[:30*dim], 1))
	tb.bury([]uint64{1, 2, 3})
	dir := dirOf(t, "delta")
	saveDelta(t, tb, dir, base.Epoch)

	r := rand.New(rand.NewPCG(7, 8))
	for _, name := range sections {
		path := filepath.Join(dir, string(name))
		whole, err := os.ReadFile(path)
		must(t, err)
		try := func(b []byte, what string) {
			t.Helper()
			must(t, os.WriteFile(path, b, 0o666))
			f, err := readAll(path)
			var d *DamageError
			if !errors.As(err, &d) && !errors.Is(err, errVersion) {
				t.Fatalf("%s, %s: %v", name, what, err)
			}
			if d != nil && (d.Path != path || d.Offset > int64(len(b))) || !strings.Contains(err.Error(), path) {
				t.Fatalf("%s, %s: %v", name, what, err)
			}
			_ = f
		}
		step := 1 + len(whole)/400
		for i := 0; i < len(whole); i += 1 + r.IntN(2*step) {
			b := slices.Clone(whole)
			b[i] ^= 1 << r.IntN(8)
			try(b, "a bit")
			try(whole[:i], "a cut")
		}
		try(append(slices.Clone(whole), 0), "a byte more")
		must(t, os.WriteFile(path, whole, 0o666))
	}
	// Files of two checkpoints, or one for another.
	memory, err := os.ReadFile(filepath.Join(dir, "memory"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "store"), memory, 0o666))
	var d *DamageError
	if _, err := newTable(t, small(nil)).Load(background, dir, "", func(uint64) bool { return true }); !errors.As(err, &d) || !contains(err, `it is a file "memory"`) {
		t.Error(err)
	}
}

// readAll reads a file to its end.
func readAll(path string) (rows int, err error) {
	r, f, err := openFile(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for {
		p, err := r.next()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows += p.n
	}
}
