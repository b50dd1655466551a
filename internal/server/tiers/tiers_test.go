package tiers

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/ps/schema"
)

// anyPull is the id of pulls that do not come again.
var anyPull rows.PullID

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func counting(dim int) schema.Schema {
	return schema.Schema{Sparse: []schema.Sparse{{Name: "counts", Dim: dim, Rule: schema.Rule{Name: "sgd", LR: 1}}}}
}

// server is an engine with its tiers.
type server struct {
	*engine.Engine
	tiers *Tiers
}

func start(t *testing.T, c engine.Config, tc Config, s schema.Schema) server {
	t.Helper()
	ti, err := Open(tc, s)
	must(t, err)
	c.Make = ti.Make
	e, err := engine.Open(c, s)
	if err != nil {
		t.Fatal(errors.Join(err, ti.Close()))
	}
	return server{e, ti}
}

func (s server) stop(t *testing.T) {
	t.Helper()
	must(t, errors.Join(s.Close(), s.tiers.Close()))
}

// A store that cannot be opened is an error, and Close has nothing of it to close.
func TestStoreThatCannotBeOpened(t *testing.T) {
	leakcheck.Check(t)
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o666))
	for name, c := range map[string]Config{
		"limit of 65536 bytes: want 0 (none), or 16777216 or more": {Dir: t.TempDir(), MemoryBytes: 1 << 20, DiskBytes: 64 << 10},
		"not a directory": {Dir: filepath.Join(file, "below"), MemoryBytes: 1 << 20},
	} {
		if ti, err := Open(c, counting(2)); ti != nil || err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, %v, want an error with %q", ti, err, name)
		}
	}
}

// A table several times as large as its memory has every push once: while rows move
// between the tiers, are saved whole and in deltas, and come back from checkpoint and log.
func TestEngineOverTiers(t *testing.T) {
	leakcheck.Check(t)
	const dim, keys, batch = 16, 30_000, 1000
	s := counting(dim)
	c := engine.Config{Trainers: 1, Mode: engine.Async, Durability: engine.WAL, Dir: t.TempDir()}
	tc := Config{Dir: t.TempDir(), MemoryBytes: 1 << 20, Deltas: true}
	e := start(t, c, tc, s)
	want := make([]float32, keys)
	rng := rand.New(rand.NewPCG(1, 2))
	seq := uint64(0)
	var last engine.Ticket
	check := func() {
		t.Helper()
		got, all := make([]float32, batch*dim), make([]uint64, batch)
		for lo := 0; lo < keys; lo += batch {
			for i := range all {
				all[i] = uint64(lo + i)
			}
			must(t, e.PullRows(anyPull, 0, all, got))
			for i := range all {
				if got[i*dim] != -want[lo+i] || got[i*dim+dim-1] != -want[lo+i] {
					t.Fatalf("key %d is %v, want %v", lo+i, got[i*dim], -want[lo+i])
				}
			}
		}
	}
	for round := range 6 {
		for range 12 {
			seq++
			k, g := make([]uint64, 0, batch), make([]float32, batch*dim)
			for _, key := range rng.Perm(keys)[:batch] {
				v := float32(rng.IntN(7) - 3)
				for j := range dim {
					g[len(k)*dim+j] = v
				}
				k = append(k, uint64(key))
				want[key] += v
			}
			var err error
			last, err = e.PushRows(0, seq, 0, 1, k, g)
			must(t, err)
		}
		if round%2 == 0 {
			_, err := e.Save(context.Background(), round > 0)
			must(t, err)
		}
		if round%3 == 1 {
			must(t, e.Durable(last))
			e.stop(t)
			e = start(t, c, tc, s)
			if e.Last(0) != seq {
				t.Fatalf("%d changes of %d are back", e.Last(0), seq)
			}
		}
	}
	st := e.Stats().Tables[0]
	if st.StoredRows == 0 || st.Bytes > 2<<20 {
		t.Errorf("not in two tiers: %+v", st)
	}
	check()
	e.stop(t)
	e = start(t, c, tc, s)
	check()
	e.stop(t)
}

