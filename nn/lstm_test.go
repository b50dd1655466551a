package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// lstmScene is two layers of LSTM over a few steps, with a loss.
type lstmScene struct {
	steps, n, in, hidden int

	ps     *Params
	x      *Tensor
	layers [2]LSTMLayer
	state  [2]LSTMState
	c      []float32
}

func newLSTMScene(t testing.TB, steps, n, in, hidden int) *lstmScene {
	t.Helper()
	r := rand.New(rand.NewPCG(51, 52))
	m := &lstmScene{steps: steps, n: n, in: in, hidden: hidden, ps: NewParams(1), x: NewTensor(steps*n, in)}
	copy(m.x.Data, random(r, m.x.Len()))
	m.x.needs = true
	m.layers = [2]LSTMLayer{m.ps.LSTM("a", Uniform(0.7), in, hidden), m.ps.LSTM("b", Uniform(0.7), hidden, hidden)}
	m.c = random(r, steps*n*hidden)
	for i := range m.state {
		m.state[i] = LSTMState{H: random(r, n*hidden), C: random(r, n*hidden)}
	}
	if err := m.ps.Arrange(func(t *Tape) *Tensor { return m.loss(t, m.copyState()) }); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *lstmScene) copyState() *[2]LSTMState {
	var s [2]LSTMState
	for i, v := range m.state {
		s[i] = LSTMState{H: slices.Clone(v.H), C: slices.Clone(v.C)}
	}
	return &s
}

func (m *lstmScene) loss(t *Tape, state *[2]LSTMState) *Tensor {
	y := m.x
	for i, l := range m.layers {
		y = t.LSTM(y, l, &state[i], m.steps)
	}
	return t.dot(y, m.c)
}

// naive is the loss in float64, with the states it ends in.
func (m *lstmScene) naive() (loss float64, state [2]LSTMState) {
	squash := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	y, in := wide(m.x.Data), m.in
	for i, l := range m.layers {
		h, c := wide(m.state[i].H), wide(m.state[i].C)
		out := make([]float64, 0, m.steps*m.n*m.hidden)
		for s := range m.steps {
			next := make([]float64, len(h))
			for r := range m.n {
				for j := range m.hidden {
					var sums [4]float64
					for g := range sums {
						row := g*m.hidden + j
						sums[g] = float64(l.BiasIH.Data[row]) + float64(l.BiasHH.Data[row])
						for k := range in {
							sums[g] += y[(s*m.n+r)*in+k] * float64(l.WeightIH.Data[row*in+k])
						}
						for k := range m.hidden {
							sums[g] += h[r*m.hidden+k] * float64(l.WeightHH.Data[row*m.hidden+k])
						}
					}
					at := r*m.hidden + j
					c[at] = squash(sums[1])*c[at] + squash(sums[0])*math.Tanh(sums[2])
					next[at] = squash(sums[3]) * math.Tanh(c[at])
				}
			}
			h = next
			out = append(out, h...)
		}
		y, in = out, m.hidden
		state[i] = LSTMState{H: narrow(h), C: narrow(c)}
	}
	for i, v := range y {
		loss += v * float64(m.c[i])
	}
	return loss, state
}

