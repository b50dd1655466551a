package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func TestDropout(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(31, 32))
		for _, n := range lengths() {
			key, first := DropoutKey{r.Uint32(), r.Uint32()}, r.Uint32()
			for _, threshold := range []uint32{0, 1 << 31, 3 << 30, math.MaxUint32} {
				src, guardSrc := guarded(r, n)
				dst, guardDst := guarded(r, n)
				want := make([]float32, n)
				for i, v := range src {
					if dropoutWord(key, first+uint32(i)) >= threshold {
						want[i] = v * 1.7
					}
				}
				k.Dropout(dst, src, key, first, threshold, 1.7)
				sameValues(t, fmt.Sprintf("n=%d threshold=%d", n, threshold), dst, want)
				k.Dropout(src, src, key, first, threshold, 1.7)
				sameValues(t, fmt.Sprintf("n=%d threshold=%d in place", n, threshold), src, want)
				guardSrc(t, "src")
				guardDst(t, "dst")
			}
		}
	})
}

// The words of neighbours, of related keys and of one element under many keys
// are uniform and independent as far as means and pair correlations tell.
func TestDropoutWordsLookRandom(t *testing.T) {
	const n = 1 << 16
	streams := map[string]func(i uint32) uint32{
		"elements": func(i uint32) uint32 { return dropoutWord(DropoutKey{1, 2}, i) },
		"first":    func(i uint32) uint32 { return dropoutWord(DropoutKey{i, 2}, 7) },
		"second":   func(i uint32) uint32 { return dropoutWord(DropoutKey{1, i}, 7) },
		"every 64": func(i uint32) uint32 { return dropoutWord(DropoutKey{0, 0}, 64*i) },
	}
	for name, word := range streams {
		var sum, product, ones float64
		var bits [32]float64
		last := 0.0
		for i := range uint32(n) {
			w := word(i)
			v := float64(w)/(1<<32) - 0.5
			sum += v
			product += v * last
			last = v
			if w < 1<<31 {
				ones++
			}
			for b := range bits {
				bits[b] += float64(w >> b & 1)
			}
		}
		// Five standard deviations of each estimate.
		sigma := 1 / math.Sqrt(n)
		if m := sum / n; math.Abs(m) > 5*sigma*math.Sqrt(1./12) {
			t.Errorf("%s: mean %v from one half", name, m)
		}
		if c := product / n * 12; math.Abs(c) > 5*sigma {
			t.Errorf("%s: neighbours correlate by %v", name, c)
		}
		if h := ones/n - 0.5; math.Abs(h) > 2.5*sigma {
			t.Errorf("%s: %v more than half are small", name, h)
		}
		for b, c := range bits {
			if d := c/n - 0.5; math.Abs(d) > 2.5*sigma {
				t.Errorf("%s: bit %d is set %v more often than half", name, b, d)
			}
		}
	}
}
