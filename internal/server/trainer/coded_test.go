package trainer

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/optim"
)

// coded is a request for a range of a gradient, and the values that servers decode.
func coded(t *testing.T, q compress.Quantiser, sparse bool, lo, hi int, grad, decoded []float32) *exchange.Request {
	op := &exchange.Request{Lo: lo, X: grad[lo:hi], Code: q}
	if sparse {
		op.Sparse = &compress.Sparse{Len: hi - lo}
		for i, v := range op.X {
			if decoded[lo+i] = 0; v > 0.5 {
				op.Sparse.Append(i, v)
				decoded[lo+i] = v
			}
		}
		return op
	}
	b := make([]byte, q.Size(hi-lo))
	must(t, q.Encode(b, op.X))
	must(t, q.Decode(decoded[lo:hi], b))
	copy(op.X, decoded[lo:hi]) // as a codec rounds
	return op
}

// trainCoded trains with coded pushes of batches batches a step, and returns the servers' dense
// values and those of a naive twin. restart kills and restarts a server after a push of each step.
func trainCoded(t *testing.T, cfg engine.Config, q compress.Quantiser, sparse bool, batches int, restart bool) (got, want []float32) {
	j := newJob(t, cfg, testSchema("sgd", 0.25))
	var all []*Trainer
	for rank := range cfg.Trainers {
		all = append(all, j.trainers(rank, func(c *Config) { c.Batches = batches })[0])
	}
	twin := &optim.SGD{LR: 0.25}
	must(t, twin.Bind(denseLen))
	want = initial()
	for step := range 4 {
		sum := make([]float32, denseLen)
		for rank, tr := range all {
			for b := range batches {
				_, _, err := fetch(tr, batchOf(step, rank+b))
				must(t, err)
			}
			grad, decoded := gradOf(step, rank, -1, denseLen, true), make([]float32, denseLen)
			for _, r := range [][2]int{{300, denseLen}, {0, 300}} {
				op := coded(t, q, sparse, r[0], r[1], grad, decoded)
				tr.Start(op)
				if restart && rank == 0 {
					j.restart(step % cfg.Servers)
				}
				_, err := tr.Wait(op)
				must(t, err)
				if op.Sent.Dense == sparse || op.Sent.Bytes <= 0 || sparse && op.Sent.Entries != op.Sparse.Count() {
					t.Errorf("the exchange is reported as %+v", op.Sent)
				}
			}
			must(t, tr.End(-1))
			for i := range sum {
				decoded[i] /= float32(batches)
				sum[i] += decoded[i]
			}
			if cfg.Mode != engine.BSP {
				must(t, tr.cfg.Client.Flush(context.Background()))
				twin.BeginStep()
				twin.Update(0, want, decoded, 1)
			}
		}
		if cfg.Mode == engine.BSP {
			twin.BeginStep()
			twin.Update(0, want, sum, 1/float32(cfg.Trainers))
		}
	}
	must(t, all[0].PullDense())
	got = slices.Clone(all[0].cfg.Values)
	for _, tr := range all {
		must(t, tr.Leave(context.Background()))
	}
	return got, want
}

// TestCodedPushesMatchNaiveTwin: servers of every mode apply each coded push once, by the bits of a
// naive twin, also if they are killed between a push and its acknowledgement.
func TestCodedPushesMatchNaiveTwin(t *testing.T) {
	leakcheck.Check(t)
	for _, mode := range []engine.Mode{engine.BSP, engine.Async, engine.SSP} {
		for _, c := range []struct {
			q      compress.Quantiser
			sparse bool
		}{{compress.FP32{}, true}, {compress.FP16{}, true}, {compress.FP16{}, false}, {compress.BF16{}, false}, {compress.Int8{}, false}} {
			for _, trainers := range []int{1, 2, 3} {
				for _, batches := range []int{1, 2} {
					servers, restart := 1+trainers%2, trainers == 2 && batches == 1
					cfg := engine.Config{Mode: mode, Servers: servers, Trainers: trainers, Staleness: 1}
					if mode != engine.SSP {
						cfg.Staleness = 0
					}
					if restart {
						cfg.Dir, cfg.Durability = t.TempDir(), engine.WAL
					}
					if got, want := trainCoded(t, cfg, c.q, c.sparse, batches, restart); !slices.Equal(got, want) {
						t.Errorf("%v, %s, sparse %t, %d trainers, %d batches: the servers' values differ from the twin's", mode, c.q.Name(), c.sparse, trainers, batches)
					}
				}
			}
		}
	}
}

// TestClippedPushesMatchNaiveTwin: with ClipNorm each trainer limits the norm of its own mean
// gradient of a step, dense values as selected and rows together, before servers of any mode add or
// apply it.
func TestClippedPushesMatchNaiveTwin(t *testing.T) {
	leakcheck.Check(t)
	for _, mode := range []engine.Mode{engine.BSP, engine.Async, engine.SSP} {
		for _, sparse := range []bool{false, true} {
			for trainers := 1; trainers <= 2; trainers++ {
				for batches := 1; batches <= 3; batches += 2 {
					clipped := checkClipped(t, engine.Config{Mode: mode, Servers: 1 + trainers%2, Trainers: trainers}, sparse, batches)
					if clipped == 0 || clipped == 4*trainers {
						t.Errorf("%d of %d gradients are above the limit: the test has not seen both", clipped, 4*trainers)
					}
				}
			}
		}
	}
}