func narrow(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

var lstmSizes = [][4]int{{4, 3, 5, 18}, {1, 2, 3, 1}, {3, 1, 33, 37}}

func TestLSTMAgainstTwin(t *testing.T) {
	for _, size := range lstmSizes {
		m := newLSTMScene(t, size[0], size[1], size[2], size[3])
		want, last := m.naive()
		eachTape(t, func(t *testing.T, tape *Tape) {
			state := m.copyState()
			tape.Reset()
			loss := m.loss(tape, state)
			if !near(float64(loss.Data[0]), want, 1e-5) {
				t.Fatalf("%v: loss %v, the twin has %v", size, loss.Data[0], want)
			}
			for i := range state {
				for j := range state[i].H {
					if !near(float64(state[i].H[j]), float64(last[i].H[j]), 1e-5) || !near(float64(state[i].C[j]), float64(last[i].C[j]), 1e-5) {
						t.Fatalf("%v: the state carried out of layer %d is not the twin's", size, i)
					}
				}
			}
			tape.Backward(loss, func(int) {})
			m.checkSlopes(t)
		})
	}
}

// checkSlopes compares gradients with the twin's central differences, along
// some values of each operand.
func (m *lstmScene) checkSlopes(t *testing.T) {
	t.Helper()
	operands := map[string][2][]float32{"x": {m.x.Data, m.x.gradient()}}
	for _, p := range m.ps.List() {
		operands[p.Name] = [2][]float32{p.Data, p.Grad}
	}
	for name, v := range operands {
		for i := 0; i < len(v[0]); i += 1 + len(v[0])/7 {
			const h = 1.0 / 256
			at := func(d float32) float64 {
				old := v[0][i]
				v[0][i] += d
				loss, _ := m.naive()
				v[0][i] = old
				return loss
			}
			slope := (at(h) - at(-h)) / (2 * h)
			if !near(slope, float64(v[1][i]), 1e-3) {
				t.Fatalf("d%s[%d] = %v, the twin has %v", name, i, v[1][i], slope)
			}
		}
	}
}

// Two sequences one after the other, the state carried over, give the same as
// one of twice the length.
func TestLSTMCarriesItsState(t *testing.T) {
	m := newLSTMScene(t, 6, 3, 5, 18)
	tape := NewTape(TapeConfig{})
	state := m.copyState()
	m.loss(tape, state)
	want, whole := slices.Clone(tape.ops[1].result().Data), m.x.Data
	m.steps, m.x, state = 3, NewTensor(9, 5), m.copyState()
	for half := range 2 {
		copy(m.x.Data, whole[half*45:])
		tape.Reset()
		m.loss(tape, state)
		if got := tape.ops[1].result().Data; !slices.Equal(got, want[half*len(got):][:len(got)]) {
			t.Errorf("half %d differs", half)
		}
	}
	tape.Reset()
	y := tape.LSTM(m.x, m.layers[0], nil, 3)
	zero := LSTMState{H: make([]float32, 54), C: make([]float32, 54)}
	if z := tape.LSTM(m.x, m.layers[0], &zero, 3); !slices.Equal(y.Data, z.Data) {
		t.Error("without a state it does not begin at zero")
	}
}

func TestLSTMBitsDoNotDependOnThreads(t *testing.T) {
	m := newLSTMScene(t, 5, 7, 40, 70)
	for _, k := range simd.Levels() {
		var want []float32
		for threads := 1; threads <= 3; threads++ {
			tape := NewTape(TapeConfig{Kernels: k, Threads: threads})
			for range 2 { // the second one adds to the first
				tape.Reset()
				tape.Backward(m.loss(tape, m.copyState()), nil)
			}
			tape.Reset()
			tape.Backward(m.loss(tape, m.copyState()), func(int) {})
			got := append(slices.Clone(m.ps.Grads()), m.x.gradient()...)
			if want == nil {
				want = got
			} else if !slices.Equal(got, want) {
				t.Errorf("%s: other gradients with %d threads", k.Name(), threads)
			}
			tape.Close()
		}
	}
}

func TestLSTMDoesNotAllocate(t *testing.T) {
	m := newLSTMScene(t, 3, 2, 40, 33)
	for threads := 1; threads <= 2; threads++ {
		tape := NewTape(TapeConfig{Threads: threads})
		defer tape.Close()
		state, ready := m.copyState(), func(int) {}
		step := func() {
			tape.Reset()
			tape.Backward(m.loss(tape, state), ready)
		}
		step()
		step()
		if n := testing.AllocsPerRun(5, step); n != 0 {
			t.Errorf("%d threads: a steady step makes %v allocations, want 0", threads, n)
		}
	}
}

func TestLSTMWantsShapesThatFit(t *testing.T) {
	m := newLSTMScene(t, 4, 3, 5, 18)
	l := m.layers[0]
	for name, f := range map[string]func(t *Tape){
		"steps":  func(t *Tape) { t.LSTM(m.x, l, nil, 5) },
		"none":   func(t *Tape) { t.LSTM(m.x, l, nil, 0) },
		"width":  func(t *Tape) { t.LSTM(m.x, m.layers[1], nil, 4) },
		"state":  func(t *Tape) { t.LSTM(m.x, l, &LSTMState{}, 4) },
		"hidden": func(t *Tape) { t.LSTM(m.x, LSTMLayer{l.WeightIH, l.WeightIH, l.BiasIH, l.BiasHH}, nil, 4) },
		"bias":   func(t *Tape) { t.LSTM(m.x, LSTMLayer{l.WeightIH, l.WeightHH, l.BiasIH, l.WeightHH}, nil, 4) },
	} {
		err := func() (err any) {
			defer func() { err = recover() }()
			f(NewTape(TapeConfig{}))
			return nil
		}()
		if _, ok := err.(*ShapeError); !ok {
			t.Errorf("%s: %v, want a shape error", name, err)
		}
	}
}

// BenchmarkLSTM is a layer of the word language model.
func BenchmarkLSTM(b *testing.B) {
	const steps, n, width = 35, 20, 650
	m := newLSTMScene(b, steps, n, width, width)
	tape := NewTape(TapeConfig{})
	state, ready := m.copyState(), func(int) {}
	flops := 2.0 * 2 * steps * n * 4 * width * 2 * width
	for _, backward := range []bool{false, true} {
		b.Run(fmt.Sprintf("backward=%v", backward), func(b *testing.B) {
			for b.Loop() {
				tape.Reset()
				loss := m.loss(tape, state)
				if backward {
					tape.Backward(loss, ready)
				}
			}
			if backward {
				flops *= 3
			}
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
