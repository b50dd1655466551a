package optim

import (
	"math/rand/v2"
	"testing"
)

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 2*r.Float32() - 1
	}
	return x
}

// Without momentum no velocity is kept.
func TestSGDState(t *testing.T) {
	for momentum, parts := range map[float64]int{0: 0, 0.5: 1} {
		s := &SGD{LR: 0.1, Momentum: momentum}
		if err := s.Bind(3); err != nil {
			t.Fatal(err)
		}
		if got := s.State(); len(got) != parts || s.velocity == nil != (parts == 0) {
			t.Errorf("momentum %v: state %v", momentum, got)
		}
	}
}
