package models

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// randomBatch is n samples for a model; ids below ids.
func randomBatch(s model.Spec, n, ids, classes int) model.Batch {
	r := rand.New(rand.NewPCG(1, 2))
	b := model.Batch{N: n, IDs: make([]int32, n*s.IDs), Labels: make([]int32, n*max(1, s.Labels))}
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
	if len(s.Slots) > 0 {
		b.Bags = nn.Bags{Offsets: []int32{0}, N: n}
		for range len(s.Slots) * n {
			for range r.IntN(4) {
				b.Bags.Keys = append(b.Bags.Keys, uint64(r.IntN(ids)))
			}
			b.Bags.Offsets = append(b.Bags.Offsets, int32(len(b.Bags.Keys)))
		}
	}
	return b
}

// trial is a model in training.
type trial struct {
	m       model.Model
	ps      *nn.Params
	sgd     *optim.SGD
	tape    *nn.Tape
	batches []model.Batch // one after the other, then from the first again
	steps   int
}

func newTrial(tb testing.TB, build func(ps *nn.Params) model.Model, threads int, momentum float64, batches ...model.Batch) *trial {
	tb.Helper()
	ps := nn.NewParams(1)
	c := &trial{m: build(ps), ps: ps, batches: batches, sgd: &optim.SGD{LR: 0.005, Momentum: momentum}}
	err := c.m.Arrange(ps, batches[0])
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.sgd.Bind(len(ps.Values())); err != nil {
		tb.Fatal(err)
	}
	var dims [][2]int
	for _, t := range ps.Tables() {
		dims = append(dims, [2]int{t.Rows, t.Dim})
	}
	if err := c.sgd.BindTables(dims); err != nil {
		tb.Fatal(err)
	}
	c.tape = nn.NewTape(nn.TapeConfig{Threads: threads})
	tb.Cleanup(c.tape.Close)
	return c
}

// step is forward, backward, update.
func (c *trial) step() float32 {
	c.tape.Reset()
	loss := c.m.Pass(c.tape, c.batches[c.steps%len(c.batches)]).Loss.Mean
	c.steps++
	c.tape.Backward(loss, func(int) {})
	c.sgd.BeginStep()
	c.sgd.Update(0, c.ps.Values(), c.ps.Grads(), 1)
	for i, t := range c.ps.Tables() {
		ids, grads := t.Grad()
		c.sgd.UpdateRows(i, t.Data, ids, grads, 1)
	}
	return loss.Data[0]
}

// evaluate leaves everything as it was.
func (c *trial) evaluate(b model.Batch) float32 {
	var kept [][]float32
	if c.m.State != nil {
		for _, s := range c.m.State.Slices() {
			kept = append(kept, slices.Clone(s))
		}
	}
	c.tape.ResetEval()
	loss := c.m.Pass(c.tape, b).Loss.Mean
	for i := range kept {
		copy(c.m.State.Slices()[i], kept[i])
	}
	return loss.Data[0]
}

// small is a model of s over little data, with odd numbers of samples.
func small(s model.Spec) (build func(ps *nn.Params) model.Model, batches []model.Batch) {
	const rows, words, classes = 101, 83, 7
	o := model.Options{Batch: 3, Rows: rows, Classes: classes, Vocabulary: words}
	switch { // what the model takes as it comes
	case s.Name == "resnet50":
		s.Input = []int{40, 33, 3}
	case s.Task == model.Language:
		s.IDs, s.Labels = 7, 7
	}
	ids, labels := words, words
	switch s.Task {
	case model.Click:
		ids, labels = rows, 2
	case model.Classify:
		labels = classes
	}
	for _, n := range []int{3, 2} { // as at the end of an epoch
		batches = append(batches, randomBatch(s, n, ids, labels))
	}
	return func(ps *nn.Params) model.Model { return s.Build(ps, o) }, batches
}

// Whatever the number of threads, steps give the same bits, with evaluations of
// other batch sizes between them or without. Once there was a step of each
// size, neither allocates.
func TestSteps(t *testing.T) {
	for _, s := range All() {
		if s.Name == "lstm-300m" { // lstm in large
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			if testing.Short() && (s.Name == "resnet50" || s.Name == "cifar-vgg16") {
				t.Skip("its layers are those of smaller models")
			}
			build, batches := small(s)
			var want map[string][]float32
			for threads := 1; threads <= 3; threads++ {
				c := newTrial(t, build, threads, 0, batches...)
				for range batches {
					if loss := c.step(); !(loss > 0 && loss < 100) {
						t.Fatalf("loss %v", loss)
					}
					if threads == 3 {
						c.evaluate(batches[1])
					}
				}
				if got := values(c.m, c.ps); want == nil {
					want = got
				} else {
					sameBits(t, threads, got, want)
				}
				if threads != 2 {
					continue
				}
				var n float64
				for range 3 { // the runtime allocates now and then for a thread that goes to sleep
					n = testing.AllocsPerRun(2, func() {
						c.step()
						c.tape.ResetEval()
						c.m.Pass(c.tape, batches[1])
					})
					if n == 0 {
						break
					}
				}
				if n != 0 {
					t.Errorf("a steady step and an evaluation make %v allocations, want 0", n)
				}
			}
		})
	}
}

// values is a copy of all that a step changes, by name.
func values(m model.Model, ps *nn.Params) map[string][]float32 {
	v := map[string][]float32{}
	for _, p := range ps.List() {
		v[p.Name] = slices.Clone(p.Data)
	}
	for _, t := range ps.Tables() {
		v[t.Name] = slices.Clone(t.Data)
	}
	for _, b := range ps.BufferList() {
		v[b.Name] = slices.Clone(b.Data)
	}
	if m.State != nil {
		for i, s := range m.State.Slices() {
			v[fmt.Sprint("state ", i)] = slices.Clone(s)
		}
	}
	return v
}

func sameBits(t *testing.T, threads int, got, want map[string][]float32) {
	t.Helper()
	for name, v := range want {
		of := got[name]
		for i := range v {
			if math.Float32bits(of[i]) != math.Float32bits(v[i]) {
				t.Errorf("%d threads: %s[%d] = %v, with one it is %v", threads, name, i, of[i], v[i])
				break
			}
		}
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
			build := func(ps *nn.Params) model.Model { return spec.Build(ps, model.Options{Batch: c.batch, Dropout: -1}) }
			trial := newTrial(b, build, 1, c.momentum, randomBatch(spec, c.batch, c.ids, spec.Classes))
			trial.step()
			b.ReportAllocs()
			for b.Loop() {
				trial.step()
			}
		})
	}
}
