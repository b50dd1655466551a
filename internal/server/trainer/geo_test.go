package trainer

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// naive are servers and trainers with copies, in plain maps, one thing after the other.
type naive struct {
	dense, rows []float32 // the servers'
	all         []*naiveTrainer
}

type naiveTrainer struct {
	of          *naive
	rule        optim.RowRule
	dense, base []float32
	rows        map[int32][2][]float32 // now, and as they came
	state       map[int32][][]float32
}

// touch takes rows of which there are no copies.
func (n *naiveTrainer) touch(ids []int32) {
	for _, id := range ids {
		if _, ok := n.rows[id]; !ok {
			row := n.of.rows[int(id)*rowDim:][:rowDim]
			n.rows[id] = [2][]float32{slices.Clone(row), slices.Clone(row)}
		}
	}
}

// move moves a row.
func (n *naiveTrainer) move(id int32, grad []float32) {
	if n.state[id] == nil {
		n.state[id] = [][]float32{}
		for _, p := range n.rule.Parts(rowDim) {
			n.state[id] = append(n.state[id], slices.Repeat([]float32{p.Initial}, p.Width))
		}
	}
	n.rule.UpdateRows(n.rows[id][0], n.state[id], rowDim, []int32{0}, grad, 1)
}

// exchange adds by how much copies have moved, and takes what the servers have.
func (n *naiveTrainer) exchange() {
	copies := float32(len(n.of.all))
	for i := range n.dense {
		n.of.dense[i] += (n.dense[i] - n.base[i]) / copies
	}
	for id, row := range n.rows {
		for i := range rowDim {
			n.of.rows[int(id)*rowDim+i] += (row[0][i] - row[1][i]) / copies
		}
	}
	clear(n.rows)
	copy(n.dense, n.of.dense)
	copy(n.base, n.of.dense)
}

// gradOf is a gradient of a row or, with id -1, of dense values. Where it is dyadic sums are exact.
func gradOf(step, rank int, id int32, n int, dyadic bool) (g []float32) {
	r := rand.New(rand.NewPCG(uint64(step), uint64(rank)<<32|uint64(uint32(id))))
	for range n {
		v := float32(r.NormFloat64())
		if dyadic {
			v = float32(r.IntN(65)-32) / 64
		}
		g = append(g, v)
	}
	return g
}

// follow trains with copies, trainer after trainer, and compares each with its twin at every step.
func follow(t *testing.T, sc schema.Schema, trainers, every, steps int, ahead, dyadic bool) (got []*Trainer, want *naive) {
	t.Helper()
	rule := sc.Sparse[0].Rule.Name
	j := newJob(t, engine.Config{Mode: engine.Geo, Servers: 2, Trainers: trainers}, sc)
	want = &naive{dense: initial()}
	for rank := range trainers {
		tr := j.trainers(rank, func(c *Config) { c.GeoSteps, c.Copies = every, trainers })[0]
		tr.SetRate(0.5)
		got = append(got, tr)
		r, err := j.schema.Sparse[0].Rule.Rows()
		must(t, err)
		r.(optim.Rated).SetLR(0.5)
		want.all = append(want.all, &naiveTrainer{of: want, rule: r, dense: initial(), base: initial(), rows: map[int32][2][]float32{}, state: map[int32][][]float32{}})
	}
	want.rows = all(t, got[0])
	for step := range steps {
		for rank, tr := range got {
			n, ids := want.all[rank], batchOf(step, rank)
			mapped, rows, err := fetch(tr, ids)
			must(t, err)
			n.touch(ids)
			if step == 0 { // those before it have exchanged theirs, perhaps
				copy(n.dense, want.dense)
				copy(n.base, want.dense)
			}
			for i, id := range ids {
				if at := rows[int(mapped[i])*rowDim:][:rowDim]; !slices.Equal(at, n.rows[id][0]) {
					t.Fatalf("%s, %d trainers, every %d: step %d, trainer %d: row %d is %v, want %v", rule, trainers, every, step, rank, id, at, n.rows[id][0])
				}
			}
			if ahead && step+1 < steps {
				must(t, tr.Ask(Batch{IDs: batchOf(step+1, rank)}))
				if (step+1)%every != 0 {
					must(t, tr.await()) // before another trainer's exchange
					n.touch(batchOf(step+1, rank))
				}
			}
			at := different(mapped)
			var grads []float32
			for _, m := range at {
				id := ids[slices.Index(mapped, m)]
				g := gradOf(step, rank, id, rowDim, dyadic)
				grads = append(grads, g...)
				n.move(id, g)
			}
			must(t, tr.PushRows(0, at, grads))
			for i, g := range gradOf(step, rank, -1, denseLen, dyadic) {
				tr.cfg.Values[i] -= 0.5 * g
				n.dense[i] -= 0.5 * g
			}
			must(t, tr.End(0.25)) // a rate that is the servers' and means nothing there
			must(t, tr.awaitValues())
			if (step+1)%every == 0 {
				n.exchange()
			}
			if !slices.Equal(tr.cfg.Values, n.dense) {
				t.Fatalf("%s, %d trainers, every %d: after step %d trainer %d has other dense values", rule, trainers, every, step, rank)
			}
		}
	}
	for rank, tr := range got {
		must(t, tr.PushDeltas())
		want.all[rank].exchange()
		must(t, tr.PushDeltas()) // for once
		must(t, tr.cfg.Client.Flush(context.Background()))
	}
	for _, tr := range got {
		must(t, tr.PullDense())
		if !slices.Equal(tr.cfg.Values, want.dense) || !slices.Equal(all(t, tr), want.rows) {
			t.Errorf("%s, %d trainers, every %d: brought together they are not what the servers have", rule, trainers, every)
		}
	}
	return got, want
}

