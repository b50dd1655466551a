package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// trunk is a model with every kind of parameter use: "tied" is used twice,
// "dead" only where the loss does not depend on it, "idle" not at all.
type trunk struct {
	ps               *Params
	tied, head, dead Layer
	idle             *Param
	x                *Tensor
	labels           []int32
}

func newTrunk(t *testing.T) *trunk {
	t.Helper()
	m := &trunk{ps: NewParams(7), x: NewTensor(3, 6), labels: []int32{0, 1, 3}}
	m.idle = m.ps.New("idle", Uniform(1), 5)
	m.tied, m.head = m.ps.Dense("tied", 6, 6), m.ps.Dense("head", 6, 4)
	m.dead = m.ps.Dense("dead", 6, 2)
	copy(m.x.Data, random(rand.New(rand.NewPCG(8, 9)), m.x.Len()))
	if err := m.ps.Arrange(m.loss); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *trunk) loss(t *Tape) *Tensor {
	h := t.Dense(m.x, m.tied, ReLU)
	t.Dense(h, m.dead, Identity)
	loss, _ := t.SoftmaxCrossEntropy(t.Dense(t.Dense(h, m.tied, ReLU), m.head, Identity), m.labels)
	return loss
}

func (m *trunk) names() []string {
	var names []string
	for _, s := range m.ps.Slots() {
		names = append(names, s.Name)
	}
	return names
}

// backward fills the gradients with NaN, runs a step's Backwards (the last one
// reporting) and returns the slots in the order reported. It fails when a
// reported gradient changes afterwards, or a slot is not reported once.
func (m *trunk) backward(t *testing.T, tape *Tape, runs int) []int {
	t.Helper()
	m.ps.ZeroGrads()
	for _, p := range m.ps.List() {
		for i := range p.Grad {
			p.Grad[i] = float32(math.NaN())
		}
	}
	for range runs - 1 {
		tape.Reset()
		tape.Backward(m.loss(tape), nil)
	}
	tape.Reset()
	var order []int
	final := map[int][]float32{}
	tape.Backward(m.loss(tape), func(slot int) {
		order = append(order, slot)
		final[slot] = slices.Clone(m.ps.List()[slot].Grad)
	})
	for slot, g := range final {
		if !slices.Equal(g, m.ps.List()[slot].Grad) {
			t.Errorf("%s was reported before its gradient was final, or is NaN", m.ps.List()[slot].Name)
		}
	}
	if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, sequence(len(m.ps.List()))) {
		t.Errorf("reported slots %v, want each once", order)
	}
	return order
}

