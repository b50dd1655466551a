package optim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// ruleTwin is an optimizer and its rule in float64 on one value: p, and the
// value's state in the order of State, in step t from 1. decays: whether the
// value is one that weight decay applies to.
type ruleTwin struct {
	make func() RowOptimizer
	rule func(p *float64, s []float64, g float64, t int, decays bool)
}

var ruleTwins = map[string]ruleTwin{
	"sgd": {
		func() RowOptimizer { return &SGD{LR: 0.1} },
		func(p *float64, _ []float64, g float64, _ int, _ bool) { *p -= 0.1 * g },
	},
	"sgd decay": {
		func() RowOptimizer { return &SGD{LR: 0.1, WeightDecay: 0.01} },
		func(p *float64, _ []float64, g float64, _ int, _ bool) { *p -= 0.1 * (g + 0.01**p) },
	},
	"sgd momentum": {
		func() RowOptimizer { return &SGD{LR: 0.1, Momentum: 0.9, WeightDecay: 0.01} },
		func(p *float64, s []float64, g float64, _ int, _ bool) {
			s[0] = 0.9*s[0] + g + 0.01**p
			*p -= 0.1 * s[0]
		},
	},
	"adagrad": {
		func() RowOptimizer { return NewAdagrad(0.1) },
		func(p *float64, s []float64, g float64, _ int, _ bool) { adagradTwin(p, s, g) },
	},
	"adagrad decay": {
		func() RowOptimizer { return &Adagrad{LR: 0.1, WeightDecay: 0.01, Eps: 1e-10} },
		func(p *float64, s []float64, g float64, _ int, _ bool) { adagradTwin(p, s, g+0.01**p) },
	},
	"adam": {
		func() RowOptimizer { return NewAdam(0.1) },
		func(p *float64, s []float64, g float64, t int, _ bool) { adamTwin(p, s, g, t) },
	},
	"ftrl": {
		func() RowOptimizer { return &FTRL{LR: 0.1, Beta: 1, L1: 0.1, L2: 0.2} },
		func(p *float64, s []float64, g float64, _ int, _ bool) { ftrlTwin(p, s, g) },
	},
	"adamw": {
		func() RowOptimizer {
			a := NewAdamW(0.1)
			a.NoDecay = [][2]int{{40, 44}, {3, 3}, {10, 20}, {12, 15}, {20, 21}, {42, 50}}
			return a
		},
		func(p *float64, s []float64, g float64, t int, decays bool) {
			if decays {
				*p -= 0.1 * 0.01 * *p
			}
			adamTwin(p, s, g, t)
		},
	},
}

// decays tells which values of the arena the twin of "adamw" decays.
func decays(i int) bool { return i < 10 || 21 <= i && i < 40 || i >= 50 }

func adagradTwin(p *float64, s []float64, g float64) {
	s[0] += g * g
	*p -= 0.1 * g / (math.Sqrt(s[0]) + 1e-10)
}

func adamTwin(p *float64, s []float64, g float64, t int) {
	s[0] = 0.9*s[0] + 0.1*g
	s[1] = 0.999*s[1] + 0.001*g*g
	*p -= 0.1 * s[0] / (1 - math.Pow(0.9, float64(t))) / (math.Sqrt(s[1]/(1-math.Pow(0.999, float64(t)))) + 1e-8)
}

func eachTwin(t *testing.T, f func(t *testing.T, w ruleTwin)) {
	for name, w := range ruleTwins {
		t.Run(name, func(t *testing.T) { f(t, w) })
	}
}

func boundTo(t testing.TB, w ruleTwin, n int) RowOptimizer {
	t.Helper()
	o := w.make()
	if err := o.Bind(n); err != nil {
		t.Fatal(err)
	}
	return o
}

// values are the parts of the state that have one value per parameter.
func values(states []State) (out []State) {
	for _, s := range states {
		if s.Name != "step" {
			out = append(out, s)
		}
	}
	return out
}

