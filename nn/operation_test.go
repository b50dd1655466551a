package nn

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// cube is x³ + w, with one value of w for each row of x; rows are the parts.
var cube = &Operation{
	Name: "cube",
	Forward: func(p *Pass) {
		x, w, y := p.Inputs[0], p.Params[0], p.Output
		n := x.Shape[1]
		squares := p.Keep(0, x.Len())
		for i, v := range x.Data {
			squares[i] = v * v
			y.Data[i] = squares[i]*v + w.Data[i/n]
		}
	},
	Backward: func(p *Pass) {
		dx, n, squares := p.InputGrads[0], p.Inputs[0].Shape[1], p.Keep(0, len(p.OutputGrad))
		for i, g := range p.OutputGrad {
			if dx != nil {
				dx[i] += 3 * squares[i] * g
			}
			if w := p.Params[0].Grad; w != nil {
				w[i/n] += g
			}
		}
	},
}

func TestOperationOfOnesOwn(t *testing.T) {
	for threads := 1; threads <= 2; threads++ {
		ps, x := NewParams(1), NewTensor(3, 4)
		copy(x.Data, random(rand.New(rand.NewPCG(1, 2)), 12))
		x.RetainGrad()
		w := ps.New("w", Uniform(1), 3)
		c := random(rand.New(rand.NewPCG(3, 4)), 12)
		loss := func(t *Tape) *Tensor { // x is used twice, and so is w
			return t.dot(t.Add(t.Apply(cube, x.Shape, []*Tensor{x}, w), t.Apply(cube, x.Shape, []*Tensor{x}, w)), c)
		}
		if err := ps.Arrange(loss); err != nil {
			t.Fatal(err)
		}
		tape := NewTape(TapeConfig{Threads: threads})
		defer tape.Close()
		ready := func(int) {}
		step := func() {
			tape.Reset()
			tape.Backward(loss(tape), ready)
		}
		step()
		var dw [3]float64
		for i, v := range x.Data {
			dw[i/4] += 2 * float64(c[i])
			if want := 6 * float64(v) * float64(v) * float64(c[i]); !near(want, float64(x.Grad()[i]), 1e-5) {
				t.Errorf("dx[%d] = %v, want %v", i, x.Grad()[i], want)
			}
		}
		for i, want := range dw {
			if !near(want, float64(w.Grad[i]), 1e-5) {
				t.Errorf("dw[%d] = %v, want %v", i, w.Grad[i], want)
			}
		}
		step()
		if n := testing.AllocsPerRun(5, step); n != 0 && !raceDetector {
			t.Errorf("%v allocations a step, want 0", n)
		}
	}
}

// Neither an operation without Backward nor Detach lets a gradient through.
func TestNoGradientFlowsThrough(t *testing.T) {
	for name, stop := range map[string]func(t *Tape, x *Tensor) *Tensor{
		"detach": (*Tape).Detach,
		"operation": func(t *Tape, x *Tensor) *Tensor {
			return t.Apply(&Operation{Name: "same", Forward: func(p *Pass) { copy(p.Output.Data, p.Inputs[0].Data) }}, x.Shape, []*Tensor{x})
		},
	} {
		ps, x := NewParams(1), NewTensor(2, 3)
		l := ps.Dense("l", 3, 3)
		fill(x.Data, 1)
		loss := func(t *Tape) *Tensor {
			h := t.Dense(x, l, Identity)
			return t.dot(t.Add(h, stop(t, h)), []float32{1, 1, 1, 1, 1, 1})
		}
		if err := ps.Arrange(loss); err != nil {
			t.Fatal(err)
		}
		tape := NewTape(TapeConfig{})
		y := loss(tape)
		tape.Backward(y, func(int) {})
		if want := []float32{2, 2, 2}; !slices.Equal(l.B.Grad, want) {
			t.Errorf("%s: the bias's gradient is %v, want %v: that of one path", name, l.B.Grad, want)
		}
	}
}

