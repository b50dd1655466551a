package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/snapshot"
	"github.com/ringo-ml/ringo/internal/server/wal"
)

// In every mode a server that is closed and opened again, with checkpoints or without, at
// any place in a step, ends with what one has that was never closed.
func TestRecoversExactly(t *testing.T) {
	for _, mode := range []Mode{BSP, Async, SSP} {
		for _, saves := range []bool{false, true} {
			t.Run(name("%s saves %v", mode, saves), func(t *testing.T) {
				s := mixed()
				c := Config{Job: "j", Trainers: 2, Mode: mode, Durability: WAL, Dir: t.TempDir()}
				if mode == SSP {
					c.Staleness = 100
				}
				never := open(t, Config{Trainers: 2, Mode: mode, Staleness: c.Staleness, Durability: None}, s)
				e := open(t, c, s)
				rng := rand.New(rand.NewPCG(4, uint64(len(mode))))
				seq := []uint64{0, 0}
				again := func() {
					if rng.IntN(12) != 0 {
						return
					}
					if saves && rng.IntN(2) == 0 {
						_, err := e.Save(context.Background(), rng.IntN(2) == 0)
						must(t, err)
					}
					must(t, e.Close())
					c.Durability = WALFsync // from the first restart on
					e = open(t, c, s)
					for session := range seq {
						if e.Last(session) != seq[session] {
							t.Fatalf("session %d comes back with %d changes of %d", session, e.Last(session), seq[session])
						}
					}
				}
				both := func(session int, change func(e *Engine, seq uint64) (Ticket, error)) {
					t.Helper()
					seq[session]++
					for _, e := range []*Engine{never, e} {
						if _, err := change(e, seq[session]); err != nil {
							t.Fatal(err)
						}
					}
					again()
				}
				initial := initials(s)
				for i, d := range s.Dense {
					for lo := 0; lo < d.Len; lo += 200 {
						both(0, func(e *Engine, seq uint64) (Ticket, error) {
							return e.SetDense(0, seq, i, lo, initial[i][lo:min(d.Len, lo+200)])
						})
					}
				}
				for step := uint64(1); step <= 8; step++ {
					for _, session := range rng.Perm(2) {
						all := draw(s, rng, 120)
						for i := range s.Sparse {
							both(session, func(e *Engine, seq uint64) (Ticket, error) {
								return e.PushRows(session, seq, i, step, all[i].keys, all[i].values)
							})
						}
						for i, d := range s.Dense {
							for lo := 0; lo < d.Len; lo += 500 {
								both(session, func(e *Engine, seq uint64) (Ticket, error) {
									return e.PushDense(session, seq, i, step, lo, all[len(s.Sparse)+i].values[lo:min(d.Len, lo+500)])
								})
							}
						}
						both(session, func(e *Engine, seq uint64) (Ticket, error) {
							return e.Clock(session, seq, step, 0.1/float64(step+3*uint64(session))) // bsp takes that of session 0
						})
					}
				}
				both(0, func(e *Engine, seq uint64) (Ticket, error) { return e.Leave(0, seq) })
				must(t, e.Close())
				e = open(t, c, s)
				sameEngines(t, never, e)
			})
		}
	}
}

// sameEngines compares all rows below the keys that draw takes, all arrays, and clocks.
func sameEngines(t *testing.T, a, b *Engine) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	for i, x := range a.schema.Sparse {
		keys := distinct(rng, 400, 400)
		va, vb := make([]float32, len(keys)*x.Dim), make([]float32, len(keys)*x.Dim)
		must(t, a.PullRows(anyPull, i, keys, va))
		must(t, b.PullRows(anyPull, i, keys, vb))
		if !same(va, vb) {
			t.Errorf("table %s differs", x.Name)
		}
	}
	for i, d := range a.dense {
		if !same(d.params, b.dense[i].params) {
			t.Errorf("array %s differs", d.Name)
		}
		for k, st := range d.opt.State() {
			if other := b.dense[i].opt.State()[k]; !same(st.Data, other.Data) {
				t.Errorf("array %s: state %s differs", d.Name, st.Name)
			}
		}
	}
	if a.clocks.slowest != b.clocks.slowest || a.clocks.highest != b.clocks.highest || a.clocks.applied != b.clocks.applied || a.rate.Load() != b.rate.Load() {
		t.Errorf("clocks %+v %v, want %+v %v", b.clocks.sessions, b.rate.Load(), a.clocks.sessions, a.rate.Load())
	}
}