// checkClipped compares four steps with a naive twin, and returns how many gradients it clipped.
func checkClipped(t *testing.T, cfg engine.Config, sparse bool, batches int) (clipped int) {
	const limit, tableLen = 9.5, 2 * rowDim
	j := newJob(t, cfg, testSchema("sgd", 0.25))
	var trainers []*Trainer
	for rank := range cfg.Trainers {
		trainers = append(trainers, j.trainers(rank, func(c *Config) { c.ClipNorm, c.Batches = limit, batches })[0])
	}
	table := all(t, trainers[0])[4*rowDim:][:tableLen]
	want := slices.Concat(initial(), table)
	twin := &optim.SGD{LR: 0.25}
	must(t, twin.Bind(len(want)))
	for step := range 4 {
		sum := make([]float32, len(want))
		for rank, tr := range trainers {
			grad, rows := gradOf(step, rank, -1, denseLen, true), gradOf(step, rank, 4, tableLen, true)
			for i := range grad {
				grad[i] *= float32(step+1) * float32(batches)
			}
			pushed := slices.Concat(grad, make([]float32, tableLen))
			for range batches {
				_, _, err := fetch(tr, []int32{4, 5})
				must(t, err)
				must(t, tr.PushRows(0, []int32{0, 1}, rows))
				for i, g := range rows {
					pushed[denseLen+i] += g
				}
			}
			for _, r := range [][2]int{{300, denseLen}, {0, 300}} {
				op := &exchange.Request{Lo: r[0], X: grad[r[0]:r[1]]}
				if sparse {
					op = coded(t, compress.FP32{}, true, r[0], r[1], grad, pushed)
				}
				tr.Start(op)
				defer func() {
					if op.Sent.Bytes <= 0 {
						t.Errorf("the exchange is reported as %+v", op.Sent)
					}
				}()
			}
			_, err := tr.Wait(nil)
			must(t, err)
			must(t, tr.End(-1))
			norm, factor := 0.0, 1/float32(batches)
			for _, g := range pushed {
				norm += float64(g) * float64(g)
			}
			if norm = float64(factor) * math.Sqrt(norm); norm > limit {
				factor *= float32(limit / norm)
				clipped++
			}
			for i := range pushed {
				pushed[i] *= factor
				sum[i] += pushed[i]
			}
			if cfg.Mode != engine.BSP {
				must(t, tr.cfg.Client.Flush(context.Background()))
				twin.BeginStep()
				twin.Update(0, want, pushed, 1)
			}
		}
		if cfg.Mode == engine.BSP {
			twin.BeginStep()
			twin.Update(0, want, sum, 1/float32(cfg.Trainers))
		}
	}
	must(t, trainers[0].PullDense())
	if got := slices.Concat(trainers[0].cfg.Values, all(t, trainers[0])[4*rowDim:][:tableLen]); !slices.Equal(got, want) {
		t.Errorf("%v, sparse %t, %d trainers, %d batches: the servers' values differ from the twin's", cfg.Mode, sparse, cfg.Trainers, batches)
	}
	for _, tr := range trainers {
		must(t, tr.Leave(context.Background()))
	}
	return clipped
}

// TestCodedPushNamesValue: a value without a code fails the step with its index in the arena, and
// stays the error of all later calls.
func TestCodedPushNamesValue(t *testing.T) {
	j := newJob(t, engine.Config{Mode: engine.Async, Servers: 2, Trainers: 1}, testSchema("sgd", 1))
	tr := j.trainers(0, nil)[0]
	x := make([]float32, 400)
	x[399] = 1e9
	tr.Start(&exchange.Request{Lo: 300, X: x, Code: compress.FP16{}})
	tr.Start(&exchange.Request{X: make([]float32, 4)})
	_, err := tr.Wait(nil)
	if v := (*exchange.ValueError)(nil); !errors.As(err, &v) || v.At != 699 || v.Code != "fp16" {
		t.Errorf("got %v", err)
	}
}

// TestRowsOfSeveralBatches: a row's gradients of a step's batches reach the servers as one mean,
// and dense values are pulled once a step.
func TestRowsOfSeveralBatches(t *testing.T) {
	j := newJob(t, engine.Config{Mode: engine.BSP, Servers: 2, Trainers: 1}, testSchema("sgd", 1))
	tr := j.trainers(0, func(c *Config) { c.Batches = 2 })[0]
	before := all(t, tr)
	for i, ids := range [][]int32{{4, 9}, {9, 7}} {
		if _, _, err := fetch(tr, ids); err != nil {
			t.Fatal(err)
		}
		tr.cfg.Values[0] = float32(i) // a pull would overwrite it
		must(t, tr.PushRows(0, []int32{0, 1}, []float32{1, 2, 3, 4, 5, 6}))
		if i == 0 {
			must(t, tr.AskMore(Batch{IDs: []int32{9, 7}}))
		}
	}
	if tr.cfg.Values[0] != 1 {
		t.Error("the second batch has pulled the dense values again")
	}
	must(t, tr.End(-1))
	must(t, tr.PullDense())
	after := all(t, tr)
	for id, grad := range map[int][]float32{4: {1, 2, 3}, 9: {5, 7, 9}, 7: {4, 5, 6}} {
		for k, g := range grad {
			if at := id*rowDim + k; after[at] != before[at]-g/2 {
				t.Errorf("row %d: %v after %v, want a step of %v", id, after[at], before[at], g/2)
			}
		}
	}
	must(t, tr.Leave(context.Background()))
}