// A model cut in two, one half after the other, has the gradients of the whole.
func TestBackwardFromSeeds(t *testing.T) {
	build := func() (ps *Params, a, b Layer) {
		ps = NewParams(5)
		return ps, ps.Dense("a", 4, 6), ps.Dense("b", 4, 3)
	}
	x := NewTensor(5, 4)
	copy(x.Data, random(rand.New(rand.NewPCG(5, 6)), x.Len()))
	c := random(rand.New(rand.NewPCG(7, 8)), 5*9)
	tail := func(t *Tape, h, g *Tensor) *Tensor { return t.Add(t.dot(t.Tanh(h), c[:30]), t.dot(t.Tanh(g), c[30:])) }

	whole, a, b := build()
	all := func(t *Tape) *Tensor { return tail(t, t.Dense(x, a, Identity), t.Dense(x, b, Identity)) }
	if err := whole.Arrange(all); err != nil {
		t.Fatal(err)
	}
	tape := NewTape(TapeConfig{})
	tape.Backward(all(tape), func(int) {})

	half, a, b := build()
	head := func(t *Tape) []*Tensor { return []*Tensor{t.Dense(x, a, Identity), t.Dense(x, b, Identity)} }
	if err := half.ArrangeOutputs(head); err != nil {
		t.Fatal(err)
	}
	first, second := NewTape(TapeConfig{}), NewTape(TapeConfig{})
	out := head(first)
	h, g := NewTensor(5, 6), NewTensor(5, 3)
	copy(h.Data, out[0].Data)
	copy(g.Data, out[1].Data)
	h.RetainGrad()
	g.RetainGrad()
	second.Backward(tail(second, h, g), nil)
	var order []int
	first.BackwardFrom(out, [][]float32{h.Grad(), g.Grad()}, func(slot int) { order = append(order, slot) })
	if !slices.Equal(half.Grads(), whole.Grads()) || !slices.Equal(order, sequence(4)) {
		t.Errorf("gradients %v in the order %v, want %v", half.Grads(), order, whole.Grads())
	}
	first.BackwardFrom([]*Tensor{out[0], out[0], out[1]}, [][]float32{h.Grad(), h.Grad(), g.Grad()}, func(int) {})
	for i, v := range a.W.Grad {
		if want := 2 * whole.List()[slices.IndexFunc(whole.List(), func(p *Param) bool { return p.Name == a.W.Name })].Grad[i]; !near(float64(v), float64(want), 1e-6) {
			t.Fatalf("an output that comes twice: gradient %v, want %v", v, want)
		}
	}
}

func TestGradOfAResult(t *testing.T) {
	x := NewTensor(4)
	copy(x.Data, []float32{1, 2, 3, 4})
	tape := NewTape(TapeConfig{})
	for _, leaf := range []bool{false, true} {
		if leaf {
			x.RetainGrad()
		}
		tape.Reset()
		h := tape.Tanh(x)
		other := tape.Tanh(h)
		if h.Grad() != nil {
			t.Error("a gradient before Backward")
		}
		h.RetainGrad()
		other.RetainGrad()
		y := tape.Sigmoid(h) // whose backward hands the memory on
		tape.Backward(tape.dot(y, []float32{1, 2, 3, 4}), nil)
		for i, v := range y.Data {
			if want := float64(i+1) * float64(v) * (1 - float64(v)); len(h.Grad()) != 4 || !near(float64(h.Grad()[i]), want, 1e-6) {
				t.Fatalf("gradient %v, value %d should be %v", h.Grad(), i, want)
			}
		}
		if (x.Grad() != nil) != leaf || other.Grad() != nil || y.Grad() != nil {
			t.Errorf("gradients %v of x, %v of what the loss does not need, %v of what was not asked for", x.Grad(), other.Grad(), y.Grad())
		}
	}
}

func TestOperationFaults(t *testing.T) {
	x := NewTensor(2, 2)
	forward := &Operation{Name: "mine", Forward: func(*Pass) {}}
	for want, f := range map[string]func(t *Tape){
		"operation: got [], want one with a Forward": func(t *Tape) { t.Apply(&Operation{}, []int{1}, nil) },
		"mine: got [1], want inputs that are not nil": func(t *Tape) {
			t.Apply(forward, []int{1}, []*Tensor{x, nil})
		},
		"mine: got [0], want parameters":                func(t *Tape) { t.Apply(forward, []int{1}, nil, nil) },
		"backward: got [1 0], want a seed for each":     func(t *Tape) { t.BackwardFrom([]*Tensor{x}, nil, nil) },
		"backward: got [3 2 2], want a seed of as many": func(t *Tape) { t.BackwardFrom([]*Tensor{x}, [][]float32{{1, 2, 3}}, nil) },
	} {
		wantShapeError(t, want, f)
	}
}

// wantShapeError fails unless f panics with a *ShapeError that holds want.
func wantShapeError(t *testing.T, want string, f func(t *Tape)) {
	t.Helper()
	defer func() {
		t.Helper()
		err, _ := recover().(error)
		var shape *ShapeError
		if !errors.As(err, &shape) || !strings.Contains(err.Error(), want) {
			t.Errorf("panic %v, want a shape error that holds %q", err, want)
		}
	}()
	f(NewTape(TapeConfig{}))
}
