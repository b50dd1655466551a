package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/tiers"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/ps/schema"
)

const (
	dim  = 4
	keys = 3000
	size = 333 // of the array
)

// anyPull is the id of pulls that do not come again.
var anyPull rows.PullID

func layout(rate float64) schema.Schema {
	return schema.Schema{
		Sparse: []schema.Sparse{{Name: "items", Dim: dim, Rule: schema.Rule{Name: "adagrad", LR: rate}, Init: schema.Init{Name: "uniform", Value: 0.5}, Seed: 3}},
		Dense:  []schema.Dense{{Name: "net", Len: size, Rule: schema.Rule{Name: "adam", LR: rate}}},
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// job is one trainer with its servers, in bsp.
type job struct {
	t       *testing.T
	dir     string
	servers []*engine.Engine
	tiers   []*tiers.Tiers
	seq     []uint64
	step    uint64
}

// begin opens a job's servers; with memory their rows lie below it, too.
func begin(t *testing.T, n int, durability engine.Durability, from []string, memory int64) *job {
	t.Helper()
	j := &job{t: t, dir: t.TempDir(), seq: make([]uint64, n)}
	for i := range n {
		below := tiers.Config{Deltas: true}
		if memory > 0 {
			below.Dir, below.MemoryBytes = Below(ServerDir(j.dir, i)), memory
		}
		tier, err := tiers.Open(below, layout(0.1))
		must(t, err)
		c := engine.Config{Job: t.Name(), Index: i, Servers: n, Trainers: 1, Mode: engine.BSP, Durability: durability, From: from, Make: tier.Make}
		if durability != engine.None {
			c.Dir = ServerDir(j.dir, i)
		}
		e, err := engine.Open(c, layout(0.1))
		must(t, err)
		j.servers, j.tiers = append(j.servers, e), append(j.tiers, tier)
	}
	t.Cleanup(j.end)
	return j
}

func (j *job) end() {
	for i, e := range j.servers {
		_ = e.Close() // a second time where the test has
		_ = j.tiers[i].Close()
	}
	j.servers, j.tiers = nil, nil
}

// change makes the next change of server i's session.
func (j *job) change(i int, do func(e *engine.Engine, seq uint64) (engine.Ticket, error)) {
	j.t.Helper()
	j.seq[i]++
	ticket, err := do(j.servers[i], j.seq[i])
	must(j.t, err)
	must(j.t, j.servers[i].Durable(ticket))
}

func (j *job) set(values []float32) {
	for i := range j.servers {
		lo, hi := schema.Cut(size, len(j.servers), i)
		j.change(i, func(e *engine.Engine, seq uint64) (engine.Ticket, error) {
			return e.SetDense(0, seq, 0, lo, values[lo:hi])
		})
	}
}

// train makes steps whose gradients depend on their number alone.
func (j *job) train(numbers ...uint64) {
	j.t.Helper()
	for _, number := range numbers {
		r := rand.New(rand.NewPCG(number, 1))
		all, grads := r.Perm(keys)[:400], make([]float32, 400*dim+size)
		for i := range grads {
			grads[i] = float32(r.NormFloat64())
		}
		j.step++
		for i, e := range j.servers {
			var own []uint64
			var g []float32
			for k, key := range all {
				if schema.Owner(uint64(key), len(j.servers)) == i {
					own, g = append(own, uint64(key)), append(g, grads[k*dim:][:dim]...)
				}
			}
			lo, hi := schema.Cut(size, len(j.servers), i)
			must(j.t, e.PullRows(anyPull, 0, own, make([]float32, len(g))))
			j.change(i, func(e *engine.Engine, seq uint64) (engine.Ticket, error) {
				return e.PushRows(0, seq, 0, j.step, own, g)
			})
			j.change(i, func(e *engine.Engine, seq uint64) (engine.Ticket, error) {
				return e.PushDense(0, seq, 0, j.step, lo, grads[400*dim:][lo:hi])
			})
			j.change(i, func(e *engine.Engine, seq uint64) (engine.Ticket, error) { return e.Clock(0, seq, j.step, -1) })
		}
	}
}

// values are all parameters.
func (j *job) values() []float32 {
	j.t.Helper()
	out := make([]float32, keys*dim+size)
	for i, e := range j.servers {
		for key := range uint64(keys) {
			if schema.Owner(key, len(j.servers)) == i {
				must(j.t, e.PeekRows(0, []uint64{key}, out[key*dim:][:dim]))
			}
		}
		lo, hi := schema.Cut(size, len(j.servers), i)
		must(j.t, e.PullDense(0, lo, out[keys*dim:][lo:hi]))
	}
	return out
}

func (j *job) save(delta bool) {
	j.t.Helper()
	for _, e := range j.servers {
		_, err := e.Save(context.Background(), delta)
		must(j.t, err)
	}
}

func initial() []float32 {
	out := make([]float32, size)
	for i := range out {
		out[i] = float32(i)
	}
	return out
}

// Jobs of 2, 3 and 1 servers, each of which begins with what the one before has saved, come to the bits of
// one that nothing has disturbed: optimizer state goes along. What they saved holds the same rows.
func TestOtherServers(t *testing.T) {
	one := begin(t, 1, engine.None, nil, 0)
	one.set(initial())
	var from []string
	for round, n := range []int{2, 3, 1} {
		j := begin(t, n, engine.Checkpoint, from, []int64{2 << 20, 0, 0}[round])
		if round == 0 {
			j.set(initial())
		}
		step := uint64(4 * round)
		for _, x := range []*job{one, j} {
			x.train(step, step+1)
		}
		j.save(false)
		for _, x := range []*job{one, j} {
			x.train(step+2, step+3)
		}
		j.save(true)
		want := one.values()
		if !slices.Equal(j.values(), want) {
			t.Errorf("%d servers have other values", n)
		}
		j.end()
		found, err := Begin(j.dir)
		must(t, err)
		from = found.Dirs()
		least, most := found.Steps()
		if len(found.Servers) != n || len(found.Servers[0].Chain) != 2 || least != 4 || most != 4 {
			t.Errorf("found %d servers, steps %d to %d", len(found.Servers), least, most)
		}
		rows := int64(0)
		must(t, found.Each(context.Background(), 0, func(keys []uint64, weights []float32) error {
			for i, key := range keys {
				if !slices.Equal(weights[i*dim:][:dim], want[key*dim:][:dim]) {
					t.Fatalf("%d servers: key %d differs", n, key)
				}
			}
			rows += int64(len(keys))
			return nil
		}))
		if rows != found.Rows(0) || rows < 400 {
			t.Errorf("%d rows, the checkpoints say %d", rows, found.Rows(0))
		}
	}
}

// What only logs have is an error until it is recovered, once servers are not running any more.
func TestRecover(t *testing.T) {
	for _, memory := range []int64{0, 2 << 20} {
		one, j := begin(t, 1, engine.None, nil, 0), begin(t, 2, engine.WAL, nil, memory)
		for _, x := range []*job{one, j} {
			x.set(initial())
			x.train(1, 2, 3)
		}
		if err := Recover(context.Background(), j.dir, Recovery{}); !errors.Is(err, dirlock.ErrHeld) {
			t.Errorf("servers that are running: %v", err)
		}
		j.end() // as if killed: nothing is saved
		if _, err := Begin(j.dir); err == nil || !strings.Contains(err.Error(), "records ahead of its newest checkpoint: `ringo ps recover "+j.dir) || strings.Count(err.Error(), "ahead") != 2 {
			t.Errorf("got %v", err)
		}
		var said []string
		r := Recovery{MemoryBytes: memory, Report: func(line string) { said = append(said, line) }}
		must(t, Recover(context.Background(), j.dir, r))
		must(t, Recover(context.Background(), j.dir, r))
		if len(said) != 8 || !strings.HasPrefix(said[0], "server 0 of 2: its log ends with record ") || !strings.HasSuffix(said[1], ", where it was closed in good order") ||
			!strings.Contains(said[2], "server 0 of 2: checkpoint 2 has") || said[6] != "server 0 of 2: its checkpoint 2 has all" {
			t.Errorf("said %q", said)
		}
		found, err := Begin(j.dir)
		must(t, err)
		next := begin(t, 1, engine.None, found.Dirs(), 0)
		if !slices.Equal(next.values(), one.values()) {
			t.Error("the values are others")
		}
	}
}

// A log that was cut at its end is not taken for one that a crash cut short: nothing is recovered until a person has seen what
// is lost. Where that cannot be known it is said.
func TestLostEnd(t *testing.T) {
	j := begin(t, 2, engine.WAL, nil, 0)
	j.set(initial())
	j.train(1, 2, 3)
	j.end()
	dir := engine.LogDir(ServerDir(j.dir, 1))
	found, err := filepath.Glob(filepath.Join(dir, "segment-*"))
	must(t, err)
	path, mark := found[len(found)-1], filepath.Join(dir, "acknowledged")
	whole, err := os.ReadFile(path)
	must(t, err)
	recover := func() (said []string, err error) {
		err = Recover(context.Background(), j.dir, Recovery{Report: func(line string) { said = append(said, line) }})
		return said, err
	}
	for size, fault := range map[int]string{
		len(whole) / 3: "server 1 of 2: the log has lost its end: it ends with record 3, at byte ",
		len(whole) - 1: "but records up to 11 had been acknowledged",
		132:            "server 1 of 2: the log has lost its end: it ends with record 0",
	} {
		must(t, os.WriteFile(path, whole[:size], 0o666))
		said, err := recover()
		var lost *wal.LostError
		if !errors.As(err, &lost) || !strings.Contains(err.Error(), fault) || len(said) != 1 {
			t.Errorf("cut to %d of %d bytes: %v, said %q", size, len(whole), err, said)
		}
		if _, err := Begin(j.dir); !errors.As(err, &lost) {
			t.Errorf("another job begins: %v", err)
		}
		if b, err := os.ReadFile(path); err != nil || len(b) != size {
			t.Errorf("the file was changed to %d bytes, %v", len(b), err)
		}
	}
	must(t, os.WriteFile(path, whole[:132], 0o666))
	must(t, os.Remove(mark))
	if _, err := recover(); err == nil || !strings.Contains(err.Error(), "the log ends with record 0, but had 1 when checkpoint 1 was written") {
		t.Errorf("without a mark, before the checkpoint: %v", err)
	}
	must(t, os.WriteFile(path, whole[:len(whole)/3], 0o666))
	said, err := recover()
	if err != nil || !strings.Contains(said[1], "; whether records after it are lost cannot be known: no file acknowledged says what was acknowledged; the ") {
		t.Errorf("without a mark: %v, said %q", err, said)
	}
	must(t, os.RemoveAll(dir))
	if said, err = recover(); err != nil || !strings.Contains(said[1], "server 1 of 2: it has no log any more: whether anything came after its checkpoint 2 cannot be known") {
		t.Errorf("without a log: %v, said %q", err, said)
	}
}

func TestTables(t *testing.T) {
	j := begin(t, 1, engine.Checkpoint, nil, 0)
	j.save(false)
	found, err := Open(j.dir)
	must(t, err)
	for name, want := range map[string]string{"items": "", "": "", "users": `no table "users": it has "items"`} {
		if i, err := found.Table(name); i != 0 || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d, %v", name, i, err)
		}
	}
}

// Faults name the folder or file, all together; nothing is changed.
func TestFaults(t *testing.T) {
	at := func(j *job, parts ...string) string { return filepath.Join(append([]string{j.dir}, parts...)...) }
	newest := filepath.Join("checkpoints", "checkpoint-000000000001")
	three, two := begin(t, 3, engine.Checkpoint, nil, 0), begin(t, 2, engine.Checkpoint, nil, 0)
	three.save(false)
	two.save(false)
	for name, c := range map[string]struct {
		harm func(j, other *job) error
		want []string
	}{
		"missing":   {func(j, _ *job) error { return os.RemoveAll(at(j, "server-1")) }, []string{"server-1 is missing: the job had 3 servers"}},
		"no folder": {func(j, _ *job) error { return os.RemoveAll(j.dir) }, []string{"no such file"}},
		"empty":     {func(j, _ *job) error { return errors.Join(os.RemoveAll(j.dir), os.Mkdir(j.dir, 0o777)) }, []string{"has no folder server-0: want the folder of a job's servers"}},
		"no owner": {func(j, _ *job) error {
			return errors.Join(os.Remove(at(j, "server-0", "JOB")), os.Remove(at(j, "server-2", "JOB")))
		}, []string{"server-0 is no server's folder", "server-2 is no server's folder"}},
		"damaged owner": {func(j, _ *job) error {
			path := at(j, "server-1", "JOB")
			b, err := os.ReadFile(path)
			schema := regexp.MustCompile(`"[0-9a-f]{64}"`) // its hash, of which no error shows that it is damaged
			return errors.Join(err, os.WriteFile(path, schema.ReplaceAll(b, []byte(`"`+strings.Repeat("0", 64)+`"`)), 0o666))
		}, []string{"server-1/JOB are of different servers, or one of them is damaged"}},
		"renamed": {func(j, _ *job) error {
			return errors.Join(os.RemoveAll(at(j, "server-1")), os.Rename(at(j, "server-2"), at(j, "server-1")))
		}, []string{"is the folder of server 2: it was renamed"}},
		"other job": {func(j, o *job) error {
			return errors.Join(os.RemoveAll(at(j, "server-0")), os.Rename(at(o, "server-0"), at(j, "server-0")))
		}, []string{"want one job's"}},
		"none":        {func(j, _ *job) error { return os.RemoveAll(at(j, "server-0", "checkpoints")) }, []string{"no checkpoint"}},
		"manifest":    {func(j, _ *job) error { return flip(at(j, "server-0", newest, "MANIFEST"), 40) }, []string{"MANIFEST is damaged"}},
		"no manifest": {func(j, _ *job) error { return os.Remove(at(j, "server-0", newest, "MANIFEST")) }, []string{"MANIFEST: no checkpoint"}},
		"file gone":   {func(j, _ *job) error { return os.Remove(at(j, "server-1", newest, "dense-0")) }, []string{"lacks a file"}},
	} {
		j, other := &job{dir: filepath.Join(t.TempDir(), "a")}, &job{dir: filepath.Join(t.TempDir(), "b")}
		must(t, os.CopyFS(j.dir, os.DirFS(three.dir)))
		must(t, os.CopyFS(other.dir, os.DirFS(two.dir)))
		must(t, c.harm(j, other))
		_, err := Open(j.dir)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", name, want, err)
			}
		}
	}
	// Rows are checked when they are read, with file and offset.
	j := begin(t, 1, engine.Checkpoint, nil, 0)
	j.set(initial())
	j.train(1)
	j.save(false)
	j.end()
	found, err := Open(j.dir)
	must(t, err)
	path := at(j, "server-0", newest, "table-0", "memory")
	must(t, flip(path, 5000))
	var d *shard.DamageError
	err = found.Each(context.Background(), 0, func([]uint64, []float32) error { return nil })
	if !errors.As(err, &d) || d.Path != path || d.Offset == 0 || !strings.Contains(err.Error(), fmt.Sprintf("%s is damaged at offset %d", path, d.Offset)) {
		t.Errorf("got %v", err)
	}
	if _, err := Open(filepath.Join(j.dir, "server-0")); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a server's folder: %v", err)
	}
}

// flip changes a bit of a file.
func flip(path string, at int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[at%len(b)] ^= 1
	return os.WriteFile(path, b, 0o666)
}

// An array is whole, whatever number of servers had it, and one of another length or number is refused.
func TestArray(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		j := begin(t, n, engine.Checkpoint, nil, 0)
		j.set(initial())
		j.train(1, 2)
		j.save(false)
		want := j.values()[keys*dim:]
		j.end()
		saved, err := Open(j.dir)
		must(t, err)
		got := make([]float32, size)
		must(t, saved.Array(context.Background(), 0, got))
		if !slices.Equal(got, want) {
			t.Errorf("%d servers: the array has other values", n)
		}
		for _, c := range []struct{ array, len int }{{0, size - 1}, {0, size + 1}, {1, size}} {
			if err := saved.Array(context.Background(), c.array, make([]float32, c.len)); err == nil {
				t.Errorf("%d servers: %d values of array %d are read, of %d of one array", n, c.len, c.array, size)
			}
		}
		file := filepath.Join(saved.Servers[n-1].newest().Dir, "dense-0")
		must(t, flip(file, 300))
		if err := saved.Array(context.Background(), 0, got); err == nil {
			t.Errorf("%d servers: a damaged array is read", n)
		}
	}
}