// Checkpoints are written while trainers push. What is found after each, and after the
// end, is every push once.
func TestSavesWhileTrainersPush(t *testing.T) {
	for _, mode := range []Mode{Async, BSP} {
		s := whole(4)
		c := Config{Trainers: 3, Mode: mode, Durability: WAL, Dir: t.TempDir(), Keep: 2}
		if mode == BSP {
			c.Trainers = 2 // the mean of whole numbers by 2 is exact
		}
		e := open(t, c, s)
		want := newSums(s)
		newClient(t, e, 0).begin(want.dense())
		var done atomic.Int32
		var all sync.WaitGroup
		for n := range c.Trainers {
			all.Go(func() {
				defer done.Add(1)
				tr := newTrainer(t, []*Engine{e}, n)
				for step := uint64(1); step <= 40; step++ {
					if err := e.Await(context.Background(), n, step); err != nil {
						t.Error(err)
						return
					}
					g := integers(s, tr.rng, 500)
					if mode == BSP { // halves
						for _, g := range g {
							for i := range g.values {
								g.values[i] *= 2
							}
						}
					}
					want.addScaled(g, mode == BSP)
					tr.push(s, g)
					tr.each(func(l *client) { l.clock(-1) })
				}
			})
		}
		saves := 1 // Open's
		for int(done.Load()) < c.Trainers {
			saved, err := e.Save(context.Background(), true)
			must(t, err)
			if saves++; saved.Number != uint64(saves) || saved.Base != 0 {
				t.Errorf("checkpoint %d is %+v", saves, saved)
			}
		}
		all.Wait()
		want.compare(t, []*Engine{e})
		must(t, e.Close())
		numbers, err := snapshot.Numbers(filepath.Join(c.Dir, "checkpoints"))
		must(t, err)
		if len(numbers) != min(saves, 2) {
			t.Errorf("%d checkpoints are left of %d", len(numbers), saves)
		}
		e = open(t, c, s)
		want.compare(t, []*Engine{e})
	}
}

// A sum of many keys is pushed in chunks, by several threads. Checkpoints that have some
// chunks and not others, of rows at different moments, and the log give each key its sum once.
func TestChunksOnce(t *testing.T) {
	for _, newTable := range []func(int, rows.Config) (Table, error){newShard, newMapped} {
		chunksOnce(t, newTable)
	}
}

func chunksOnce(t *testing.T, newTable func(int, rows.Config) (Table, error)) {
	const most = 14_000
	s := whole(2)
	s.Dense = nil
	c := Config{Trainers: 2, Mode: BSP, Durability: WAL, Dir: t.TempDir(), Make: newTable}
	e := open(t, c, s)
	want := newSumsOf(s)
	sessions := []*client{newClient(t, e, 0), newClient(t, e, 1)}
	rng := rand.New(rand.NewPCG(8, 8))
	for range 4 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 2 {
				if _, err := e.Save(context.Background(), true); err != nil {
					t.Error(err)
				}
			}
		}()
		for range 3 {
			for _, l := range sessions {
				l.e = e
				keys := distinct(rng, most-2000, most)
				g, half := make([]float32, 2*len(keys)), make([]float32, 2*len(keys))
				for i := range g {
					half[i] = float32(rng.IntN(9) - 4)
					g[i] = 2 * half[i]
				}
				want.addRows([]grads{{keys, half}}, -1)
				l.rows(0, keys, g)
			}
			for _, l := range sessions {
				l.clock(-1)
			}
		}
		<-done
		want.compareRows(t, []*Engine{e})
		must(t, e.Close())
		e = open(t, c, s)
		want.compareRows(t, []*Engine{e})
	}
}

// addScaled adds what a trainer pushes, halved where two trainers' mean is taken.
func (w *sums) addScaled(g []grads, halved bool) {
	if halved {
		c := make([]grads, len(g))
		for i, x := range g {
			c[i] = grads{x.keys, slices.Clone(x.values)}
			for k := range c[i].values {
				c[i].values[k] /= 2
			}
		}
		g = c
	}
	w.add(g, false)
}

