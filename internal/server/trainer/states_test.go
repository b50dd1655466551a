package trainer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
)

// A trainer that takes another's place, with the state of its rows in parts of any length, does the same steps from there
// on, and exchanges copies in the same turn.
func TestStatesMove(t *testing.T) {
	leakcheck.Check(t)
	const every, before, steps = 3, 7, 20
	for _, rule := range []string{"adagrad", "adam", "sgd"} {
		for _, part := range []int{1, 7, 100, 1 << 20} {
			var rows, dense [2][]float32
			for moved := range 2 {
				dir := t.TempDir()
				j := newJob(t, engine.Config{Mode: engine.Geo, Servers: 1, Trainers: 1, Durability: engine.Checkpoint, Dir: dir}, testSchema(rule, 1))
				tr := j.trainers(0, func(c *Config) { c.GeoSteps, c.Copies = every, 1 })[0]
				tr.SetRate(0.5)
				for step := range steps {
					if step == before {
						must(t, tr.PushDeltas())
						must(t, tr.cfg.Client.Flush(context.Background()))
						must(t, tr.PullDense())
						if moved == 1 {
							tr = handOver(t, tr, part, dir)
						}
					}
					oneStep(t, tr, step)
				}
				must(t, tr.PushDeltas())
				must(t, tr.cfg.Client.Flush(context.Background()))
				must(t, tr.PullDense())
				rows[moved], dense[moved] = all(t, tr), slices.Clone(tr.cfg.Values)
			}
			if !slices.Equal(rows[0], rows[1]) || !slices.Equal(dense[0], dense[1]) {
				t.Errorf("%s, parts of %d: it does not go on as it would have", rule, part)
			}
		}
	}
}

func oneStep(t *testing.T, tr *Trainer, step int) {
	t.Helper()
	ids := batchOf(step, 0)
	mapped, _, err := fetch(tr, ids)
	must(t, err)
	at := different(mapped)
	var grads []float32
	for _, m := range at {
		grads = append(grads, gradOf(step, 0, ids[slices.Index(mapped, m)], rowDim, false)...)
	}
	must(t, tr.PushRows(0, at, grads))
	for i, g := range gradOf(step, 0, -1, denseLen, false) {
		tr.cfg.Values[i] -= 0.5 * g
	}
	must(t, tr.End(-1))
}

// handOver gives the place of a trainer, with what its server has saved, to one of another job.
func handOver(t *testing.T, old *Trainer, part int, dir string) *Trainer {
	t.Helper()
	numbers, err := old.cfg.Client.Save(old.step, 1)
	must(t, err)
	next := newJob(t, engine.Config{Mode: engine.Geo, Servers: 1, Trainers: 1, From: []string{dir}, FromNumbers: numbers}, old.cfg.Schema)
	tr := next.trainers(0, func(c *Config) { c.GeoSteps, c.Copies, c.Done = old.cfg.GeoSteps, 1, old.step-1 })[0]
	tr.SetRate(0.5)
	n := old.StateLen(0)
	read := old.ReadState(0)
	if n == 0 {
		if _, err := tr.WriteState(0, 3); old.geo.tables[0].rowState != nil || err == nil || !strings.Contains(err.Error(), "this trainer keeps none") {
			t.Errorf("a rule without state: %v", err)
		}
		return tr
	}
	write, err := tr.WriteState(0, n)
	must(t, err)
	for left := n; left > 0; left -= part {
		x := make([]float32, min(part, left))
		must(t, read(x))
		must(t, write(x))
	}
	if err := read(make([]float32, 1)); err == nil || tr.StateLen(0) != n {
		t.Errorf("%d values of %d, and more: %v", tr.StateLen(0), n, err)
	}
	return tr
}

// What is no state of rows is refused.
func TestStatesRefused(t *testing.T) {
	j := newJob(t, engine.Config{Mode: engine.Geo, Servers: 1, Trainers: 1}, testSchema("adagrad", 1))
	tr := j.trainers(0, func(c *Config) { c.GeoSteps, c.Copies = 1, 1 })[0]
	if _, err := tr.WriteState(0, 2+rowDim+1); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("want a multiple of %d", 2+rowDim)) {
		t.Errorf("got %v", err)
	}
	for _, key := range [][2]float32{{0, tableRows}, {-1, 0}, {0, 1 << 16}, {1, 0}} {
		write, err := tr.WriteState(0, 2+rowDim)
		must(t, err)
		if err := write([]float32{key[0], key[1], 1, 1, 1}); err == nil || !strings.Contains(err.Error(), "the state of a row with the key") {
			t.Errorf("key %v: %v", key, err)
		}
	}
	plain := newJob(t, engine.Config{Mode: engine.Async, Servers: 1, Trainers: 1}, testSchema("adagrad", 1)).trainers(0, nil)[0]
	if plain.StateLen(0) != 0 {
		t.Error("a trainer without copies has state")
	}
}
