package trainer

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// clickSchema has a click table whose rows are soon worth an extension.
func clickSchema() schema.Schema {
	s := testSchema("click", 0.1)
	s.Sparse[0].Rule.Settings = map[string]float64{"extend_at": 26}
	return s
}

// clickBatch is a trainer's batch of a step: ids of 4 slots, of which some samples name one twice, labels, and
// the mean gradient of each id's row.
func clickBatch(step, rank int) (ids, labels []int32, grad func(id int32) []float32) {
	const slots = 4
	r := rand.New(rand.NewPCG(uint64(step), uint64(rank)))
	for range 1 + r.IntN(40) {
		labels = append(labels, int32(r.IntN(3)/2))
		for range slots {
			ids = append(ids, int32(r.IntN(tableRows/4)))
		}
	}
	return ids, labels, func(id int32) []float32 {
		r := rand.New(rand.NewPCG(uint64(step*100+rank), uint64(id)))
		g := make([]float32, rowDim)
		for i := range g {
			g[i] = float32(r.NormFloat64())
		}
		return g
	}
}

// clickStep trains a step.
func clickStep(tr *Trainer, step, rank int) error {
	ids, labels, grad := clickBatch(step, rank)
	mapped, _, err := fetch(tr, ids)
	if err != nil {
		return err
	}
	of := map[int32]int32{}
	for i, m := range mapped {
		of[m] = ids[i]
	}
	at := different(mapped)
	var grads []float32
	for _, m := range at {
		grads = append(grads, grad(of[m])...)
	}
	if err := tr.session.PushDense(array, tr.step, 0, make([]float32, denseLen)); err != nil {
		return err
	}
	if err := tr.PushClicks(0, at, grads, labels); err != nil {
		return err
	}
	return tr.End(-1)
}

// What trainers show and click in step is counted as a loop over their samples does, and moves rows by the
// gradients of sums over samples, added up in the order of ranks: over several servers, twice the same.
func TestClicksAgainstMap(t *testing.T) {
	leakcheck.Check(t)
	const ranks, steps = 2, 30
	sc := clickSchema()
	rule, err := sc.Sparse[0].Rule.Rows()
	must(t, err)
	click := rule.(*optim.ClickRows)
	begin, err := sc.Sparse[0].Init.Init()
	must(t, err)
	initial := func(id int32) []float32 {
		row := make([]float32, rowDim)
		begin(row, rowinit.Row(rowinit.Table(sc.Sparse[0].Seed, sc.Sparse[0].Name), uint64(id)))
		return row
	}
	want := make([]float32, tableRows*rowDim)
	state := map[int32][][]float32{}
	for id := range int32(tableRows) {
		copy(want[id*rowDim:], initial(id)[:1])
		state[id] = [][]float32{{0}, {0, 0, 0, 0}, {-1}}
	}
	extended := 0
	for step := range steps {
		pushes := map[int32][]float32{}
		for rank := range ranks {
			ids, labels, grad := clickBatch(step, rank)
			for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
				p := pushes[id]
				if p == nil {
					p = make([]float32, rowDim+2)
					pushes[id] = p
				}
				for j, g := range grad(id) {
					p[j] += float32(len(labels)) * g
				}
				for i, other := range ids {
					if other == id {
						p[rowDim]++
						p[rowDim+1] += float32(labels[i/4])
					}
				}
			}
		}
		for id, p := range pushes {
			row := want[id*rowDim:][:rowDim]
			if due := click.UpdateCounted(row, state[id], rowDim, []int32{0}, p, 1, nil); len(due) > 0 {
				click.Extend(row, state[id], rowDim, 0, initial(id))
				extended++
			}
		}
	}
	if extended < 5 || extended > 70 {
		t.Errorf("%d rows of 75 were extended: want some", extended)
	}
	for range 2 {
		j := newJob(t, engine.Config{Mode: engine.BSP, Servers: 2, Trainers: ranks}, sc)
		var running sync.WaitGroup
		errs := make([]error, ranks)
		trainers := make([]*Trainer, ranks)
		for rank := range ranks {
			trainers[rank] = j.trainers(rank, nil)[0]
		}
		for rank, tr := range trainers {
			running.Go(func() {
				for step := range steps {
					if errs[rank] = clickStep(tr, step, rank); errs[rank] != nil {
						return
					}
				}
				errs[rank] = tr.cfg.Client.Flush(context.Background())
			})
		}
		running.Wait()
		for _, err := range errs {
			must(t, err)
		}
		must(t, trainers[0].PullDense())
		if got := all(t, trainers[0]); !slices.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("value %d of row %d is %v, want %v", i%rowDim, i/rowDim, got[i], want[i])
				}
			}
		}
		for _, tr := range trainers {
			running.Go(func() { must(t, tr.Leave(context.Background())) })
		}
		running.Wait()
	}
}

// Copies cannot count, and what does not fit the batch is told.
func TestClicksRefused(t *testing.T) {
	j := newJob(t, engine.Config{Mode: engine.Async, Servers: 1, Trainers: 1}, clickSchema())
	tr := j.trainers(0, nil)[0]
	if _, err := New(Config{Client: tr.cfg.Client, Schema: j.schema, Values: initial(), Lookups: []Lookup{{Rows: tableRows}}, GeoSteps: 2, Copies: 1}); err == nil || !strings.Contains(err.Error(), `rule click of table "rows" counts on the servers`) {
		t.Errorf("geo: %v", err)
	}
	_, _, err := fetch(tr, []int32{1, 2, 3, 1})
	must(t, err)
	for _, labels := range [][]int32{nil, {1, 0, 1}} {
		if err := tr.PushClicks(0, []int32{0}, make([]float32, rowDim), labels); err == nil || !strings.Contains(err.Error(), "4 ids or keys of") {
			t.Errorf("%d labels: %v", len(labels), err)
		}
	}
	if err := tr.PushClicks(0, []int32{0, 1}, make([]float32, rowDim), []int32{1}); err == nil {
		t.Error("a gradient is missing")
	}
	if err := tr.PushRows(0, []int32{0}, make([]float32, rowDim)); err == nil || !strings.Contains(err.Error(), "3 values for 1 rows of 5") {
		t.Errorf("a push without counts: %v", err)
	}
	if !tr.Counts(0) {
		t.Error("the table counts")
	}
}

// A step that counts makes no garbage.
func TestClickStepsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	j := newJob(t, engine.Config{Mode: engine.Async, Servers: 2, Trainers: 1}, clickSchema())
	tr := j.trainers(0, nil)[0]
	ids, labels, _ := clickBatch(1, 1)
	grads := make([]float32, rowDim*len(ids))
	var at []int32
	step := func() {
		mapped, _, err := fetch(tr, ids)
		must(t, err)
		at = append(at[:0], mapped...)
		slices.Sort(at)
		at = slices.Compact(at)
		must(t, tr.PushClicks(0, at, grads[:rowDim*len(at)], labels))
		must(t, tr.End(0.1))
	}
	for range 100 { // all memory is met
		step()
	}
	if n := testing.AllocsPerRun(100, step); n >= 1 {
		t.Errorf("a step allocates %v times", n)
	}
}
