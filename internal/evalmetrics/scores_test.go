package evalmetrics

import (
	"math"
	"math/rand/v2"
	"testing"
)

// naiveAUC compares every positive with every negative.
func naiveAUC(scores []float32, positive []bool) float64 {
	won, pairs := 0.0, 0.0
	for i := range scores {
		for j := range scores {
			if !positive[i] || positive[j] {
				continue
			}
			pairs++
			switch {
			case scores[i] > scores[j]:
				won++
			case scores[i] == scores[j]:
				won += 0.5
			}
		}
	}
	return won / pairs
}

// The area is that of the definition, with many ties and with few, whatever the order.
func TestAUC(t *testing.T) {
	for trial := range 60 {
		rnd := rand.New(rand.NewPCG(1, uint64(trial)))
		n := 2 + rnd.IntN(200)
		scores, positive, words := make([]float32, n), make([]bool, n), make([]uint64, n)
		for i := range scores {
			scores[i], positive[i] = float32(rnd.IntN(1+trial*trial))/1000, rnd.IntN(3) == 0
		}
		positive[0], positive[1] = true, false
		for i, at := range rnd.Perm(n) {
			words[at] = Scored(scores[i], positive[i])
		}
		want := naiveAUC(scores, positive)
		if got, ok := AUC(words); !ok || math.Abs(got-want) > 1e-12 {
			t.Errorf("trial %d: %v, %v, want %v", trial, got, ok, want)
		}
	}
}

func TestAUCOfOneKind(t *testing.T) {
	for _, x := range [][]uint64{nil, {Scored(0.5, true)}, {Scored(0.5, false), Scored(0.1, false)}} {
		if _, ok := AUC(x); ok {
			t.Errorf("%v has an area", x)
		}
	}
	if a, ok := AUC([]uint64{Scored(0, true), Scored(float32(math.Copysign(0, -1)), false)}); !ok || a != 0.5 {
		t.Errorf("zeros of either sign do not tie: %v, %v", a, ok)
	}
}