// With checkpoints alone what came after the newest is lost, trainers that have gone on
// meanwhile may, and nothing is applied twice.
func TestCheckpointWindow(t *testing.T) {
	for _, mode := range []Mode{Async, BSP} {
		s := sparseOnly()
		c := Config{Trainers: 2, Mode: mode, Durability: Checkpoint, Dir: t.TempDir()}
		e := open(t, c, s)
		sessions := []*client{newClient(t, e, 0), newClient(t, e, 1)}
		step := func() {
			for _, l := range sessions {
				l.rows(0, []uint64{3}, []float32{2, 4})
			}
			for _, l := range sessions {
				l.clock(-1)
			}
		}
		step()
		_, err := e.Save(context.Background(), false)
		must(t, err)
		step() // lost
		step() // lost
		must(t, e.Close())
		e = open(t, c, s)
		for i, l := range sessions {
			last, err := e.Join(i, l.seq+1, l.step-1)
			must(t, err)
			if last != l.seq {
				t.Errorf("%s: session %d goes on after %d, want %d", mode, i, last, l.seq)
			}
			l.e = e
		}
		must(t, e.Await(context.Background(), 0, 4)) // nobody waits for what is lost
		step()
		got, want := make([]float32, 2), float32(-8)
		if mode == BSP {
			want = -4
		}
		must(t, e.PullRows(anyPull, 0, []uint64{3}, got))
		if got[0] != want {
			t.Errorf("%s: the row is %v, want %v first", mode, got, want)
		}
	}
}

// Checkpoints of any number of servers are the beginning of a job with any other.
func TestOtherNumberOfServers(t *testing.T) {
	s := mixed()
	dir := t.TempDir()
	c := Config{Job: "first", Trainers: 1, Mode: BSP, Durability: WAL, Dir: filepath.Join(dir, "first")}
	servers := cluster(t, c, s, 3)
	w := newTwin(t, s)
	tr := newTrainer(t, servers, 0)
	train := func(tr *trainer, from, to int) {
		for i := from; i < to; i++ {
			g := draw(s, rand.New(rand.NewPCG(uint64(i), 8)), 300)
			w.step([][]grads{g})
			tr.push(s, g)
			tr.each(func(l *client) { l.clock(-1) })
		}
	}
	for i := range servers {
		tr.sessions[i][0].begin(initials(s))
	}
	train(tr, 0, 4)
	var from []string
	for i, e := range servers {
		_, err := e.Save(context.Background(), false)
		must(t, err)
		must(t, e.Close())
		from = append(from, filepath.Join(c.Dir, name("%d", i)))
	}
	for _, n := range []int{5, 1, 2} {
		c := Config{Job: "second", Trainers: 1, Mode: BSP, Durability: WAL, Dir: filepath.Join(dir, name("%d", n)), From: from}
		servers := cluster(t, c, s, n)
		w.compare(t, servers)
		count := int64(0)
		for _, e := range servers {
			count += e.Stats().Tables[0].Rows
		}
		if count != int64(len(w.rows[0])) {
			t.Errorf("%d servers have %d rows of %d", n, count, len(w.rows[0]))
		}
		if n != 2 {
			continue
		}
		train(newTrainer(t, servers, 0), 4, 6) // with the optimizers' states as they were
		w.compare(t, servers)
		for i := range servers {
			must(t, servers[i].Close())
		}
		w.compare(t, cluster(t, c, s, n)) // From is not looked at any more
	}
}

