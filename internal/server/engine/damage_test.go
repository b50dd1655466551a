package engine

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Damage anywhere in a checkpoint is an error that names the file.
func TestDamagedCheckpoint(t *testing.T) {
	s := whole(2)
	c := Config{Trainers: 1, Mode: Async, Durability: Checkpoint, Dir: t.TempDir()}
	e := open(t, c, s)
	cl := newClient(t, e, 0)
	cl.begin([][]float32{make([]float32, 40)})
	cl.rows(0, []uint64{1, 2, 3}, make([]float32, 6))
	saved, err := e.Save(context.Background(), false)
	must(t, err)
	must(t, e.Close())
	for _, file := range []string{"MANIFEST", "dense-0", "table-0/memory"} {
		path := filepath.Join(saved.Dir, file)
		good, err := os.ReadFile(path)
		must(t, err)
		for _, at := range []int{0, 2, len(good) / 2, len(good) - 1} {
			bad := slices.Clone(good)
			bad[at] ^= 4
			must(t, os.WriteFile(path, bad, 0o666))
			if _, err := Open(c, s); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s changed at %d: %v", file, at, err)
			}
		}
		must(t, os.WriteFile(path, good[:len(good)-2], 0o666))
		if _, err := Open(c, s); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s cut short: %v", file, err)
		}
		must(t, os.WriteFile(path, good, 0o666))
	}
	must(t, open(t, c, s).Err())
}

// Without a newest checkpoint that is damaged the one before it and the log come to the same. Nothing is
// left out silently.
func TestDamagedNewest(t *testing.T) {
	s := mixed()
	c := Config{Trainers: 1, Mode: Async, Durability: WAL, Dir: t.TempDir()}
	never := open(t, Config{Trainers: 1, Mode: Async, Durability: None}, s)
	e := open(t, c, s)
	rng := rand.New(rand.NewPCG(6, 6))
	a, b := newTrainer(t, []*Engine{never}, 0), newTrainer(t, []*Engine{e}, 0)
	a.sessions[0][0].begin(initials(s))
	b.sessions[0][0].begin(initials(s))
	var last Saved
	for range 3 {
		g := draw(s, rng, 100)
		for _, tr := range []*trainer{a, b} {
			tr.push(s, g)
			tr.each(func(l *client) { l.clock(-1) })
		}
		var err error
		last, err = e.Save(context.Background(), false)
		must(t, err)
	}
	must(t, e.Close())
	must(t, os.Truncate(filepath.Join(last.Dir, "dense-0"), 100))
	_, err := Open(c, s)
	want := name("number %d, move the folder of number %d away: the log has what came after it", last.Number-1, last.Number)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%q is not in %v", want, err)
	}
	must(t, os.Rename(last.Dir, filepath.Join(t.TempDir(), "away")))
	sameEngines(t, never, open(t, c, s))
}

// What cannot be saved leaves everything as it was.
func TestSaveFails(t *testing.T) {
	s := whole(2)
	c := Config{Trainers: 1, Mode: Async, Durability: WAL, Dir: t.TempDir()}
	e := open(t, c, s)
	cl := newClient(t, e, 0)
	cl.begin([][]float32{make([]float32, 40)})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cl.rows(0, []uint64{1}, []float32{1, 1})
	if _, err := e.Save(ctx, false); !errors.Is(err, context.Canceled) {
		t.Fatalf("a save that was cancelled: %v", err)
	}
	must(t, e.Err())
	entries, err := os.ReadDir(filepath.Join(c.Dir, "checkpoints"))
	must(t, err)
	if len(entries) != 1 { // Open's
		t.Errorf("it left %v", entries)
	}
	cl.rows(0, []uint64{1}, []float32{1, 1})
	_, err = e.Save(context.Background(), false)
	must(t, err)
	if _, err := open(t, Config{Trainers: 1, Mode: Async, Durability: None}, s).Save(context.Background(), false); err == nil {
		t.Error("saved without durability")
	}
	if _, err := e.Shrink(context.Background(), 0); err == nil {
		t.Error("shrunk by no days")
	}
	_, err = e.Shrink(context.Background(), 1)
	must(t, err)
	st := e.Stats()
	if st.Log == nil || st.Tables[0].Rows != 1 || st.Arrays[0].Set != 40 || st.Sessions[0].Keys != 2 {
		t.Errorf("stats %+v", st)
	}
	if _, err := json.Marshal(st); err != nil {
		t.Error(err)
	}
}

// A new server next to one of another job is refused; one of the same job, or with a folder, is
// not.
func TestCheckSiblings(t *testing.T) {
	dir, s := t.TempDir(), whole(2)
	first, second := filepath.Join(dir, "server-0"), filepath.Join(dir, "server-1")
	must(t, CheckSiblings(first, "a"))
	must(t, open(t, Config{Job: "a", Servers: 2, Trainers: 2, Mode: Async, Durability: WAL, Dir: first}, s).Close())
	if err := CheckSiblings(second, "b"); err == nil || !strings.Contains(err.Error(), IdentityPath(first)+": the folder is of another job, a, not b") {
		t.Errorf("a server of another job: %v", err)
	}
	must(t, CheckSiblings(first, "b")) // Open compares the folder's own job
	must(t, CheckSiblings(second, "a"))
}

// A directory of another server, job or schema is refused, and stays as it is.
func TestForeignDirectory(t *testing.T) {
	s := whole(2)
	c := Config{Job: "a", Servers: 2, Trainers: 2, Mode: Async, Durability: WAL, Dir: t.TempDir()}
	e := open(t, c, s)
	if _, err := Open(c, s); !errors.Is(err, dirlock.ErrHeld) {
		t.Errorf("a directory in use: %v", err)
	}
	must(t, e.Close())
	for i, change := range []func(c *Config, s *schema.Schema){
		func(c *Config, _ *schema.Schema) { c.Job = "b" },
		func(c *Config, _ *schema.Schema) { c.Index = 1 },
		func(c *Config, _ *schema.Schema) { c.Servers = 3 },
		func(c *Config, _ *schema.Schema) { c.Trainers = 3 },
		func(c *Config, _ *schema.Schema) { c.Sessions = 2 },
		func(c *Config, _ *schema.Schema) { c.Mode = BSP },
		func(c *Config, _ *schema.Schema) { c.Durability = Checkpoint },
		func(_ *Config, s *schema.Schema) { s.Sparse[0].Dim = 3 },
	} {
		c, s := c, whole(2)
		change(&c, &s)
		if _, err := Open(c, s); err == nil || !strings.Contains(err.Error(), "JOB") {
			t.Errorf("change %d: %v", i, err)
		}
	}
	must(t, open(t, c, s).Err())
}
