package trainer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
)

// batchOf is a trainer's batch of a step, with ids more than once.
func batchOf(step, rank int) (ids []int32) {
	r := rand.New(rand.NewPCG(uint64(step), uint64(rank)))
	for range 1 + r.IntN(120) {
		ids = append(ids, int32(r.IntN(tableRows)))
	}
	return ids
}

// inSync trains so many steps and returns what each saw, dense values last.
func inSync(tr *Trainer, rank, steps int, ahead bool) (seen []float32, err error) {
	for step := range steps {
		mapped, rows, err := fetch(tr, batchOf(step, rank))
		if err != nil {
			return nil, err
		}
		for _, m := range mapped {
			seen = append(seen, rows[int(m)*rowDim:][:rowDim]...)
		}
		seen = append(seen, tr.cfg.Values...)
		if ahead && step+1 < steps {
			if err := tr.Ask(Batch{IDs: batchOf(step+1, rank)}); err != nil {
				return nil, err
			}
		}
		at, r := different(mapped), rand.New(rand.NewPCG(uint64(rank), uint64(step)))
		grads, dense := make([]float32, rowDim*len(at)), make([]float32, denseLen)
		for _, x := range [][]float32{grads, dense} {
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
		}
		if err := tr.session.PushDense(array, tr.step, 0, dense); err != nil {
			return nil, err
		}
		if err := tr.PushRows(0, at, grads); err != nil {
			return nil, err
		}
		if err := tr.End(-1); err != nil {
			return nil, err
		}
	}
	return seen, tr.Leave(context.Background())
}

// What is asked for ahead has, in bsp, the bits of what is asked for when it is needed.
func TestAheadInSync(t *testing.T) {
	leakcheck.Check(t)
	const steps = 30
	run := func(ahead bool) (seen [3][]float32) {
		j := newJob(t, engine.Config{Mode: engine.BSP, Servers: 2, Trainers: 3}, testSchema("adagrad", 0.1))
		var ranks [3]*Trainer
		for rank := range ranks {
			ranks[rank] = j.trainers(rank, nil)[0]
		}
		var group sync.WaitGroup
		for rank, tr := range ranks {
			group.Go(func() {
				var err error
				if seen[rank], err = inSync(tr, rank, steps, ahead); err != nil {
					t.Errorf("trainer %d: %v", rank, err)
				}
			})
		}
		group.Wait()
		return seen
	}
	want, got := run(false), run(true)
	for rank := range want {
		if !slices.Equal(got[rank], want[rank]) || len(want[rank]) < steps*denseLen {
			t.Errorf("trainer %d saw other values", rank)
		}
	}
}

// In async, rows asked for ahead lack the trainer's own last step, dense values do not, and in the
// end nothing is missing.
func TestAheadInAsync(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, engine.Config{Mode: engine.Async, Servers: 2, Trainers: 1}, testSchema("sgd", 1))
	tr := j.trainers(0, nil)[0]
	before, dense := all(t, tr), initial()
	ids, grads := []int32{7, 250, 7}, slices.Repeat([]float32{0.25}, 2*rowDim)
	had := 0 // steps in the rows
	for step := range 6 {
		ahead := step < 4
		mapped, rows, err := fetch(tr, ids)
		must(t, err)
		for i, id := range ids {
			if got, want := rows[int(mapped[i])*rowDim], before[int(id)*rowDim]-0.25*float32(had); got != want {
				t.Errorf("step %d: row %d is %v, want %v: that of %d steps", step, id, got, want, had)
			}
		}
		if got, want := tr.cfg.Values[1], dense[1]-0.5*float32(step); got != want {
			t.Errorf("step %d: the value is %v, want %v", step, got, want)
		}
		if had = step + 1; ahead {
			had = step
			must(t, tr.Ask(Batch{IDs: ids}))
		}
		must(t, tr.session.PushDense(array, tr.step, 0, slices.Repeat([]float32{0.5}, denseLen)))
		must(t, tr.PushRows(0, []int32{0, 1}, grads))
		must(t, tr.End(-1))
	}
	must(t, tr.cfg.Client.Flush(context.Background()))
	must(t, tr.PullDense())
	if got, want := all(t, tr)[7*rowDim], before[7*rowDim]-6*0.25; got != want || tr.cfg.Values[1] != dense[1]-6*0.5 {
		t.Errorf("in the end row 7 is %v, want %v; the value %v", got, want, tr.cfg.Values[1])
	}
	rows := all(t, tr)
	for n, ids := range [][]int32{{5, 250, 5}, {7}, {250, 3, 299, 0}} { // evaluation, asked for ahead but the first
		next := [][]int32{{7}, {250, 3, 299, 0}, nil}[n]
		mapped, got, err := peek(tr, ids)
		must(t, err)
		if next != nil {
			must(t, tr.AskPeek(Batch{IDs: next}))
		}
		for i, id := range ids {
			if !slices.Equal(got[int(mapped[i])*rowDim:][:rowDim], rows[int(id)*rowDim:][:rowDim]) {
				t.Errorf("peeked at, row %d is %v, want %v", id, got[int(mapped[i])*rowDim:][:rowDim], rows[int(id)*rowDim:][:rowDim])
			}
		}
	}
	if tr.Waited() <= 0 || tr.Waited() != 0 {
		t.Error("it waited for nothing, or twice for the same")
	}
	must(t, tr.Ask(Batch{IDs: []int32{1}}))
	must(t, tr.End(-1))
	if _, _, err := fetch(tr, []int32{1, 2}); err == nil || !strings.Contains(err.Error(), "2 ids and keys, 1 were asked for") {
		t.Errorf("got %v", err)
	}
}