// Whatever tier a row is in, and whatever is brought into memory meanwhile for pulls that follow, bsp comes to the same bits: those of
// tables in memory.
func TestSyncOverTiers(t *testing.T) {
	const keys, batch = 20_000, 3000
	s := schema.Schema{Sparse: []schema.Sparse{
		{Name: "wide", Dim: 16, Rule: schema.Rule{Name: "adagrad", LR: 0.1}, Init: schema.Init{Name: "uniform", Value: 0.1}, Seed: 1},
		{Name: "odd", Dim: 3, Rule: schema.Rule{Name: "adam", LR: 0.01}},
	}}
	c := engine.Config{Trainers: 2, Mode: engine.BSP, Durability: engine.None, MaxRows: 1 << 20}
	memory, err := engine.Open(c, s)
	must(t, err)
	defer memory.Close()
	c.Durability, c.Dir = engine.WAL, t.TempDir()
	tc := Config{Dir: t.TempDir(), MemoryBytes: 2500 << 10}
	e := start(t, c, tc, s)
	rng := rand.New(rand.NewPCG(3, 4))
	seq, brought := make([]uint64, c.Trainers), int64(0)
	for step := uint64(1); step <= 12; step++ {
		for session := range c.Trainers {
			for table, x := range s.Sparse {
				k, g := make([]uint64, batch), make([]float32, batch*x.Dim)
				for i, key := range rng.Perm(keys)[:batch] {
					k[i] = uint64(key)
				}
				for i := range g {
					g[i] = float32(rng.NormFloat64())
				}
				seq[session]++
				for _, engine := range []*engine.Engine{memory, e.Engine} {
					_, err := engine.PushRows(session, seq[session], table, step, k, g)
					must(t, err)
				}
			}
			seq[session]++
			prefetched := make(chan bool)
			go func() {
				next := make([]uint64, 500)
				for i := range next {
					next[i] = uint64(i)*37 + step
				}
				for table := range len(s.Sparse) + 1 { // there is none of the last number
					e.Prefetch(t.Context(), table, next)
				}
				close(prefetched)
			}()
			for _, engine := range []*engine.Engine{memory, e.Engine} {
				_, err := engine.Clock(session, seq[session], step, -1)
				must(t, err)
			}
			<-prefetched
		}
		for _, table := range e.Stats().Tables {
			brought += table.Prefetched
		}
		switch step % 4 {
		case 1:
			_, err := e.Save(context.Background(), true)
			must(t, err)
		case 3:
			e.stop(t)
			e = start(t, c, tc, s)
		}
	}
	if brought == 0 {
		t.Error("nothing was brought in ahead")
	}
	for table, x := range s.Sparse {
		want, got := make([]float32, batch*x.Dim), make([]float32, batch*x.Dim)
		k := make([]uint64, batch)
		for lo := 0; lo < keys; lo += batch {
			for i := range k {
				k[i] = uint64(lo + i)
			}
			must(t, memory.PeekRows(table, k, want))
			must(t, e.PeekRows(table, k, got))
			for i := range want {
				if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
					t.Fatalf("table %s: key %d has %v, want %v", x.Name, lo+i/x.Dim, got[i], want[i])
				}
			}
		}
	}
	e.stop(t)
}

// A push that found a row, because its key had come often enough, is not lost to a
// restart after which it has not.
func TestAdmissionInReplay(t *testing.T) {
	s := counting(2)
	c := engine.Config{Trainers: 1, Mode: engine.Async, Durability: engine.WAL, Dir: t.TempDir()}
	tc := Config{Admission: shard.Admission{Count: 3}, Deltas: true}
	e := start(t, c, tc, s)
	got := make([]float32, 4)
	push := func(seq uint64) {
		_, err := e.PushRows(0, seq, 0, 1, []uint64{1, 2}, []float32{1, 1, 1, 1})
		must(t, err)
	}
	must(t, e.PullRows(anyPull, 0, []uint64{1, 2}, got))
	push(1) // dropped
	for range 3 {
		must(t, e.PullRows(anyPull, 0, []uint64{1}, got[:2]))
	}
	push(2) // of key 1 it is kept
	must(t, e.PeekRows(0, []uint64{1, 2}, got))
	if got[0] != -1 || got[2] != 0 {
		t.Fatalf("rows %v", got)
	}
	e.stop(t)
	e = start(t, c, tc, s)
	must(t, e.PeekRows(0, []uint64{1}, got[:2]))
	if got[0] > -1 {
		t.Errorf("after a restart the row is %v", got[:2])
	}
	n := 0
	must(t, e.Each(context.Background(), 0, func(keys []uint64, _ []float32) error {
		n += len(keys)
		return nil
	}))
	if n == 0 {
		t.Error("no rows are handed out")
	}
	e.stop(t)
}

