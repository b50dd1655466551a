package trainer

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// manyTables are by ids, by keys of the same slots twice, and by the last two keys of another slot.
func manyTables(rule string) (schema.Schema, []Lookup) {
	sc := testSchema(rule, 0.5)
	for i, dim := range []int{1, 4, 2} {
		sc.Sparse = append(sc.Sparse, schema.Sparse{Name: fmt.Sprintf("keys%d", i), Dim: dim, Rule: schema.Rule{Name: []string{"sgd", rule, "adam"}[i], LR: 0.5}, Init: schema.Init{Name: "uniform", Value: 0.5}, Seed: 5})
	}
	bags := []int{-1, 0, -1}
	return sc, []Lookup{{Rows: tableRows}, {Slots: bags}, {Slots: slices.Clone(bags)}, {Slots: []int{0, 2}}}
}

// manyBatch is a batch of a step: ids, and bags in 3 slots of keys of any bits.
func manyBatch(step int) Batch {
	r := rand.New(rand.NewPCG(uint64(step), 9))
	b := Batch{IDs: batchOf(step, 0), N: 1 + r.IntN(7), Offsets: []int32{0}}
	for range 3 * b.N {
		for range r.IntN(5) {
			b.Keys = append(b.Keys, []uint64{0, math.MaxUint64, 1 << 32, r.Uint64N(9) << 60, r.Uint64N(30)}[r.IntN(5)])
		}
		b.Offsets = append(b.Offsets, int32(len(b.Keys)))
	}
	return b
}

// named are the keys of a batch that a table is looked up by, with their places among its ids or keys.
func named(l Lookup, b Batch) (keys []uint64, places []int) {
	if l.Rows > 0 {
		for i, id := range b.IDs {
			keys, places = append(keys, uint64(id)), append(places, i)
		}
	}
	for slot, most := range l.Slots {
		for s := range b.N {
			lo, hi := int(b.Offsets[slot*b.N+s]), int(b.Offsets[slot*b.N+s+1])
			if most >= 0 {
				lo = max(lo, hi-most)
			}
			for i := lo; i < hi; i++ {
				keys, places = append(keys, b.Keys[i]), append(places, i)
			}
		}
	}
	return keys, places
}

// Several tables, by ids and by keys, have each the rows of a naive twin in maps, moved by its own rule, whoever moves them.
func TestManyTables(t *testing.T) {
	leakcheck.Check(t)
	for _, every := range []int{0, 1, 3} {
		sc, lookups := manyTables("adagrad")
		mode := map[bool]engine.Mode{true: engine.Async, false: engine.Geo}[every == 0]
		j := newJob(t, engine.Config{Mode: mode, Servers: 2, Trainers: 1}, sc)
		tr := j.trainers(0, func(c *Config) { c.Lookups, c.GeoSteps, c.Copies = lookups, every, 1 })[0]
		tr.SetRate(0.5)
		type row struct {
			weights []float32
			state   [][]float32
		}
		twin := make([]map[uint64]*row, len(lookups))
		for step := range 13 {
			b := manyBatch(step)
			must(t, tr.Fetch(b))
			if step%2 == 0 && step < 12 && every != 0 {
				must(t, tr.Ask(manyBatch(step+1)))
			}
			for i, l := range lookups {
				if step == 0 {
					twin[i] = map[uint64]*row{}
				}
				dim := sc.Sparse[i].Dim
				rule, err := sc.Sparse[i].Rule.Rows()
				must(t, err)
				at, rows := tr.Rows(i)
				keys, places := named(l, b)
				seen := map[int32]uint64{}
				for k, key := range keys {
					place := at[places[k]]
					got := rows[int(place)*dim:][:dim]
					if was, ok := seen[place]; ok && was != key {
						t.Fatalf("table %d: keys %d and %d have one row", i, was, key)
					}
					if seen[place] = key; twin[i][key] == nil {
						twin[i][key] = &row{weights: slices.Clone(got)}
						for _, p := range rule.Parts(dim) {
							twin[i][key].state = append(twin[i][key].state, slices.Repeat([]float32{p.Initial}, p.Width))
						}
					}
					near(t, fmt.Sprintf("geo %d, step %d, table %d, key %d", every, step, i, key), got, twin[i][key].weights, every == 0)
				}
				at = nil
				var grads []float32
				for place := range seen {
					at = append(at, place)
				}
				slices.Sort(at)
				for _, place := range at {
					g := gradOf(step, i, int32(seen[place]%1000), dim, false)
					grads = append(grads, g...)
					w := twin[i][seen[place]]
					rule.(optim.Rated).SetLR(0.5)
					rule.UpdateRows(w.weights, w.state, dim, []int32{0}, g, 1)
				}
				must(t, tr.PushRows(i, at, grads))
			}
			must(t, tr.End(-1))
		}
		must(t, tr.PushDeltas())
		must(t, tr.cfg.Client.Flush(context.Background()))
		must(t, tr.PullDense())
		b := manyBatch(3)
		must(t, tr.Peek(b))
		for i, l := range lookups {
			keys, places := named(l, b)
			for k, key := range keys {
				at, rows := tr.Rows(i)
				dim := sc.Sparse[i].Dim
				near(t, fmt.Sprintf("peeked at, table %d, key %d", i, key), rows[int(at[places[k]])*dim:][:dim], twin[i][key].weights, every == 0)
			}
			want := len(twin[i])
			if every > 0 && sc.Sparse[i].Rule.Name != "sgd" && tr.rowState(i).Len() != want {
				t.Errorf("table %d: the state of %d rows is kept, of %d that were touched", i, tr.rowState(i).Len(), want)
			}
		}
		if every == 3 {
			checkStates(t, j, tr, lookups)
		}
	}
}

