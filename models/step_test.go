package models

import (
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// randomBatch is n samples for a model; ids below ids.
func randomBatch(s Spec, n, ids, classes int) Batch {
	r := rand.New(rand.NewPCG(1, 2))
	b := Batch{N: n, IDs: make([]int32, n*s.IDs), Labels: make([]int32, n*max(1, s.Labels))}
	if s.Input != nil {
		b.Values = nn.NewTensor(append([]int{n}, s.Input...)...)
		for i := range b.Values.Data {
			b.Values.Data[i] = r.Float32()
		}
	}
	for i := range b.IDs {
		b.IDs[i] = int32(r.IntN(ids))
	}
	for i := range b.Labels {
		b.Labels[i] = int32(r.IntN(classes))
	}
	return b
}

// trainingStep is a step of a model: forward, backward, update.
func trainingStep(tb testing.TB, m Model, ps *nn.Params, threads int, momentum float64, batches ...Batch) func() float32 {
	tb.Helper()
	err := ps.Arrange(func(t *nn.Tape) *nn.Tensor {
		loss, _ := m.Loss(t, batches[0])
		return loss
	})
	if err != nil {
		tb.Fatal(err)
	}
	sgd := &optim.SGD{LR: 0.005, Momentum: momentum}
	if err := sgd.Bind(len(ps.Values())); err != nil {
		tb.Fatal(err)
	}
	var dims [][2]int
	for _, t := range ps.Tables() {
		dims = append(dims, [2]int{t.Rows, t.Dim})
	}
	if err := sgd.BindTables(dims); err != nil {
		tb.Fatal(err)
	}
	tape := nn.NewTape(nn.TapeConfig{Threads: threads})
	tb.Cleanup(tape.Close)
	ready := func(int) {}
	steps := 0
	return func() float32 {
		tape.Reset()
		loss, _ := m.Loss(tape, batches[steps%len(batches)])
		steps++
		tape.Backward(loss, ready)
		sgd.BeginStep()
		sgd.Update(0, ps.Values(), ps.Grads(), 1)
		for i, t := range ps.Tables() {
			ids, grads := t.Grad()
			sgd.UpdateRows(i, t.Data, ids, grads, 1)
		}
		return loss.Data[0]
	}
}

func TestStepsDoNotAllocate(t *testing.T) {
	for name, build := range map[string]func(ps *nn.Params) (Model, Spec){
		"lstm": func(ps *nn.Params) (Model, Spec) {
			return buildLSTM(ps, Options{Batch: 3}, lstmSize{vocabulary: 11, width: 12, layers: 2, bound: 0.3, dropout: 0.5}), lstmSmall()
		},
		"gpt": func(ps *nn.Params) (Model, Spec) {
			return buildGPT(ps, Options{Dropout: 0.1}, nanoGPT), gptSpec(Spec{}, nanoGPT)
		},
		"ctr": func(ps *nn.Params) (Model, Spec) { return buildCTR(ps, Options{Rows: 11}, []int{8, 8}), ctrDNN() },
	} {
		t.Run(name, func(t *testing.T) {
			for threads := 1; threads <= 2; threads++ {
				ps := nn.NewParams(1)
				m, spec := build(ps)
				step := trainingStep(t, m, ps, threads, 0, randomBatch(spec, 3, 11, 2))
				for range 3 {
					step()
				}
				if n := testing.AllocsPerRun(5, func() { step() }); n != 0 {
					t.Errorf("%d threads: a steady step makes %v allocations, want 0", threads, n)
				}
			}
		})
	}
}

// The steps that the comparison with PyTorch times.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		model    string
		batch    int
		ids      int
		momentum float64
	}{{"lstm", 20, 10000, 0.9}, {"ctr-dnn", 512, ctrRows, 0}, {"ctr-dnn-4096", 512, ctrRows, 0}, {"gpt", 8, 256, 0.9}} {
		b.Run(c.model, func(b *testing.B) {
			spec, err := Lookup(c.model)
			if err != nil {
				b.Fatal(err)
			}
			ps := nn.NewParams(1)
			m := spec.Build(ps, Options{Batch: c.batch, Dropout: -1})
			step := trainingStep(b, m, ps, 1, c.momentum, randomBatch(spec, c.batch, c.ids, spec.Classes))
			step()
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}