// Checkpoints of tables over two tiers are the beginning of a job of other servers.
func TestOtherServers(t *testing.T) {
	const keys = 9000
	s := counting(4)
	c := engine.Config{Trainers: 1, Mode: engine.Async, Durability: engine.Checkpoint, Dir: t.TempDir()}
	tc := Config{Dir: t.TempDir(), MemoryBytes: 512 << 10, Deltas: true}
	e := start(t, c, tc, s)
	k, g := make([]uint64, keys), make([]float32, 4*keys)
	for i := range k {
		k[i] = uint64(i)
		g[4*i] = float32(i)
	}
	for i := range 3 {
		lo, hi := keys/3*i, keys/3*(i+1)
		_, err := e.PushRows(0, uint64(i+1), 0, 1, k[lo:hi], g[4*lo:4*hi])
		must(t, err)
		_, err = e.Save(context.Background(), i > 0)
		must(t, err)
	}
	e.stop(t)
	found := 0
	for i := range 2 {
		c := engine.Config{Job: "next", Index: i, Servers: 2, Trainers: 1, Mode: engine.Async, Durability: engine.WAL, Dir: t.TempDir(), From: []string{c.Dir}}
		e := start(t, c, Config{Dir: t.TempDir(), MemoryBytes: 512 << 10, Deltas: true}, s)
		must(t, e.Each(context.Background(), 0, func(keys []uint64, weights []float32) error {
			for i, key := range keys {
				if weights[4*i] != -float32(key) {
					t.Fatalf("key %d is %v", key, weights[4*i:][:4])
				}
			}
			found += len(keys)
			return nil
		}))
		e.stop(t)
	}
	if found != keys {
		t.Errorf("two servers have %d rows of %d", found, keys)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []Config{{Dir: "x"}, {MemoryBytes: 1 << 20}, {DeleteAfter: -1}} {
		if ti, err := Open(c, counting(4)); err == nil {
			t.Errorf("%+v was accepted: %v", c, ti.Close())
		}
	}
	dir := t.TempDir()
	a, err := Open(Config{Dir: dir, MemoryBytes: 1 << 20}, counting(4))
	must(t, err)
	if b, err := Open(Config{Dir: dir, MemoryBytes: 1 << 20}, counting(4)); err == nil {
		t.Errorf("a directory in use was taken: %v", b.Close())
	}
	must(t, a.Close())
}

// Rows of a server that saves nothing take no memory for what deltas need, and a delta of
// one that was not told to keep it is whole.
func TestDeltasAreKeptWhereTheyAreWanted(t *testing.T) {
	const rows = 200_000
	var bytes [2]int64
	for i, deltas := range []bool{false, true} {
		c := engine.Config{Trainers: 1, Mode: engine.Async, Durability: engine.Checkpoint, Dir: t.TempDir()}
		e := start(t, c, Config{Deltas: deltas}, counting(4))
		keys, dst := make([]uint64, rows), make([]float32, 4*rows)
		for k := range keys {
			keys[k] = uint64(k)
		}
		must(t, e.PullRows(anyPull, 0, keys, dst))
		bytes[i] = e.Stats().Tables[0].Bytes
		_, err := e.Save(t.Context(), false)
		must(t, err)
		s, err := e.Save(t.Context(), true)
		must(t, err)
		if got := s.Base != 0; got != deltas {
			t.Errorf("deltas %v: saved %+v", deltas, s)
		}
		e.stop(t)
	}
	if more := bytes[1] - bytes[0]; more < 4*rows*9/10 || more > 4*rows*2 {
		t.Errorf("%d bytes more for deltas, want about %d", more, 4*rows)
	}
}

// A table's admission is the one that goes by its name, else its schema's, else that of all.
func TestAdmissionByTable(t *testing.T) {
	c := Config{Admission: shard.Admission{Count: 3}, TableAdmission: map[string]shard.Admission{"b": {Count: 5}}}
	for _, x := range []struct {
		table schema.Sparse
		want  int
	}{
		{schema.Sparse{Name: "a"}, 3}, {schema.Sparse{Name: "a", Admission: "count:4"}, 4}, {schema.Sparse{Name: "b", Admission: "count:4"}, 5},
	} {
		if got, err := c.admission(x.table); err != nil || got.Count != x.want {
			t.Errorf("%+v: %+v, %v", x.table, got, err)
		}
	}
	if _, err := c.admission(schema.Sparse{Name: "a", Admission: "often"}); err == nil {
		t.Error("no admission is one")
	}
	if _, err := Open(c, schema.Schema{Sparse: []schema.Sparse{{Name: "a"}}}); err == nil {
		t.Error("the admission of a table that there is not is taken")
	}
}
