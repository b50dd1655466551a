package train

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo"
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

// The area is that of the definition, with many ties and with few, on any
// number of ranks whose shards differ in size.
func TestAUC(t *testing.T) {
	for trial := range 60 {
		rnd := rand.New(rand.NewPCG(1, uint64(trial)))
		n := 2 + rnd.IntN(200)
		scores, positive := make([]float32, n), make([]bool, n)
		for i := range scores {
			scores[i] = float32(rnd.IntN(1+trial*trial)) / 1000
			positive[i] = rnd.IntN(3) == 0
		}
		positive[0], positive[1] = true, false
		want := naiveAUC(scores, positive)
		for _, np := range []int{1, 2, 3, 5} {
			cuts := make([]int, np+1) // shards of random sizes, some empty
			for r := 1; r < np; r++ {
				cuts[r] = cuts[r-1] + rnd.IntN(n-cuts[r-1]+1)
			}
			cuts[np] = n
			err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
				var own []scored
				for i := cuts[job.Rank()]; i < cuts[job.Rank()+1]; i++ {
					own = append(own, newScored(scores[i], positive[i]))
				}
				all, err := meshed{job.Group()}.addUp([]float64{1}, own, true)
				got, ok := auc(all)
				if !ok || math.Abs(got-want) > 1e-12 {
					t.Errorf("trial %d, rank %d of %d: %v, %v, want %v", trial, job.Rank(), np, got, ok, want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAUCOfOneKind(t *testing.T) {
	for _, x := range [][]scored{nil, {newScored(0.5, true)}, {newScored(0.5, false), newScored(0.1, false)}} {
		if _, ok := auc(x); ok {
			t.Errorf("%v has an area", x)
		}
	}
	if area, ok := auc([]scored{newScored(0, true), newScored(float32(math.Copysign(0, -1)), false)}); !ok || area != 0.5 {
		t.Errorf("zeros of either sign do not tie: %v, %v", area, ok)
	}
}
