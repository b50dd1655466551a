package train

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/optim"
)

// What is passed on in parts is what a copy of the whole is, first or in addition, times a factor.
func TestStreamsAgainstCopies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 24))
	values := func(n int) (x []float32) {
		for range n {
			x = append(x, float32(r.NormFloat64()))
		}
		return x
	}
	for _, n := range []int{0, 1, 17, checkpoint.PassingPart - 1, checkpoint.PassingPart, 2*checkpoint.PassingPart + 3} {
		from, to := values(n), values(n)
		for _, c := range []struct {
			first  bool
			factor float32
		}{{true, 1}, {false, 1}, {true, 1.5}, {false, 0.4}} {
			want := slices.Clone(to)
			for i, v := range from {
				if c.first {
					want[i] = 0
				}
				want[i] += float32(v * c.factor)
			}
			giver := streamsOf("thread1/", []optim.State{{Name: "m", Data: from}})[0]
			taker := streamOf("m", to[:n/3], nil, to[n/3:n-n/7], to[n-n/7:])
			take, err := taker.take(n, c.first, c.factor)
			if err == nil {
				err = inParts(n, giver.give(), take)
			}
			if err != nil || !slices.Equal(to, want) || giver.name != "thread1/m" || giver.n != n {
				t.Errorf("%d values, %+v: %v, or others than a copy", n, c, err)
			}
		}
	}
	fault := fmt.Errorf("fault")
	parts := 0
	bad := func([]float32) error { parts++; return fault }
	if err := inParts(3*checkpoint.PassingPart, func([]float32) error { return nil }, bad); err != fault || parts != 1 {
		t.Errorf("%v after %d parts", err, parts)
	}
}
