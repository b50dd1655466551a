package nn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// gruTwin is a layer over steps·n rows that begins at h, in float64.
func gruTwin(x, h []float64, p [4][]float64, steps, n, in, hidden int) (y []float64) {
	squash := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for s := range steps {
		next := make([]float64, n*hidden)
		for r := range n {
			for j := range hidden {
				var i, u [3]float64
				for g := range 3 {
					row := g*hidden + j
					i[g], u[g] = p[2][row], p[3][row]
					for k := range in {
						i[g] += x[(s*n+r)*in+k] * p[0][row*in+k]
					}
					for k := range hidden {
						u[g] += h[r*hidden+k] * p[1][row*hidden+k]
					}
				}
				z := squash(i[1] + u[1])
				next[r*hidden+j] = (1-z)*math.Tanh(i[2]+squash(i[0]+u[0])*u[2]) + z*h[r*hidden+j]
			}
		}
		h = next
		y = append(y, h...)
	}
	return y
}

// gruScene is a layer over a few steps, used twice, with a loss.
type gruScene struct {
	steps, n, in, hidden int

	ps    *Params
	x     *Tensor
	l     GRULayer
	state []float32
	c     []float32
}

func newGRUScene(t testing.TB, steps, n, in, hidden int) *gruScene {
	r := rand.New(rand.NewPCG(1, 2))
	m := &gruScene{steps: steps, n: n, in: in, hidden: hidden, ps: NewParams(1), x: NewTensor(steps*n, in)}
	copy(m.x.Data, random(r, m.x.Len()))
	m.x.RetainGrad()
	m.l = m.ps.GRU("a", Uniform(0.7), in, hidden)
	m.c, m.state = random(r, steps*n*hidden), random(r, n*hidden)
	if err := m.ps.Arrange(func(t *Tape) *Tensor { return m.loss(t, slices.Clone(m.state)) }); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *gruScene) loss(t *Tape, state []float32) *Tensor {
	return t.dot(t.GRU(m.x, m.l, state, m.steps), m.c)
}

func (m *gruScene) naive() (loss float64) {
	p := [4][]float64{wide(m.l.WeightIH.Data), wide(m.l.WeightHH.Data), wide(m.l.BiasIH.Data), wide(m.l.BiasHH.Data)}
	for i, v := range gruTwin(wide(m.x.Data), wide(m.state), p, m.steps, m.n, m.in, m.hidden) {
		loss += v * float64(m.c[i])
	}
	return loss
}

func TestGRUAgainstTwin(t *testing.T) {
	for _, size := range lstmSizes {
		m := newGRUScene(t, size[0], size[1], size[2], size[3])
		want := m.naive()
		eachTape(t, func(t *testing.T, tape *Tape) {
			loss := m.loss(tape, slices.Clone(m.state))
			if !near(float64(loss.Data[0]), want, 1e-5) {
				t.Fatalf("%v: loss %v, the twin has %v", size, loss.Data[0], want)
			}
			tape.Backward(loss, func(int) {})
			m.checkSlopes(t)
		})
	}
}

func (m *gruScene) checkSlopes(t *testing.T) {
	t.Helper()
	operands := map[string][2][]float32{"x": {m.x.Data, m.x.Grad()}}
	for _, p := range m.ps.List() {
		operands[p.Name] = [2][]float32{p.Data, p.Grad}
	}
	for name, v := range operands {
		for i := 0; i < len(v[0]); i += 1 + len(v[0])/7 {
			const h = 1.0 / 256
			at := func(d float32) float64 {
				old := v[0][i]
				v[0][i] += d
				loss := m.naive()
				v[0][i] = old
				return loss
			}
			if slope := (at(h) - at(-h)) / (2 * h); !near(slope, float64(v[1][i]), 1e-3) {
				t.Fatalf("d%s[%d] = %v, the twin has %v", name, i, v[1][i], slope)
			}
		}
	}
}

// Halves with the state carried over are the whole; any number of threads has the same bits and allocates nothing; two Backwards add up.
func TestGRUBits(t *testing.T) {
	m := newGRUScene(t, 6, 3, 5, 35)
	var want []float32
	for threads := 1; threads <= 3; threads++ {
		tape := NewTape(TapeConfig{Threads: threads})
		defer tape.Close()
		state, ready := slices.Clone(m.state), func(int) {}
		step := func() {
			copy(state, m.state)
			tape.Reset()
			tape.Backward(m.loss(tape, state), ready)
		}
		step()
		got := slices.Concat(state, m.x.Grad(), m.ps.Grads())
		if threads == 1 {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d threads have other bits than 1", threads)
		}
		step()
		if n := testing.AllocsPerRun(3, step); n != 0 {
			t.Errorf("%v allocations a step, want 0", n)
		}
		once := slices.Clone(m.ps.Grads())
		tape.Reset()
		tape.Backward(m.loss(tape, slices.Clone(m.state)), nil)
		step()
		for i, v := range m.ps.Grads() {
			if !near(float64(v), 2*float64(once[i]), 1e-5) {
				t.Fatalf("gradient %d of two Backwards is %v, of one %v", i, v, once[i])
			}
		}
	}
	tape := NewTape(TapeConfig{})
	state := slices.Clone(m.state)
	whole := slices.Clone(tape.GRU(m.x, m.l, state, 6).Data)
	half, again := NewTensor(9, 5), slices.Clone(m.state)
	for i := range 2 {
		copy(half.Data, m.x.Data[i*45:])
		if got := tape.GRU(half, m.l, again, 3).Data; !slices.Equal(got, whole[i*len(got):][:len(got)]) {
			t.Errorf("half %d differs", i)
		}
	}
}

func TestGRUFaults(t *testing.T) {
	m := newGRUScene(t, 4, 3, 5, 6)
	l := m.l
	for want, f := range map[string]func(t *Tape){
		"gru a.weight_ih: got [12 5], want an input [5*n, 5]":       func(t *Tape) { t.GRU(m.x, l, nil, 5) },
		"gru a.weight_ih: got [2], want a state of n*hidden values": func(t *Tape) { t.GRU(m.x, l, make([]float32, 2), 4) },
		"gru a.weight_ih: got [18 5], want recurrent weights":       func(t *Tape) { t.GRU(m.x, GRULayer{l.WeightIH, l.WeightIH, l.BiasIH, l.BiasHH}, nil, 4) },
		"gru a.weight_ih: got [108 18], want two biases":            func(t *Tape) { t.GRU(m.x, GRULayer{l.WeightIH, l.WeightHH, l.WeightHH, l.BiasHH}, nil, 4) },
		"gru a.bias_ih: got [18], want weights [3*hidden, in]":      func(t *Tape) { t.GRU(m.x, GRULayer{l.BiasIH, l.WeightHH, l.BiasIH, l.BiasHH}, nil, 4) },
	} {
		wantShapeError(t, want, f)
	}
}
