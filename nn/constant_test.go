package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// inference is one layer of each kind that keeps something of its weights.
type inference struct {
	ps      *Params
	small   Layer // of few tiles
	large   Layer // of many
	windows Layer
	dense   Layer
	lstm    LSTMLayer
}

func newInference(t *testing.T) *inference {
	ps := NewParams(9)
	m := &inference{
		ps: ps, small: ps.Conv2D("small", 16, 272, 3), large: ps.Conv2D("large", 16, 32, 3), windows: ps.Conv2D("windows", 16, 9, 5),
		dense: ps.Dense("dense", 70, 90), lstm: ps.LSTM("lstm", Uniform(0.2), 70, 24),
	}
	if err := ps.Arrange(func(t *Tape) *Tensor { return t.Sum(m.outputs(t, 1, 24)[0]) }); err != nil {
		t.Fatal(err)
	}
	return m
}

// outputs are those of all layers, for n samples of images of a side.
func (m *inference) outputs(t *Tape, n, side int) []*Tensor {
	small, large, rows := values(n, 4, 4, 16), values(n, side, side, 16), values(2*n, 70)
	return []*Tensor{
		t.Conv2D(small, m.small, Conv{Pad: 1}), t.Conv2D(large, m.large, Conv{Pad: 1, Activation: ReLU}), t.Conv2D(large, m.windows, Conv{}),
		t.Dense(rows, m.dense, Tanh), t.Dense(rows, m.dense, ReLU), t.LSTM(rows, m.lstm, nil, 2),
	}
}

// A tape whose parameters are constant computes what one computes that reads them each time, the first time and the next ones,
// with other batches between, on every level of instructions and whatever number of threads.
func TestConstantParameters(t *testing.T) {
	m := newInference(t)
	for _, k := range simd.Levels() {
		for _, threads := range []int{1, 3} {
			constant, plain := NewTape(TapeConfig{Kernels: k, Threads: threads, Constant: true}), NewTape(TapeConfig{Kernels: k})
			for _, n := range []int{1, 1, 60, 1} {
				constant.ResetEval()
				plain.ResetEval()
				want := m.outputs(plain, n, 10)
				for i, got := range m.outputs(constant, n, 10) {
					if d := apartAtMost(got.Data, want[i].Data); d > 1e-5 { // tiles round a little more than windows
						t.Errorf("%s, %d threads, %d samples: output %d is %v of the largest value apart", k.Name(), threads, n, i, d)
					}
				}
			}
			constant.Close()
		}
	}
}

// apartAtMost is the largest distance of two values as a share of the largest.
func apartAtMost(a, b []float32) float64 {
	most, far := 0.0, 0.0
	for i := range b {
		most = max(most, math.Abs(float64(b[i])))
		far = max(far, math.Abs(float64(a[i])-float64(b[i])))
	}
	return far / most
}

// Constant parameters have the same bits on any number of threads, and are really read once: what is written over them later is not
// seen.
func TestConstantParametersAreReadOnce(t *testing.T) {
	var want []float32
	for _, threads := range []int{1, 2, 3, 7} {
		m := newInference(t)
		tape := NewTape(TapeConfig{Threads: threads, Constant: true})
		var first []float32
		for pass := range 2 {
			tape.ResetEval()
			var all []float32
			for _, y := range m.outputs(tape, 1, 24) {
				all = append(all, y.Data...)
			}
			if pass == 0 {
				first = all
				for _, p := range m.ps.List() {
					if p != m.lstm.BiasIH && p != m.lstm.BiasHH && len(p.Shape) > 1 {
						clear(p.Data)
					}
				}
			} else if !slices.Equal(all, first) {
				t.Errorf("%d threads: the second pass has other values", threads)
			}
		}
		if want == nil {
			want = first
		}
		if i := firstDifference(first, want); i >= 0 {
			t.Errorf("%d threads: value %d is %v, of one thread %v", threads, i, first[i], want[i])
		}
		tape.Close()
	}
}

// It keeps nothing anew: a steady evaluation allocates nothing.
func TestConstantParametersDoNotAllocate(t *testing.T) {
	m := newInference(t)
	tape := NewTape(TapeConfig{Constant: true})
	x := values(3, 70)
	step := func() {
		tape.ResetEval()
		tape.Dense(x, m.dense, ReLU)
		tape.LSTM(x, m.lstm, nil, 1)
	}
	step()
	if n := testing.AllocsPerRun(10, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestConstantParametersAreNotTrained(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a tape of constant parameters began a step of training")
		}
	}()
	NewTape(TapeConfig{Constant: true}).Reset()
}

// Few tiles of many channels are windows in evaluations, and tiles in training, whose bits do not change.
func TestFewTilesAreWindows(t *testing.T) {
	for _, c := range []struct {
		images, h, w int
		made, few    bool
	}{
		{1, 4, 4, true, true}, {1, 4, 4, false, true}, {1, 2, 2, true, true}, {1, 8, 8, true, false}, {1, 8, 8, false, true},
		{1, 32, 32, false, false}, {32, 4, 4, true, false}, {32, 4, 4, false, false}, {64, 2, 2, false, false},
	} {
		if got := newTileGrid(nil, c.images, c.h, c.w).few(c.images*c.h*c.w, c.made); got != c.few {
			t.Errorf("%+v: %v", c, got)
		}
	}
	ps := NewParams(1)
	l := ps.Conv2D("conv", 16, 16, 3)
	if err := ps.Arrange(func(t *Tape) *Tensor { return t.Sum(t.Conv2D(NewTensor(1, 4, 4, 16), l, Conv{Pad: 1})) }); err != nil {
		t.Fatal(err)
	}
	x := values(1, 4, 4, 16)
	tape := NewTape(TapeConfig{})
	for _, eval := range []bool{false, true} {
		if eval {
			tape.ResetEval()
		} else {
			tape.Reset()
		}
		tape.Conv2D(x, l, Conv{Pad: 1})
		if _, tiles := tape.ops[0].(*convOp).algo.(winograd); tiles == eval {
			t.Errorf("evaluation %v: tiles %v", eval, tiles)
		}
	}
}