func widened(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func near(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	for i := range got {
		if !(math.Abs(float64(got[i])-want[i]) <= 1e-5) {
			t.Fatalf("%s %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func TestAgainstTwins(t *testing.T) {
	eachTwin(t, func(t *testing.T, w ruleTwin) {
		const n, scale = 67, 0.5
		r := rand.New(rand.NewPCG(1, 2))
		o, p := boundTo(t, w, n), random(r, n)
		want := widened(p)
		state := make([][]float64, n)
		for i := range state {
			state[i] = make([]float64, len(values(o.State())))
		}
		for step := 1; step <= 6; step++ {
			g := random(r, n)
			o.BeginStep()
			o.Update(0, p, g, scale)
			for i := range want {
				w.rule(&want[i], state[i], scale*float64(g[i]), step, decays(i))
			}
			near(t, "parameter", p, want)
			for k, s := range values(o.State()) {
				part := make([]float64, n)
				for i := range part {
					part[i] = state[i][k]
				}
				near(t, s.Name, s.Data, part)
			}
		}
	})
}

// However the arena is cut, in whatever order and at the same time, the bits
// are the same, and zero padding stays zero.
func TestCuts(t *testing.T) {
	cuts := [][2]int{{700, 1000}, {0, 1}, {33, 700}, {1, 13}, {13, 33}, {5, 5}}
	eachTwin(t, func(t *testing.T, w ruleTwin) {
		const n = 1000
		r := rand.New(rand.NewPCG(3, 4))
		a, b := boundTo(t, w, n), boundTo(t, w, n)
		p := random(r, n)
		clear(p[500:600])
		q := slices.Clone(p)
		for range 3 {
			g := random(r, n)
			clear(g[500:600])
			kept := slices.Clone(g)
			a.BeginStep()
			a.Update(0, p, g, 0.25)
			b.BeginStep()
			var wait sync.WaitGroup
			for _, c := range cuts {
				wait.Go(func() { b.Update(c[0], q[c[0]:c[1]], g[c[0]:c[1]], 0.25) })
			}
			wait.Wait()
			if !slices.Equal(g, kept) {
				t.Error("the gradient was changed")
			}
		}
		if !slices.Equal(p, q) {
			t.Error("the result depends on the cut")
		}
		for i, s := range a.State() {
			if !slices.Equal(s.Data, b.State()[i].Data) {
				t.Errorf("%s depends on the cut", s.Name)
			}
		}
		if !slices.Equal(p[500:600], make([]float32, 100)) {
			t.Error("padding did not stay zero")
		}
	})
}

// A run that goes on from saved state has the bits of one never stopped.
func TestStateContinues(t *testing.T) {
	eachTwin(t, func(t *testing.T, w ruleTwin) {
		const n = 50
		r := rand.New(rand.NewPCG(5, 6))
		a, p := boundTo(t, w, n), random(r, n)
		for range 3 {
			a.BeginStep()
			a.Update(0, p, random(r, n), 1)
		}
		b, q := boundTo(t, w, n), slices.Clone(p)
		for i, s := range a.State() {
			copy(b.State()[i].Data, s.Data)
		}
		for range 3 {
			g := random(r, n)
			for o, x := range map[RowOptimizer][]float32{a: p, b: q} {
				o.BeginStep()
				o.Update(0, x, g, 1)
			}
		}
		if !slices.Equal(p, q) {
			t.Error("the continued run differs")
		}
	})
}

func TestBind(t *testing.T) {
	eachTwin(t, func(t *testing.T, w ruleTwin) {
		o := boundTo(t, w, 60)
		r := rand.New(rand.NewPCG(7, 8))
		p, g := random(r, 60), random(r, 60)
		o.BeginStep()
		o.Update(0, p, g, 1)
		var before [][]float32
		for _, s := range o.State() {
			before = append(before, slices.Clone(s.Data))
		}
		if err := o.Bind(60); err != nil {
			t.Error(err)
		}
		for i, s := range o.State() {
			if !slices.Equal(s.Data, before[i]) {
				t.Errorf("binding again changed %s", s.Name)
			}
		}
		if err := o.Bind(61); err == nil || !strings.Contains(err.Error(), "60") || !strings.Contains(err.Error(), "61") {
			t.Errorf("bound to two lengths: %v", err)
		}
		if err := w.make().Bind(-1); err == nil {
			t.Error("bound to a negative length")
		}
		if n := testing.AllocsPerRun(10, func() { o.BeginStep(); o.Update(0, p, g, 1) }); n != 0 {
			t.Errorf("a step makes %v allocations", n)
		}
	})
}

func TestSetLR(t *testing.T) {
	eachTwin(t, func(t *testing.T, w ruleTwin) {
		o := boundTo(t, w, 60)
		r := rand.New(rand.NewPCG(9, 10))
		p, g := random(r, 60), random(r, 60)
		before := slices.Clone(p)
		o.SetLR(0)
		o.BeginStep()
		o.Update(0, p, g, 1)
		if !slices.Equal(p, before) {
			t.Error("rate 0 moved parameters")
		}
		o.SetLR(0.5)
		o.BeginStep()
		o.Update(0, p, g, 1)
		if slices.Equal(p, before) || o.CurrentLR() != 0.5 {
			t.Errorf("the rate is %v and moved nothing", o.CurrentLR())
		}
		for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("rate %v was accepted", bad)
					}
				}()
				o.SetLR(bad)
			}()
		}
	})
}

