package compress

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// With momentum correction what is sent and what is kept are the velocity and what was
// kept before, and velocities begin anew where entries were sent; groups and threads
// change on the way.
func TestMomentumLosesNothing(t *testing.T) {
	const factor = 0.9
	for _, sel := range []Selector{TopK{0.02}, Threshold{3}, DLGS{Ratio: 0.05, Every: 3}, Sampled{Ratio: 0.05}, GaussianK{0.05}} {
		for i, q := range quantisers {
			if i > 0 && testing.Short() {
				break
			}
			chain, err := NewChain(Momentum{factor}, sel, q)
			if err != nil {
				t.Fatal(err)
			}
			c, err := chain.Bind(someParams, someLen, threads(2))
			if err != nil {
				t.Fatal(err)
			}
			r, u := rand.New(rand.NewPCG(65, 66)), zeros(someLen)
			for step := range 6 {
				groups := []Bucket{{Lo: 0, Hi: 5008}, {Lo: 5008, Hi: someLen}}[:2-step/4]
				groups[len(groups)-1].Hi = someLen
				if err := c.SetGroups(groups); err != nil {
					t.Fatal(err)
				}
				grads := zeros(someLen)
				vectors[step%2].fill(r, grads)
				for i := range grads { // what no code has too little room for
					grads[i] = max(-50, min(50, grads[i]))
				}
				c.Layout().ClearPadding(0, grads)
				for i, g := range grads {
					u[i] = float32(float32(factor)*u[i]) + g
				}
				old, sent := slices.Clone(c.Residual(0, someLen)), zeros(someLen)
				for i, g := range groups {
					var s Sparse
					if err := c.Select(&s, i, grads[g.Lo:g.Hi]); err != nil {
						t.Fatal(err)
					}
					s.AddTo(sent[g.Lo:g.Hi])
				}
				c.Layout().ClearPadding(0, sent)
				velocity := c.transforms[0].(*momentum).velocity.Range(0, someLen)
				for i, kept := range c.Residual(0, someLen) {
					sum := old[i] + u[i]
					if q.Code() == CodeFP32 && !same(sent[i]+kept, sum) && sum != 0 ||
						!within(float64(sent[i])+float64(kept), float64(sum), max(abs(sum), abs(sent[i]))) {
						t.Fatalf("%v, step %d: value %d: %v is sent and %v kept of %v", chain, step, i, sent[i], kept, sum)
					}
					if velocity[i] != u[i] && velocity[i] != 0 || sent[i] != 0 && velocity[i] != 0 {
						t.Fatalf("%v, step %d: value %d: velocity %v, want %v, or 0 where it was sent", chain, step, i, velocity[i], u[i])
					}
					u[i] = velocity[i]
				}
			}
		}
	}
}

// One value, whatever selects it.
func TestOneValue(t *testing.T) {
	for _, chain := range chains(t) {
		c, err := chain.Bind([]Param{{"a", 0, 1}}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for step, v := range []float32{0, 1, -2, 1e-30, 0, 3, 3, 3, -1} {
			checkStep(t, fmt.Sprintf("%v, step %d", chain, step), c, 0, Bucket{Hi: 1}, []float32{v})
		}
	}
}