func TestFromIncomplete(t *testing.T) {
	s := sparseOnly()
	dir := t.TempDir()
	c := Config{Job: "first", Trainers: 1, Mode: Async, Durability: Checkpoint, Dir: filepath.Join(dir, "first")}
	var from []string
	for i, e := range cluster(t, c, s, 2) {
		_, err := e.Save(context.Background(), false)
		must(t, err)
		from = append(from, filepath.Join(c.Dir, name("%d", i)))
	}
	for _, bad := range [][]string{from[:1], {from[0], from[0]}, {from[0], filepath.Join(dir, "none")}, {from[0], from[1], from[1]}} {
		_, err := Open(Config{Trainers: 1, Mode: Async, Durability: Checkpoint, Dir: t.TempDir(), From: bad}, s)
		if err == nil || !strings.Contains(err.Error(), "loading from") {
			t.Errorf("%v: %v", bad, err)
		}
	}
	other := sparseOnly()
	other.Sparse[0].Seed = 9
	if _, err := Open(Config{Trainers: 1, Mode: Async, Durability: None, From: from}, other); err == nil || !strings.Contains(err.Error(), "seed 0") {
		t.Errorf("another schema: %v", err)
	}
	other = sparseOnly()
	other.Sparse[0].Rule.LR = 0.125
	must(t, open(t, Config{Trainers: 1, Mode: Async, Durability: None, From: from}, other).Err())
	must(t, open(t, Config{Trainers: 4, Mode: Async, Durability: None, From: from}, s).Err())
}

// A trainer that was given up stays so, from the log and from a checkpoint.
func TestLostForGood(t *testing.T) {
	for _, saves := range []bool{false, true} {
		c := Config{Trainers: 2, Mode: BSP, Durability: WAL, Dir: t.TempDir(), Lost: ContinueJob}
		e := open(t, c, sparseOnly())
		cl := newClient(t, e, 0)
		cl.rows(0, []uint64{1}, []float32{2, 4})
		cl.clock(-1)
		must(t, e.Lost(1, errors.New("gone")))
		if saves {
			_, err := e.Save(context.Background(), false)
			must(t, err)
		}
		must(t, e.Close())
		e = open(t, c, sparseOnly())
		must(t, e.Await(context.Background(), 0, 2))
		var lost *LostError
		if _, err := e.Join(1, 1, 0); !errors.As(err, &lost) || lost.Trainer != 1 {
			t.Errorf("saves %v: it joins: %v", saves, err)
		}
		cl = newClient(t, e, 0)
		cl.rows(0, []uint64{1}, []float32{2, 4})
		cl.clock(-1)
		must(t, e.Await(context.Background(), 0, 3))
		got := make([]float32, 2)
		must(t, e.PullRows(anyPull, 0, []uint64{1}, got))
		if got[0] != -4 || got[1] != -8 {
			t.Errorf("saves %v: the row is %v", saves, got)
		}
	}
}

// When all have left that is known, after a restart too.
func TestLeft(t *testing.T) {
	c := Config{Trainers: 2, Sessions: 2, Mode: SSP, Durability: WAL, Dir: t.TempDir()}
	e := open(t, c, sparseOnly())
	over := func() bool {
		select {
		case <-e.clocks.left:
			return true
		default:
			return false
		}
	}
	for session := range 4 {
		if over() {
			t.Errorf("all have left after %d of 4 sessions", session)
		}
		newClient(t, e, session).leave()
	}
	for range 2 {
		if !over() {
			t.Error("all have left, and nobody knows")
		}
		_, err := e.Save(context.Background(), false)
		must(t, err)
		must(t, e.Close())
		e = open(t, c, sparseOnly())
	}
}

