package exchange

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/compress"
)

// The lengths that bench/dlgs/test_dlgs.py has, too.
func TestPayloadBytes(t *testing.T) {
	for _, c := range [][3]int{
		{1000, 0, 0}, {1000, 10, 64}, {1000, 500, 2137}, {1000, 1000, 4012}, {1000, 1, 19}, {100000, 1000, 5211},
		{100000, 5000, 24525}, {100000, 10000, 47751}, {1048576, 1049, 5909}, {431080, 4311, 22425}, {431080, 43108, 205806},
		{5, 1, 17}, {1, 1, 16}, {300, 128, 562}, {300, 129, 566}, {16777216, 167773, 872291},
	} {
		if got := PayloadBytes(c[0], c[1]); got != c[2] {
			t.Errorf("%d of %d: %d bytes, want %d", c[1], c[0], got, c[2])
		}
	}
}

// At independent places payloads have the length that is predicted on average.
func TestPayloadsAreAsPredicted(t *testing.T) {
	r, coder := rand.New(rand.NewPCG(81, 82)), compress.NewCoder(compress.FP32{})
	for _, n := range []int{50, 1000, 40_000, 300_000} {
		for _, k := range []int{1, 10, 100, n / 100, n / 20, n / 10, n / 4, n / 2} {
			if k > n || k == 0 {
				continue
			}
			total, draws := 0, 1+100_000/k
			for range draws {
				s := compress.Sparse{Len: n, Index: places(r, n, k), Value: make([]float32, k)}
				total += coder.Size(&s)
			}
			want, got := float64(PayloadBytes(n, k)), float64(total)/float64(draws)
			if math.Abs(got-want) > 1+0.003*want {
				t.Errorf("%d of %d: %.1f bytes on average, the prediction is %v", k, n, got, want)
			}
		}
	}
}

// places are k of n, ascending.
func places(r *rand.Rand, n, k int) []int32 {
	seen := make(map[int32]bool, k)
	for len(seen) < k {
		seen[r.Int32N(int32(n))] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