// checkStates hands the state of all tables to another trainer.
func checkStates(t *testing.T, j *job, from *Trainer, lookups []Lookup) {
	t.Helper()
	sc, _ := manyTables("adagrad")
	to := newJob(t, engine.Config{Mode: engine.Geo, Servers: 1, Trainers: 1}, sc).trainers(0, func(c *Config) { c.Lookups, c.GeoSteps, c.Copies = lookups, 3, 1 })[0]
	for i := range lookups {
		n := from.StateLen(i)
		if n == 0 {
			continue
		}
		all := make([]float32, n)
		must(t, from.ReadState(i)(all))
		write, err := to.WriteState(i, n)
		must(t, err)
		must(t, write(all))
		again := make([]float32, n)
		must(t, to.ReadState(i)(again))
		slices.Sort(all)
		if slices.Sort(again); to.StateLen(i) != n || !slices.Equal(all, again) {
			t.Errorf("table %d: its state is another one there", i)
		}
	}
}

// Shows and clicks of keys are counted as a map does.
func TestCountKeys(t *testing.T) {
	for step := range 20 {
		b := manyBatch(step)
		var labels []int32
		for i := range b.N {
			labels = append(labels, int32((i+step)%2))
		}
		for _, l := range []Lookup{{Slots: []int{-1, 0, 1}}, {Slots: []int{2}}} {
			var c keyIndex
			c.begin()
			mapped, err := l.add(&c, &b, nil)
			must(t, err)
			counts, want := make([]float32, 2*len(c.keys)), map[uint64][2]float32{}
			l.count(&b, mapped, labels, counts)
			keys, places := named(l, b)
			for i, key := range keys {
				w := want[key]
				w[0]++
				for s := range b.N {
					for slot := range 3 {
						if o := b.Offsets[slot*b.N+s:]; int32(places[i]) >= o[0] && int32(places[i]) < o[1] {
							w[1] += float32(labels[s])
						}
					}
				}
				want[key] = w
			}
			for row, key := range c.keys {
				if got := [2]float32(counts[2*row:]); got != want[key] {
					t.Errorf("key %d: %v, want %v", key, got, want[key])
				}
			}
			if len(c.keys) != len(want) {
				t.Errorf("%d rows, want %d", len(c.keys), len(want))
			}
		}
	}
}

// A batch that has not the slots of a table is told, with the table.
func TestLookupRefused(t *testing.T) {
	sc, lookups := manyTables("sgd")
	tr := newJob(t, engine.Config{Mode: engine.Async, Servers: 1, Trainers: 1}, sc).trainers(0, func(c *Config) { c.Lookups = lookups })[0]
	err := tr.Fetch(Batch{IDs: []int32{1}, Keys: []uint64{1}, Offsets: []int32{0, 1}, N: 1})
	if err == nil || !strings.Contains(err.Error(), `step 1: table "keys0": 1 samples have 2 offsets of bags: want 4 for 3 slots`) {
		t.Errorf("got %v", err)
	}
	if _, err := New(Config{Client: tr.cfg.Client, Schema: sc, Values: initial()}); err == nil || !strings.Contains(err.Error(), "4 tables with 0 lookups") {
		t.Errorf("got %v", err)
	}
}
