package nn_test

import (
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// mnistStep is the reference run's training step, ready to be repeated.
func mnistStep(tb testing.TB, batch, threads int) (step func() float32, params *nn.Params) {
	tb.Helper()
	spec, err := models.Lookup("mnist")
	if err != nil {
		tb.Fatal(err)
	}
	params = nn.NewParams(1)
	m := spec.Build(params, model.Options{})
	x, labels := nn.NewTensor(batch, 28, 28, 1), make([]int32, batch)
	for i := range x.Data {
		x.Data[i] = float32((i*7919)%256) / 255
	}
	for i := range labels {
		labels[i] = int32(i % 10)
	}
	loss := func(t *nn.Tape) *nn.Tensor {
		return m.Pass(t, model.Batch{N: batch, Values: x, Labels: labels}).Loss.Mean
	}
	if err := params.Arrange(loss); err != nil {
		tb.Fatal(err)
	}
	sgd := &optim.SGD{LR: 0.02, Momentum: 0.9, WeightDecay: 1e-5}
	if err := sgd.Bind(len(params.Values())); err != nil {
		tb.Fatal(err)
	}
	tape := nn.NewTape(nn.TapeConfig{Threads: threads})
	tb.Cleanup(tape.Close)
	ready := func(int) {}
	return func() float32 {
		tape.Reset()
		l := loss(tape)
		tape.Backward(l, ready)
		sgd.BeginStep()
		sgd.Update(0, params.Values(), params.Grads(), 1)
		return l.Data[0]
	}, params
}

func TestStepLearns(t *testing.T) {
	step, params := mnistStep(t, 2, 1)
	if params.Count() != 431080 {
		t.Errorf("%d parameters, want 431080", params.Count())
	}
	first, last := step(), float32(0)
	for range 20 {
		last = step()
	}
	if !(last < 0.8*first) {
		t.Errorf("the loss of a repeated batch went from %v to %v", first, last)
	}
}

func TestStepDoesNotAllocate(t *testing.T) {
	step, _ := mnistStep(t, 2, 1)
	step()
	if n := testing.AllocsPerRun(3, func() { step() }); n != 0 {
		t.Errorf("a steady step makes %v allocations, want 0", n)
	}
}

func BenchmarkStep(b *testing.B) {
	step, _ := mnistStep(b, 64, 1)
	step()
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
}
