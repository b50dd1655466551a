package hyperloglog

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Estimates are within five standard errors for every number of keys: random or sequential,
// repeated or not, from one counter or several merged.
func TestEstimate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 100, 10_000, 40_000, 80_000, 1_000_000} {
		for _, scrambled := range []bool{false, true} {
			parts := make([]Counter, 3)
			for i := range n + n/2 {
				key := uint64(i % max(1, n))
				if scrambled {
					key *= 0x9e3779b97f4a7c15
				}
				parts[r.IntN(3)].Add([]uint64{key, key})
			}
			var all Counter
			for i := range parts {
				if err := all.Merge(parts[i].Bytes()); err != nil {
					t.Fatal(err)
				}
			}
			if got := all.Estimate(); math.Abs(got-float64(n)) > 0.5+0.041*float64(n) {
				t.Errorf("%d keys are %v", n, got)
			}
		}
	}
	if err := new(Counter).Merge(make([]byte, 3)); err == nil {
		t.Error("3 bytes are a counter")
	}
	var c Counter
	if c.Add(nil); c.Bytes() != nil {
		t.Error("no keys have bytes")
	}
}

func BenchmarkAdd(b *testing.B) {
	keys := make([]uint64, 13312)
	for i := range keys {
		keys[i] = rand.Uint64()
	}
	var c Counter
	b.SetBytes(8 * 13312)
	for b.Loop() {
		c.Add(keys)
	}
}
