package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// likeCollective is a model of one arena and one table.
const (
	arenaLen  = 480
	tableRows = 200
	tableDim  = 10
)

// gradient is a rank's of a step: of the arena, and of ascending rows.
func gradient(step, rank int) (arena []float32, ids []int32, values []float32) {
	rng := rand.New(rand.NewPCG(uint64(step), uint64(rank)))
	for range arenaLen {
		arena = append(arena, float32(rng.NormFloat64()))
	}
	for _, id := range rng.Perm(tableRows)[:rng.IntN(90)] {
		ids = append(ids, int32(id))
	}
	slices.Sort(ids)
	for range len(ids) * tableDim {
		values = append(values, float32(rng.NormFloat64()))
	}
	return arena, ids, values
}

// collectively trains on so many ranks with the naive algorithm and returns rank 0's
// arena and table.
func collectively(t *testing.T, ranks, steps int, rule string) (arena, rows []float32) {
	t.Helper()
	errs := make([]error, ranks)
	var all sync.WaitGroup
	for _, m := range mem.New(ranks) {
		all.Go(func() {
			params, data, err := onMesh(m, steps, rule)
			errs[m.Rank()] = err
			if m.Rank() == 0 {
				arena, rows = params, data
			}
		})
	}
	all.Wait()
	must(t, errors.Join(errs...))
	return arena, rows
}

func onMesh(m transport.Mesh, steps int, rule string) (params, data []float32, err error) {
	g, err := collective.New(m, collective.Config{Timeout: 20 * time.Second, Algorithm: collective.Naive})
	if err != nil {
		return nil, nil, err
	}
	if params, data, err = oneRank(g, steps, rule); err == nil {
		err = collective.Barrier(g)
	}
	if err != nil {
		m.Abort(err)
	}
	return params, data, errors.Join(err, g.Close(), m.Close())
}

func oneRank(g *collective.Group, steps int, rule string) (params, data []float32, err error) {
	var opt optim.Optimizer = &optim.SGD{LR: 0.1}
	if rule == "adagrad" {
		opt = optim.NewAdagrad(0.1)
	}
	params, grads := ramp(0, arenaLen), make([]float32, arenaLen)
	table := distopt.Table{Name: "rows", Rows: tableRows, Dim: tableDim, Data: make([]float32, tableRows*tableDim)}
	layers := []bucket.Param{{Name: "a", Len: 160}, {Name: "b", Offset: 160, Len: 320}}
	o, err := distopt.New(g, opt, layers, params, grads, []distopt.Table{table}, distopt.Config{})
	if err != nil {
		return nil, nil, err
	}
	for step := range steps {
		arena, ids, values := gradient(step, g.Rank())
		copy(grads, arena)
		o.GradReady(0)
		o.GradReady(1)
		o.RowsReady(0, ids, values)
		if err := o.Step(); err != nil {
			return nil, nil, err
		}
	}
	return params, table.Data, o.Close()
}

// A hundred steps in bsp give the bits of collective training with the naive
// algorithm: dense and sparse parameters, with 2 and 3 trainers and several servers.
// It holds invariant[bsp-is-allreduce].
func TestSyncIsCollective(t *testing.T) {
	const steps = 100
	for _, rule := range []string{"sgd", "adagrad"} {
		for _, trainers := range []int{2, 3} {
			arena, rows := collectively(t, trainers, steps, rule)
			r := schema.Rule{Name: rule, LR: 0.1}
			s := schema.Schema{
				Sparse: []schema.Sparse{{Name: "rows", Dim: tableDim, Rule: r}},
				Dense:  []schema.Dense{{Name: "arena", Len: arenaLen, Rule: r}},
			}
			servers := cluster(t, Config{Trainers: trainers, Mode: BSP, Durability: None}, s, 2)
			var all sync.WaitGroup
			for n := range trainers {
				all.Go(func() {
					tr := newTrainer(t, servers, n)
					if n == 0 {
						for i := range servers {
							tr.sessions[i][0].begin([][]float32{ramp(0, arenaLen)})
						}
					}
					for step := range steps {
						for _, e := range servers {
							if err := e.Await(context.Background(), n, uint64(step+1)); err != nil {
								t.Error(err)
								return
							}
						}
						dense, ids, values := gradient(step, n)
						keys := make([]uint64, len(ids))
						for i, id := range ids {
							keys[i] = uint64(id)
						}
						tr.push(s, []grads{{keys, values}, {nil, dense}})
						tr.each(func(l *client) { l.clock(-1) })
					}
				})
			}
			all.Wait()
			got := make([]float32, arenaLen)
			for _, e := range servers {
				d := e.dense[0]
				must(t, e.PullDense(0, d.lo, got[d.lo:d.hi]))
			}
			if !same(got, arena) {
				t.Errorf("%s, %d trainers: the arena is %v, want %v", rule, trainers, got[:4], arena[:4])
			}
			row := make([]float32, tableDim)
			for id := range tableRows {
				key := uint64(id)
				must(t, servers[schema.Owner(key, 2)].PullRows(anyPull, 0, []uint64{key}, row))
				if !same(row, rows[id*tableDim:][:tableDim]) {
					t.Fatalf("%s, %d trainers: row %d is %v, want %v", rule, trainers, id, row, rows[id*tableDim:][:tableDim])
				}
			}
		}
	}
}
