package optim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func boundFTRL(t *testing.T, o *FTRL, n int) *FTRL {
	t.Helper()
	if err := o.Bind(n); err != nil {
		t.Fatal(err)
	}
	return o
}

// Training starts from the weights that are there: without gradients they stay.
func TestFTRLKeepsInitialWeights(t *testing.T) {
	o := boundFTRL(t, &FTRL{LR: 0.1, Beta: 1, L1: 2, L2: 3}, 50)
	p := random(rand.New(rand.NewPCG(71, 72)), 50)
	p[7] = 0
	want := widened(p)
	for range 5 {
		o.Update(0, p, make([]float32, 50), 1)
	}
	for i := range p {
		if math.Abs(float64(p[i])-want[i]) > 1e-6*math.Abs(want[i]) {
			t.Errorf("weight %v became %v without a gradient", want[i], p[i])
		}
	}
}

// With an L1 penalty, weights whose gradients cancel are exactly zero; those
// with a steady gradient are not.
func TestFTRLIsSparse(t *testing.T) {
	o := boundFTRL(t, &FTRL{LR: 0.1, Beta: 1, L1: 1.5}, 2)
	p := make([]float32, 2)
	for step := range 20 {
		sign := float32(1 - 2*(step%2))
		o.Update(0, p, []float32{sign, 1}, 1)
		if p[0] != 0 {
			t.Errorf("step %d: gradients that cancel moved a weight to %v", step, p[0])
		}
	}
	if !(p[1] < -0.1) {
		t.Errorf("a steady gradient moved a weight to %v", p[1])
	}
}

// A schedule's change of the rate does not move weights by itself, as a z in
// the paper's units would.
func TestFTRLRateChanges(t *testing.T) {
	const n = 40
	r := rand.New(rand.NewPCG(73, 74))
	o, p := boundFTRL(t, NewFTRL(0.5), n), random(r, n)
	for range 10 {
		o.Update(0, p, random(r, n), 1)
	}
	before := slices.Clone(p)
	o.SetLR(0.005)
	o.Update(0, p, make([]float32, n), 1)
	near(t, "weight", p, widened(before))
	o.Update(0, p, slices.Repeat([]float32{1}, n), 1)
	for i := range p {
		if moved := before[i] - p[i]; !(moved > 0 && moved < 0.005) {
			t.Errorf("weight %d moved by %v at rate 0.005", i, moved)
		}
	}
}
