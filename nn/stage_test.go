package nn

import (
	"slices"
	"testing"
)

// A mark changes nothing: the same operations, the same bits, no memory. Diverted, the part's result is whatever was returned.
func TestOn(t *testing.T) {
	ps := NewParams(1)
	l := ps.Dense("fc", 3, 2)
	x := NewTensor(4, 3)
	for i := range x.Data {
		x.Data[i] = float32(i)
	}
	part := func(t *Tape, x []*Tensor) *Tensor { return t.Add(t.Dense(x[0], l, ReLU), x[1]) }
	y := NewTensor(4, 2)
	marked := func(t *Tape) *Tensor { return t.Mean(t.OnDevice("elsewhere", part, x, y), 0, 1) }
	plain := func(t *Tape) *Tensor { return t.Mean(t.Add(t.Dense(x, l, ReLU), y), 0, 1) }
	if err := ps.Arrange(func(t *Tape) *Tensor { return t.Reshape(marked(t), 1) }); err != nil {
		t.Fatal(err)
	}
	tape := NewTape(TapeConfig{})
	defer tape.Close()
	run := func(forward func(t *Tape) *Tensor) ([]float32, []float32) {
		tape.Reset()
		loss := tape.Reshape(forward(tape), 1)
		tape.Backward(loss, func(int) {})
		return loss.Data, ps.Grads()
	}
	loss, grads := run(plain)
	loss, grads = slices.Clone(loss), slices.Clone(grads)
	gotLoss, gotGrads := run(marked)
	if !slices.Equal(gotLoss, loss) || !slices.Equal(gotGrads, grads) {
		t.Errorf("marked: loss %v and gradients %v, want %v and %v", gotLoss, gotGrads, loss, grads)
	}
	if n := testing.AllocsPerRun(10, func() { tape.ResetEval(); tape.OnDevice("elsewhere", part, x, y) }); n != 0 {
		t.Errorf("a mark makes %v allocations", n)
	}
	var given []*Tensor
	tape.Intercept(func(place string, _ Stage, x []*Tensor) *Tensor {
		if place != "elsewhere" {
			t.Errorf("place %q", place)
		}
		given = slices.Clone(x)
		return y
	})
	tape.ResetEval()
	if got := tape.OnDevice("elsewhere", part, x, y); got != y || !slices.Equal(given, []*Tensor{x, y}) {
		t.Errorf("diverted: result %p, given %p; want %p, and %p and %[3]p", got, given, y, x)
	}
	tape.Intercept(nil)
	if got := tape.OnDevice("elsewhere", part, x, y); got == y {
		t.Error("it is still diverted")
	}
}
