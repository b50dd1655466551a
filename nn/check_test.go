package nn

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// slanted is x·w with a slope that is wrong by a factor; 1 is right.
func slanted(factor float32) *Operation {
	return &Operation{Name: "slanted", Forward: func(p *Pass) {
		for i, v := range p.Inputs[0].Data {
			p.Output.Data[i] = v * p.Params[0].Data[0]
		}
	}, Backward: func(p *Pass) {
		for i, g := range p.OutputGrad {
			p.Params[0].Grad[0] += g * p.Inputs[0].Data[i]
			if p.InputGrads[0] != nil {
				p.InputGrads[0][i] += factor * g * p.Params[0].Data[0]
			}
		}
	}}
}

// A right gradient passes, next to kinks, too; one that is 5 % wrong is named with its tensor and
// value.
func TestCheckGradientsNamesWrongOnes(t *testing.T) {
	for factor, want := range map[float32]string{1: "", 1.05: "gradient of input 0: value 0", 0: "gradient of input 0: value 0"} {
		ps, x := NewParams(1), NewTensor(3, 4)
		copy(x.Data, random(rand.New(rand.NewPCG(1, 2)), 12))
		w, l := ps.New("w", Uniform(1), 1), ps.Dense("dense", 4, 5)
		op := slanted(factor)
		err := CheckGradients(ps, func(t *Tape) *Tensor {
			y := t.Dense(t.Apply(op, x.Shape, []*Tensor{x}, w), l, ReLU)
			return t.Mean(t.Map("bent", y, func(_ int, v float32) (y, slope float32) { return v * v, 2 * v }))
		}, x)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "parameter")) {
			t.Errorf("factor %v: %v, want %q", factor, err, want)
		}
	}
}

// A parameter's wrong gradient is named, parameters already arranged are accepted, and values stay
// as they are.
func TestCheckGradientsOfParameters(t *testing.T) {
	ps, x := NewParams(1), NewTensor(2, 3)
	copy(x.Data, random(rand.New(rand.NewPCG(3, 4)), 6))
	w, idle := ps.New("w", Ones, 2, 3), ps.New("idle", Ones, 2)
	loss := func(t *Tape) *Tensor {
		y := t.Multiply(x, t.Parameter(w))
		return t.Mean(t.Map("wrong", y, func(_ int, v float32) (y, slope float32) { return v * v, v }))
	}
	if err := ps.Arrange(loss); err != nil {
		t.Fatal(err)
	}
	err := CheckGradients(ps, loss)
	if err == nil || !strings.Contains(err.Error(), "gradient of parameter w: value 0 (1)") || strings.Contains(err.Error(), "idle") {
		t.Errorf("got %v", err)
	}
	if idle.Data[0] != 1 || w.Data[0] != 1 || w.Data[5] != 1 {
		t.Errorf("values are %v, %v", idle.Data, w.Data)
	}
}

// Arrange lists the parameters that the loss does not depend on, and no frozen ones.
func TestUnusedParameters(t *testing.T) {
	ps, x := NewParams(1), NewTensor(2, 3)
	ps.New("idle", Ones, 2)
	l, cut := ps.Dense("dense", 3, 1), ps.Dense("cut", 3, 1)
	ps.New("frozen", Ones, 2)
	if err := ps.Freeze("frozen"); err != nil {
		t.Fatal(err)
	}
	err := ps.Arrange(func(t *Tape) *Tensor {
		return t.Mean(t.Add(t.Dense(x, l, Identity), t.Detach(t.Dense(x, cut, Identity))))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(ps.Unused(), " "), "idle cut.weight cut.bias"; got != want {
		t.Errorf("unused %q, want %q", got, want)
	}
}

// Map computes each value and its gradient alike for any number of threads, without memory of its
// own, and no value in a dry run.
func TestMapComputesEachValue(t *testing.T) {
	const n = 5 * valuesPart / 2
	var first []float32
	for threads := 1; threads <= 3; threads++ {
		ps, x := NewParams(1), NewTensor(n/4, 4)
		copy(x.Data, random(rand.New(rand.NewPCG(1, 2)), n))
		x.RetainGrad()
		w, calls := ps.New("w", Ones, 4), 0
		counted := func(i int, v float32) (y, slope float32) { calls++; return v, 1 }
		f := func(i int, v float32) (y, slope float32) {
			s := float32(math.Sin(float64(v)))
			return float32(i%4+1) * s, float32(i%4+1) * float32(math.Cos(float64(v)))
		}
		loss := func(t *Tape) *Tensor { return t.Mean(t.Map("sines", t.Multiply(x, t.Parameter(w)), f)) }
		if err := ps.Arrange(func(t *Tape) *Tensor { return t.Mean(t.Map("counted", loss(t), counted)) }); err != nil || calls > 0 {
			t.Fatalf("%v, %d calls in a dry run", err, calls)
		}
		tape := NewTape(TapeConfig{Threads: threads})
		defer tape.Close()
		step := func() {
			tape.Reset()
			tape.Backward(loss(tape), func(int) {})
		}
		step()
		for i, v := range x.Data {
			if want := float64(i%4+1) * math.Cos(float64(v)) / n; !near(want, float64(x.Grad()[i]), 1e-4) {
				t.Fatalf("dx[%d] = %v, want %v", i, x.Grad()[i], want)
			}
		}
		if got := append([]float32(nil), x.Grad()...); first == nil {
			first = got
		} else if d := maxApart(got, first); d != 0 {
			t.Errorf("%d threads: gradients differ by %v", threads, d)
		}
		if a := testing.AllocsPerRun(5, step); a != 0 && !raceDetector {
			t.Errorf("%d threads: %v allocations a step, want 0", threads, a)
		}
	}
}

func maxApart(a, b []float32) (d float32) {
	for i, v := range a {
		d = max(d, v-b[i], b[i]-v)
	}
	return d
}

// Exporters see the name of the function, and a missing function is an error.
func TestMapNode(t *testing.T) {
	x := NewTensor(2, 3)
	nodes, err := Trace(func(t *Tape) {
		t.Map("cubes", x, func(_ int, v float32) (y, slope float32) { return v * v * v, 3 * v * v })
	})
	if err != nil || len(nodes) != 1 || nodes[0].Op != "apply" || nodes[0].Name != "cubes" || nodes[0].Inputs[0] != x {
		t.Errorf("%+v, %v", nodes, err)
	}
	if _, err := Trace(func(t *Tape) { t.Map("none", x, nil) }); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("got %v", err)
	}
}