// Every bad setting is in the one error, with its value.
func TestValidate(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, v := range []float64{nan, inf, -inf, -1, 1e39} {
		for o, want := range map[Optimizer][]string{
			&SGD{LR: v, Momentum: v, WeightDecay: v}:                      {"learning rate", "momentum", "weight decay"},
			&Adagrad{LR: v, WeightDecay: v, Initial: v, Eps: v}:           {"learning rate", "weight decay", "initial sum", "eps"},
			&AdamW{LR: v, Beta1: v, Beta2: v, Eps: v, WeightDecay: v}:     {"learning rate", "beta1", "beta2", "eps", "weight decay"},
			&AdamW{LR: 1, Eps: 1, WeightDecay: 1}:                         {"product below 1"},
			&AdamW{LR: 1, Eps: 1, WeightDecay: 0.1, plain: true}:          {"adam: weight decay 0.1: adam has none"},
			&FTRL{LR: v, Beta: v, L1: v, L2: v, Initial: v}:               {"learning rate", "beta", "l1", "l2", "initial sum"},
			&AdamW{LR: v, Eps: 1, NoDecay: [][2]int{{0, 9}, {2, 1}}}:      {"learning rate", "[0, 9)", "[2, 1)", "3 values"},
			&AdamW{LR: 1, Eps: 1e-50, NoDecay: [][2]int{{-1, 2}, {1, 2}}}: {"eps", "[-1, 2)"},
		} {
			err := o.Bind(3)
			for _, s := range want {
				if err == nil || !strings.Contains(err.Error(), s) {
					t.Errorf("%s with %v: %v does not hold %q", o.Name(), v, err, s)
				}
			}
		}
	}
	for _, o := range []Optimizer{
		&SGD{LR: 0.1}, &SGD{LR: 1e-9, Momentum: 0.999, WeightDecay: 3},
		&Adagrad{LR: 1, Eps: 1, Initial: 0.1}, &AdamW{LR: 1, Eps: 1},
	} {
		if err := o.Bind(3); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []Optimizer{&SGD{}, &Adagrad{}, &AdamW{}, &FTRL{}, &FTRL{LR: 1}, &SGD{LR: 1, Momentum: 1}, &Adagrad{LR: 1}, &AdamW{LR: 1, Beta1: 1, Eps: 1}} {
		if o.Bind(3) == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestAdagradInitial(t *testing.T) {
	a := &Adagrad{LR: 1, Eps: 1e-10, Initial: 3}
	if err := a.Bind(1); err != nil {
		t.Fatal(err)
	}
	if err := a.BindTables([][2]int{{1, 1}}); err != nil {
		t.Fatal(err)
	}
	p, row := []float32{0}, []float32{0}
	a.Update(0, p, []float32{1}, 1)
	a.UpdateRows(0, row, []int32{0}, []float32{1}, 1)
	if p[0] != -0.5 || row[0] != -0.5 {
		t.Errorf("a sum from 3 and a gradient of 1 moved by %v and %v, want 1/sqrt(4)", p[0], row[0])
	}
}

// The step's number survives beyond one digit, and a mean over ranks.
func TestAdamWSteps(t *testing.T) {
	a := boundTo(t, ruleTwins["adam"], 1).(*AdamW)
	for _, steps := range []uint64{0, 1, stepDigit - 1, stepDigit, 3*stepDigit + 7, 1<<32 - 2} {
		a.step = [2]float32{float32(steps % stepDigit), float32(steps / stepDigit)}
		for i := range a.State()[2].Data {
			d := &a.State()[2].Data[i]
			sum := float32(0)
			for range 7 {
				sum += *d
			}
			*d = sum * (1 / float32(7))
		}
		if a.BeginStep(); a.steps() != steps+1 {
			t.Errorf("step %d is followed by %d", steps, a.steps())
		}
	}
}

func TestPower(t *testing.T) {
	for _, x := range []float64{0, 0.5, 0.9, 0.999} {
		for _, n := range []uint64{0, 1, 2, 3, 10, 999, 12345} {
			if got, want := power(x, n), math.Pow(x, float64(n)); math.Abs(got-want) > 1e-12*want {
				t.Errorf("%v to the %d is %v, want %v", x, n, got, want)
			}
		}
	}
}