// In ssp, what was asked for ahead has what the bound demands of others.
func TestAheadWithinBound(t *testing.T) {
	leakcheck.Check(t)
	const staleness = 2
	j := newJob(t, engine.Config{Mode: engine.SSP, Staleness: staleness, Servers: 1, Trainers: 2}, testSchema("sgd", 1))
	fast, slow := j.trainers(0, nil)[0], j.trainers(1, nil)[0]
	start := all(t, fast)[0]
	seen := make(chan error, 1)
	const steps = 12
	go func() {
		err := func() error {
			for step := range steps {
				_, rows, err := fetch(fast, []int32{0})
				if err != nil {
					return err
				}
				if least := float32(step-staleness) - 0.5; start-rows[0] < least { // roundings
					return fmt.Errorf("step %d: the row has %v steps of the other, want at least %v", step+1, start-rows[0], least)
				}
				if err := fast.Ask(Batch{IDs: []int32{0}}); err != nil {
					return err
				}
				if err := fast.End(-1); err != nil {
					return err
				}
			}
			return nil
		}()
		seen <- errors.Join(err, fast.Leave(context.Background())) // the other does not wait for it
	}()
	for range steps {
		_, _, err := fetch(slow, []int32{0})
		must(t, err)
		must(t, slow.PushRows(0, []int32{0}, []float32{1, 1, 1}))
		must(t, slow.End(-1))
	}
	must(t, <-seen)
}

// A step makes no garbage, with copies or without.
func TestStepsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for _, geo := range []int{0, 1, 3} {
		mode := engine.Async
		if geo > 0 {
			mode = engine.Geo
		}
		j := newJob(t, engine.Config{Mode: mode, Servers: 2, Trainers: 1}, testSchema("adagrad", 0.1))
		tr := j.trainers(0, func(c *Config) { c.GeoSteps, c.Copies = geo, 1 })[0]
		ids := batchOf(1, 1)
		grads, dense := make([]float32, rowDim*len(ids)), make([]float32, denseLen)
		var at []int32
		step := func() {
			mapped, _, err := fetch(tr, ids)
			must(t, err)
			must(t, tr.Ask(Batch{IDs: ids}))
			at = append(at[:0], mapped...)
			slices.Sort(at)
			at = slices.Compact(at)
			if geo == 0 {
				must(t, tr.session.PushDense(array, tr.step, 0, dense))
			}
			must(t, tr.PushRows(0, at, grads[:rowDim*len(at)]))
			must(t, tr.End(0.1))
		}
		for range 100 { // all memory is met
			step()
		}
		if n := testing.AllocsPerRun(100, step); n >= 1 {
			t.Errorf("geo %d: a step allocates %v times", geo, n)
		}
	}
}
