package optim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// grouped are the optimizers, by name, at a rate.
var grouped = map[string]func(lr float64) RowOptimizer{
	"sgd":      func(lr float64) RowOptimizer { return &SGD{LR: lr} },
	"momentum": func(lr float64) RowOptimizer { return &SGD{LR: lr, Momentum: 0.9, WeightDecay: 0.01} },
	"adagrad":  func(lr float64) RowOptimizer { return NewAdagrad(lr) },
	"adam":     func(lr float64) RowOptimizer { return NewAdam(lr) },
	"adamw": func(lr float64) RowOptimizer {
		a := NewAdamW(lr)
		a.WeightDecay, a.NoDecay = 0.1, [][2]int{{20, 40}}
		return a
	},
	"ftrl": func(lr float64) RowOptimizer { return NewFTRL(lr) },
}

// Each range moves as by an optimizer of its rate, bit by bit, however the arena is cut, and through changes of the rate.
func TestGrouped(t *testing.T) {
	const n = 64
	rates := []Rate{{Lo: 0, Hi: 16, Factor: 0.5}, {Lo: 32, Hi: 48, Factor: 4}, {Lo: 48, Hi: 50, Factor: 2}}
	factors := slices.Repeat([]float64{1}, n)
	for _, r := range rates {
		for i := r.Lo; i < r.Hi; i++ {
			factors[i] = r.Factor
		}
	}
	for name, make := range grouped {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			start := random(r, n)
			g, err := NewGrouped(make(0.0625), rates)
			if err != nil {
				t.Fatal(err)
			}
			twins := map[float64]RowOptimizer{0.5: make(0.03125), 1: make(0.0625), 2: make(0.125), 4: make(0.25)}
			values := map[float64][]float32{}
			for f, o := range twins {
				values[f] = slices.Clone(start)
				if err := o.Bind(n); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.Bind(n); err != nil {
				t.Fatal(err)
			}
			params := slices.Clone(start)
			for step := range 4 {
				if step == 2 {
					g.SetLR(0.03125)
				}
				grads := random(r, n)
				g.BeginStep()
				for _, cut := range [][2]int{{40, 64}, {0, 7}, {7, 40}} {
					g.Update(cut[0], params[cut[0]:cut[1]], grads[cut[0]:cut[1]], 0.5)
				}
				for f, o := range twins {
					if step == 2 {
						o.SetLR(0.03125 * f)
					}
					o.BeginStep()
					o.Update(0, values[f], grads, 0.5)
				}
			}
			for i, f := range factors {
				if params[i] != values[f][i] {
					t.Fatalf("value %d is %v, by an optimizer of %v times the rate %v", i, params[i], f, values[f][i])
				}
			}
			grads := random(r, n)
			if a := testing.AllocsPerRun(5, func() { g.Update(0, params, grads, 1) }); a != 0 {
				t.Errorf("%v allocations an update, want 0", a)
			}
		})
	}
}

type foreign struct{ RowOptimizer }

func TestGroupedFaults(t *testing.T) {
	for want, rates := range map[string][]Rate{
		"rate 0 is 0 of values 0 to 4":       {{Lo: 0, Hi: 4}},
		"rate 1 is 2 of values 3 to 8":       {{Lo: 0, Hi: 4, Factor: 1}, {Lo: 3, Hi: 8, Factor: 2}},
		"rate 0 is 2 of values 4 to 4: want": {{Lo: 4, Hi: 4, Factor: 2}},
	} {
		if _, err := NewGrouped(&SGD{LR: 1}, rates); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to hold %q", err, want)
		}
	}
	if _, err := NewGrouped(foreign{&SGD{LR: 1}}, nil); err == nil || !strings.Contains(err.Error(), "sgd cannot update at rates") {
		t.Errorf("another's optimizer: %v", err)
	}
}