// All rows are handed out once.
func TestEach(t *testing.T) {
	s := sparseOnly()
	e := open(t, Config{Trainers: 1, Mode: Async, Durability: None}, s)
	want := newSumsOf(s)
	rng := rand.New(rand.NewPCG(3, 3))
	cl := newClient(t, e, 0)
	for range 5 {
		g := integers(s, rng, 9000)
		want.addRows(g, -1)
		cl.rows(0, g[0].keys, g[0].values)
	}
	must(t, e.Each(context.Background(), 0, func(keys []uint64, weights []float32) error {
		for i, key := range keys {
			if !same(want.rows[key], weights[2*i:][:2]) {
				t.Fatalf("key %d is %v, want %v", key, weights[2*i:][:2], want.rows[key])
			}
			delete(want.rows, key)
		}
		return nil
	}))
	if len(want.rows) != 0 {
		t.Errorf("%d rows were not handed out", len(want.rows))
	}
	stop := errors.New("stop")
	if err := e.Each(context.Background(), 0, func([]uint64, []float32) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
}

// The log does not grow for ever: a checkpoint cuts it.
func TestLogIsCut(t *testing.T) {
	s := sparseOnly()
	c := Config{Trainers: 1, Mode: Async, Durability: WAL, Dir: t.TempDir(), LogBuffer: 1 << 20}
	e := open(t, c, s)
	cl := newClient(t, e, 0)
	keys, values := make([]uint64, 40_000), make([]float32, 80_000)
	for i := range keys {
		keys[i] = uint64(i)
	}
	for range 110 { // more than a segment of 64 MiB
		cl.rows(0, keys, values)
	}
	must(t, e.Durable(cl.last))
	if n := e.Stats().Log.Segments; n < 2 {
		t.Fatalf("%d segments", n)
	}
	for want := 2; want >= 1; want-- { // the one before could still be replayed
		_, err := e.Save(context.Background(), false)
		must(t, err)
		if st := e.Stats().Log; (st.Segments > 1) != (want > 1) {
			t.Errorf("%d segments after a checkpoint", st.Segments)
		}
	}
	must(t, e.Close())
	must(t, open(t, c, s).Err())
}

// Whoever may pull an array's initial values finds them on a server that is killed then and comes back: its pushes,
// which may come before trainer 0 sends the values again, are taken.
func TestInitialValuesSurviveWhoPullsThem(t *testing.T) {
	s := whole(2)
	for round := range 10 {
		c := Config{Trainers: 2, Mode: Async, Durability: WAL, Dir: t.TempDir()}
		e := open(t, c, s)
		pulled := make(chan error, 1)
		killed := t.TempDir() + "/server"
		go func() {
			err := e.Await(context.Background(), 1, 1)
			pulled <- errors.Join(err, os.CopyFS(killed, os.DirFS(c.Dir)))
		}()
		newClient(t, e, 0).set(0, 0, ramp(0, s.Dense[0].Len))
		must(t, <-pulled)
		c.Dir = killed
		back := open(t, c, s)
		if _, err := back.PushDense(1, 1, 0, 1, 0, make([]float32, 4)); err != nil {
			t.Fatalf("round %d: a push to the server that came back: %v", round, err)
		}
	}
}

// Values that could not be logged are pulled by nobody.
func TestInitialValuesAreLoggedFirst(t *testing.T) {
	s := whole(2)
	e := open(t, Config{Trainers: 2, Mode: Async, Durability: WAL, Dir: t.TempDir()}, s)
	must(t, e.log.Close()) // stands for a disk that fails
	if _, err := e.SetDense(0, 1, 0, 0, ramp(0, s.Dense[0].Len)); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("initial values that cannot be logged: %v", err)
	}
	if e.clocks.unset == 0 {
		t.Error("they may be pulled")
	}
}

// Tables whose inputs have other names or places than this job's are refused, with the first that differs; those without names are taken.
func TestBeginsWithTheSameInputs(t *testing.T) {
	s := mixed()
	s.Inputs = []string{"price number log", "user", "class a, b"}
	dir := t.TempDir()
	e := open(t, Config{Job: "first", Trainers: 1, Mode: Async, Durability: Checkpoint, Dir: dir}, s)
	for i, values := range initials(s) {
		_, err := e.SetDense(0, uint64(i+1), i, 0, values)
		must(t, err)
	}
	_, err := e.Save(context.Background(), false)
	must(t, err)
	must(t, e.Close())
	for want, inputs := range map[string][]string{
		"": nil, " ": s.Inputs,
		`number 2 of 3 is "user", this job's of 3 "item"`:             {"price number log", "item", "class a, b"},
		`number 3 of 3 is "class a, b", this job's of 2 none`:         {"price number log", "user"},
		`number 1 of 3 is "price number log", this job's of 3 "user"`: {"user", "price number log", "class a, b"},
	} {
		now := s
		now.Inputs = inputs
		if now.Hash() != s.Hash() {
			t.Errorf("inputs %q are in the hash", inputs)
		}
		e, err := Open(Config{Job: "second", Trainers: 1, Mode: Async, Durability: None, From: []string{dir}}, now)
		if err == nil {
			must(t, e.Close())
		}
		if (strings.TrimSpace(want) == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("inputs %q: %v, want %q", inputs, err, want)
		}
	}
}
