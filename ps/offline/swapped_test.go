package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/tiers"
	"github.com/ringo-ml/ringo/ps/schema"
)

// twice has two tables and two arrays that differ in their names alone.
func twice() schema.Schema {
	one := schema.Rule{Name: "adagrad", LR: 1}
	return schema.Schema{
		Sparse: []schema.Sparse{{Name: "a", Dim: 2, Rule: one}, {Name: "b", Dim: 2, Rule: one}},
		Dense:  []schema.Dense{{Name: "x", Len: 256, Rule: one}, {Name: "y", Len: 256, Rule: one}},
	}
}

// openTwice opens server index of 2, which is its own only trainer.
func openTwice(dir string, index int) (*engine.Engine, error) {
	tier, err := tiers.Open(tiers.Config{Deltas: true, Admission: shard.Admission{Count: 2, FilterBytes: 4096}}, twice())
	if err != nil {
		return nil, err
	}
	return engine.Open(engine.Config{
		Job: "one", Index: index, Servers: 2, Trainers: 1, Mode: engine.Async, Durability: engine.WAL, Dir: ServerDir(dir, index),
		MaxRows: 1 << 12, LogFloor: 4 << 10, LogBuffer: 2 << 10, Make: tier.Make,
	}, twice())
}

// saveTwice runs such a server: it saves a whole checkpoint and a delta, and its log goes on.
func saveTwice(t *testing.T, dir string, index int) {
	t.Helper()
	e, err := openTwice(dir, index)
	must(t, err)
	seq := uint64(0)
	step := func(do func(seq uint64) (engine.Ticket, error)) {
		seq++
		ticket, err := do(seq)
		must(t, err)
		must(t, e.Durable(ticket))
	}
	lo, hi := schema.Cut(256, 2, index)
	for array := range 2 {
		step(func(seq uint64) (engine.Ticket, error) {
			return e.SetDense(0, seq, array, lo, make([]float32, hi-lo))
		})
	}
	for round := range uint64(3) {
		for table := range 2 {
			keys := []uint64{1 + round, 2 + round, 90 + uint64(index), 70 + uint64(table)}
			for range 2 {
				must(t, e.PullRows(rows.PullID{}, table, keys, make([]float32, 8)))
			}
			step(func(seq uint64) (engine.Ticket, error) {
				return e.PushRows(0, seq, table, round+1, keys, []float32{1, 2, 3, 4, 5, 6, 7, float32(round)})
			})
			step(func(seq uint64) (engine.Ticket, error) {
				return e.PushDense(0, seq, table, round+1, lo, make([]float32, hi-lo))
			})
		}
		step(func(seq uint64) (engine.Ticket, error) { return e.Clock(0, seq, round+1, -1) })
		if round < 2 {
			_, err := e.Save(context.Background(), round > 0)
			must(t, err)
		}
	}
	must(t, e.Close())
}

// read reads all that a job's servers have saved, as a person does who looks, and as another job.
func read(dir string) error {
	j, err := Open(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range j.Servers {
		errs = append(errs, s.Lost)
	}
	for i := range 2 {
		errs = append(errs, j.Each(context.Background(), i, func([]uint64, []float32) error { return nil }), j.Array(context.Background(), i, make([]float32, 256)))
	}
	return errors.Join(errs...)
}

// A file of another server, table, checkpoint or job is rejected by whoever reads it, with an error that says of what it
// is and what belongs in its place.
func TestSwappedFiles(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()} // jobs that differ in nothing
	var folders [2][2]string
	for i, dir := range dirs {
		for server := range 2 {
			saveTwice(t, dir, server)
			id, err := engine.IdentityOf(ServerDir(dir, server))
			must(t, err)
			folders[i][server] = id.Folder
		}
		must(t, read(dir))
	}
	swaps := 0
	must(t, filepath.WalkDir(ServerDir(dirs[0], 0), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "LOCK" {
			return err
		}
		name, err := filepath.Rel(dirs[0], path)
		must(t, err)
		if strings.Contains(name, "00000002/dense") {
			return nil // the delta has all of an array: it is not read
		}
		for other, source := range map[string]string{
			"server 0 of 2|server 1 of 2":       filepath.Join(dirs[0], strings.Replace(name, "server-0", "server-1", 1)),
			folders[0][0] + "|" + folders[1][0]: filepath.Join(dirs[1], name),
			"table-0|table-1":                   filepath.Join(dirs[0], strings.Replace(name, "table-0", "table-1", 1)),
			"dense-0|dense-1":                   filepath.Join(dirs[0], strings.Replace(name, "dense-0", "dense-1", 1)),
			"checkpoint 2|checkpoint 3":         filepath.Join(dirs[0], strings.Replace(name, "00000002/", "00000003/", 1)),
		} {
			if source == path {
				continue
			}
			swaps++
			swapped(t, dirs[0], name, source, other)
		}
		return nil
	}))
	if swaps < 40 {
		t.Errorf("only %d files were swapped", swaps)
	}
}

// swapped puts another file in the place of one, reads, and wants an error with both identities.
func swapped(t *testing.T, dir, name, source, identities string) {
	t.Helper()
	to := t.TempDir()
	must(t, os.CopyFS(to, os.DirFS(dir)))
	b, err := os.ReadFile(source)
	must(t, err)
	was, err := os.ReadFile(filepath.Join(to, name))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(to, name), b, 0o666))
	e, opened := openTwice(to, 0)
	if opened == nil {
		must(t, e.Close())
	}
	for who, err := range map[string]error{"server": opened, "reader": read(to)} {
		has, want, _ := strings.Cut(identities, "|")
		switch {
		case err == nil:
			t.Errorf("%s: %s in the place of %s was taken", who, source, name)
		case filepath.Base(name) == "MANIFEST" && strings.Contains(err.Error(), "checkpoint-000000000002/MANIFEST is damaged: it is the manifest of checkpoint 3"):
		case filepath.Base(name) == "JOB" && strings.Contains(err.Error(), "server-0"):
		case strings.HasPrefix(filepath.Base(name), "dense") && strings.Contains(err.Error(), fmt.Sprintf("%s is damaged: %d bytes, the manifest says %d", filepath.Join(to, name), len(b), len(was))):
		case !strings.Contains(err.Error(), has) || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %s in the place of %s: %v, want it to name %q and %q", who, source, name, err, has, want)
		}
	}
}