func sequence(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// Slots lie in the order in which backward finishes them, and those that no loss needs come last.
// It holds invariant[arena-order].
func TestSlotsAreInFinishingOrder(t *testing.T) {
	m := newTrunk(t)
	want := []string{"head.weight", "head.bias", "tied.weight", "tied.bias", "idle", "dead.weight", "dead.bias"}
	if got := m.names(); !slices.Equal(got, want) {
		t.Errorf("slots %v, want %v", got, want)
	}
	tape := NewTape(TapeConfig{})
	for range 2 {
		if order := m.backward(t, tape, 1); !slices.Equal(order, sequence(7)) {
			t.Errorf("reported in the order %v", order)
		}
	}
	for _, name := range []string{"idle", "dead.weight"} {
		g := m.ps.List()[slices.Index(want, name)].Grad
		if !slices.Equal(g, make([]float32, len(g))) {
			t.Errorf("the gradient of the unused %s is %v", name, g)
		}
	}
}

// A step whose loss depends on no parameter reports all of them as zero.
func TestLossWithoutParameters(t *testing.T) {
	m := newTrunk(t)
	tape := NewTape(TapeConfig{})
	m.backward(t, tape, 1)
	tape.Reset()
	loss, _ := tape.SoftmaxCrossEntropy(m.x, m.labels)
	reported := 0
	tape.Backward(loss, func(int) { reported++ })
	if g := m.ps.Grads(); reported != 7 || !slices.Equal(g, make([]float32, len(g))) {
		t.Errorf("%d slots reported, gradients %v", reported, g)
	}
}

func TestAccumulation(t *testing.T) {
	m := newTrunk(t)
	tape := NewTape(TapeConfig{})
	m.backward(t, tape, 1)
	once := slices.Clone(m.ps.Grads())
	if order := m.backward(t, tape, 3); !slices.Equal(order, sequence(7)) {
		t.Errorf("reported in the order %v", order)
	}
	for i, g := range m.ps.Grads() {
		if !near(float64(g), 3*float64(once[i]), 1e-6) {
			t.Fatalf("gradient %d of three equal Backwards is %v, of one %v", i, g, once[i])
		}
	}
	// The step has ended: the next Backward starts anew.
	tape.Reset()
	tape.Backward(m.loss(tape), func(int) {})
	if !slices.Equal(once, m.ps.Grads()) {
		t.Error("the step after an accumulated one differs from one on its own")
	}
}

// What is accumulated counts, though the last Backward does not touch it.
func TestAccumulatedThenUntouched(t *testing.T) {
	m := newTrunk(t)
	tape := NewTape(TapeConfig{})
	tape.Backward(m.loss(tape), nil)
	tied := slices.Clone(m.tied.W.Grad)
	tape.Reset()
	loss, _ := tape.SoftmaxCrossEntropy(tape.Dense(m.x, m.head, Identity), m.labels)
	var order []int
	tape.Backward(loss, func(slot int) { order = append(order, slot) })
	if !slices.Equal(m.tied.W.Grad, tied) || !slices.Equal(order, sequence(7)) {
		t.Errorf("reported %v; gradient kept: %v", order, slices.Equal(m.tied.W.Grad, tied))
	}
}

func TestZeroGradsLeavesASum(t *testing.T) {
	m := newTrunk(t)
	tape := NewTape(TapeConfig{})
	tape.Backward(m.loss(tape), func(int) {})
	want := slices.Clone(m.ps.Grads())
	tape.Backward(m.loss(tape), nil)
	m.ps.ZeroGrads()
	tape.Reset()
	tape.Backward(m.loss(tape), func(int) {})
	if !slices.Equal(want, m.ps.Grads()) {
		t.Error("an unfinished sum was not forgotten")
	}
}

// A tape that has recorded other models and batch sizes gives the same bits as
// a fresh one, and so do other numbers of threads.
func TestReuseAndThreadsKeepTheBits(t *testing.T) {
	build := func(ps *Params) func(t *Tape, x *Tensor) *Tensor {
		c1, c2, fc := ps.Conv2D("c1", 1, 3, 3), ps.Conv2D("c2", 3, 4, 3), ps.Dense("fc", 4*4*4, 37)
		return func(t *Tape, x *Tensor) *Tensor {
			x = t.Conv2D(x, c1, Conv{MaxPool2: true, Activation: ReLU})
			return t.Dense(t.Flatten(t.Conv2D(x, c2, Conv{Activation: ReLU})), fc, ReLU)
		}
	}
	var want []float32
	for threads := 1; threads <= 3; threads++ {
		tape := NewTape(TapeConfig{Threads: threads})
		defer tape.Close()
		m := newTrunk(t)
		tape.Backward(m.loss(tape), nil)
		for _, n := range []int{2, 21, 13} {
			ps := NewParams(1)
			forward := build(ps)
			x := NewTensor(n, 14, 14, 1)
			copy(x.Data, random(rand.New(rand.NewPCG(3, 4)), x.Len()))
			loss := func(t *Tape) *Tensor {
				l, _ := t.SoftmaxCrossEntropy(forward(t, x), make([]int32, n))
				return l
			}
			if err := ps.Arrange(loss); err != nil {
				t.Fatal(err)
			}
			tape.Reset()
			tape.Backward(loss(tape), func(int) {})
			if n != 13 {
				continue
			}
			if want == nil {
				want = slices.Clone(ps.Grads())
			}
			if !slices.Equal(want, ps.Grads()) {
				t.Errorf("%d threads: other gradients than 1", threads)
			}
		}
	}
}

func TestEvalRecordsNothing(t *testing.T) {
	m := newTrunk(t)
	tape := NewTape(TapeConfig{})
	want := m.loss(tape).Data[0]
	tape.ResetEval()
	loss := m.loss(tape)
	if loss.Data[0] != want {
		t.Errorf("loss %v in evaluation, %v in training", loss.Data[0], want)
	}
	defer func() {
		if recover() == nil {
			t.Error("Backward after ResetEval did not panic")
		}
	}()
	tape.Backward(loss, nil)
}

func TestShapeErrors(t *testing.T) {
	ps := NewParams(1)
	dense, conv := ps.Dense("dense", 4, 3), ps.Conv2D("conv", 2, 3, 3)
	short := Layer{W: dense.W, B: ps.New("short", Zeros, 2)}
	cases := []struct {
		run  func(t *Tape)
		want string
	}{
		{func(t *Tape) { t.Dense(NewTensor(2, 5), dense, Identity) }, "dense dense.weight: got [2 5], want an input [n, 4], n > 0"},
		{func(t *Tape) { t.Dense(NewTensor(2, 4), short, Identity) }, "want one bias per output"},
		{func(t *Tape) { t.Dense(NewTensor(2, 4), conv, Identity) }, "want weights [out, in]"},
		{func(t *Tape) { t.Dense(NewTensor(0, 4), dense, Identity) }, "dense dense.weight: got [0 4]"},
		{func(t *Tape) { t.Conv2D(NewTensor(1, 8, 8, 1), conv, Conv{}) }, "convolution conv.weight: got [1 8 8 1], want an input [n, h, w, 2], n > 0"},
		{func(t *Tape) { t.Conv2D(NewTensor(1, 2, 8, 2), conv, Conv{}) }, "want a window that fits the image"},
		{func(t *Tape) { t.Conv2D(NewTensor(1, 8, 8, 2), conv, Conv{Pad: -1}) }, "want a window that fits the image"},
		{func(t *Tape) { t.Conv2D(NewTensor(1, 3, 8, 2), conv, Conv{MaxPool2: true}) }, "conv.weight: got [1 6], want a result of at least 2x2 before max-pooling"},
		{func(t *Tape) { t.Add(NewTensor(3, 3), NewTensor(3, 4)) }, "add: got [3 4]"},
		{func(t *Tape) { t.Add(NewTensor(2, 3), NewTensor(3, 2)) }, "add: got [3 2], want a shape that is broadcast with [2 3]"},
		{func(t *Tape) { t.Reshape(NewTensor(3, 4), 5) }, "reshape: got [5]"},
		{func(t *Tape) { t.SoftmaxCrossEntropy(NewTensor(2, 3), make([]int32, 1)) }, "want one label per sample"},
		{func(t *Tape) { t.SoftmaxCrossEntropy(NewTensor(1, 3), []int32{3}) }, "sample 0 has label 3, but there are 3 classes"},
		{func(t *Tape) { t.Backward(NewTensor(2), nil) }, "want a loss of one value"},
		{func(t *Tape) { t.Backward(nil, nil) }, "want a loss of one value"},
		{func(t *Tape) { NewTensor(-1) }, "want no negative dimension"},
		{func(t *Tape) { NewTape(TapeConfig{Threads: -1}) }, "threads -1"},
	}
	for _, c := range cases {
		t.Run(c.want, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panic %q, want it to hold %q", got, c.want)
				}
			}()
			c.run(NewTape(TapeConfig{}))
		})
	}
}
