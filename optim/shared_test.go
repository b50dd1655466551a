package optim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

func TestSharedHasTheSameBits(t *testing.T) {
	leakcheck.Check(t)
	for _, n := range []int{1, 1000, sharedLeast, 3*sharedLeast + 7} {
		for _, threads := range []int{1, 2, 3, 5} {
			one, inner := NewAdamW(0.01), NewAdamW(0.01)
			s, err := NewShared(inner, threads)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []Optimizer{one, s} {
				if err := o.Bind(n + 3); err != nil {
					t.Fatal(err)
				}
			}
			r := rand.New(rand.NewPCG(1, 2))
			p, g := random(r, n+3), random(r, n+3)
			q := slices.Clone(p)
			for range 3 {
				one.BeginStep()
				one.Update(3, p[3:], g[3:], 0.5)
				s.BeginStep()
				s.Update(3, q[3:], g[3:], 0.5)
			}
			if !slices.Equal(p, q) {
				t.Errorf("%d values: %d threads give other bits", n, threads)
			}
			if a := testing.AllocsPerRun(3, func() { s.Update(3, q[3:], g[3:], 0.5) }); a != 0 {
				t.Errorf("an update makes %v allocations", a)
			}
			s.Close()
		}
	}
	if _, err := NewShared(NewAdamW(1), 0); err == nil {
		t.Error("0 threads were accepted")
	}
}