// Copies, what is sent of them, and the state of rows that come and go are those of a naive twin,
// to the last bit, with what is asked for ahead too.
func TestGeoIsNaive(t *testing.T) {
	leakcheck.Check(t)
	for i, rule := range []string{"sgd", "adagrad", "adam", "adagrad-rowwise"} {
		for _, trainers := range []int{1, 2, 3} {
			follow(t, testSchema(rule, 1), trainers, 1+(i+trainers)%4, 13, trainers == 2, false)
		}
	}
}

// plain trains without servers.
func plain(t *testing.T, first []float32, rule string, steps int, dyadic bool) (dense, rows []float32) {
	t.Helper()
	sc := testSchema(rule, 0.5)
	r, err := sc.Sparse[0].Rule.Rows()
	must(t, err)
	n := &naiveTrainer{of: &naive{rows: first}, rule: r, rows: map[int32][2][]float32{}, state: map[int32][][]float32{}}
	dense = initial()
	for step := range steps {
		ids := batchOf(step, 0)
		n.touch(ids)
		for _, id := range different(ids) {
			n.move(id, gradOf(step, 0, id, rowDim, dyadic))
		}
		for i, g := range gradOf(step, 0, -1, denseLen, dyadic) {
			dense[i] -= 0.5 * g
		}
	}
	rows = slices.Clone(first)
	for id, row := range n.rows {
		copy(rows[int(id)*rowDim:], row[0])
	}
	return dense, rows
}

// One trainer that exchanges at every step trains as without servers: to the last bit where no
// difference is rounded, else but for two roundings a step.
func TestGeoAlone(t *testing.T) {
	const steps = 40
	for _, dyadic := range []bool{true, false} {
		rule := map[bool]string{true: "sgd", false: "adagrad"}[dyadic]
		sc := testSchema(rule, 1)
		if dyadic {
			sc.Sparse[0].Init = schema.Init{Name: "constant", Value: 0.25}
		}
		j := newJob(t, engine.Config{Mode: engine.Geo, Servers: 1, Trainers: 1}, sc)
		dense, rows := plain(t, all(t, j.trainers(0, nil)[0]), rule, steps, dyadic)
		got, _ := follow(t, sc, 1, 1, steps, false, dyadic)
		near(t, fmt.Sprintf("%s: dense values", rule), got[0].cfg.Values, dense, dyadic)
		near(t, fmt.Sprintf("%s: rows", rule), all(t, got[0]), rows, dyadic)
	}
}

func near(t *testing.T, what string, got, want []float32, exact bool) {
	t.Helper()
	for i, v := range got {
		bound := 1e-5 * (1 + math.Abs(float64(want[i]))) // 40 steps, each of two roundings of 2^-24
		if diff := math.Abs(float64(v) - float64(want[i])); exact && diff != 0 || diff > bound {
			t.Fatalf("%s: value %d is %v, want %v", what, i, v, want[i])
		}
	}
}

// Sessions of a trainer are copies of their own. One that has no batch passes, and what it sends of
// copies that it never had is nothing.
func TestGeoPasses(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, engine.Config{Mode: engine.Geo, Servers: 2, Trainers: 1, Sessions: 2}, testSchema("sgd", 1))
	sessions := j.trainers(0, func(c *Config) { c.GeoSteps, c.Copies = 2, 2 })
	for step := range 6 {
		_, _, err := fetch(sessions[0], batchOf(step, 0))
		must(t, err)
		for i := range sessions[0].cfg.Values {
			sessions[0].cfg.Values[i]++
		}
		for _, l := range sessions {
			must(t, l.End(-1))
		}
	}
	for _, l := range sessions {
		must(t, l.PushDeltas())
	}
	must(t, sessions[0].cfg.Client.Flush(context.Background()))
	for _, l := range sessions {
		must(t, l.PullDense())
	}
	for i, v := range initial() { // half of what one of two has moved by
		if got := sessions[1].cfg.Values[i]; got != v+3 || sessions[0].cfg.Values[i] != got {
			t.Fatalf("value %d is %v and %v, want %v", i, sessions[0].cfg.Values[i], got, v+3)
		}
	}
	must(t, sessions[0].Leave(context.Background()))
}
