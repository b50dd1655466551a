package simd

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

const guard = 12345.5

// guarded returns n random elements that nothing may write next to, and a check
// that nothing did. Every other time they end where reading beyond faults; else
// they lie 4 bytes off any alignment.
func guarded(r *rand.Rand, n int) (x []float32, check func(t *testing.T, what string)) {
	const g = 65
	all := make([]float32, n+2*g)
	if r.IntN(2) == 0 {
		if end := faultAfter(n + g); end != nil {
			all = end
		}
	}
	x = all[g : g+n : g+n]
	copy(x, random(r, n))
	around := [][]float32{all[:g], all[g+n:]}
	for _, values := range around {
		for i := range values {
			values[i] = guard
		}
	}
	return x, func(t *testing.T, what string) {
		t.Helper()
		for _, values := range around {
			for i, v := range values {
				if v != guard {
					t.Errorf("%s: written outside, at %d of %d beside it", what, i, len(values))
					return
				}
			}
		}
	}
}

// fenced returns a copy of x; to read or write beyond its end faults.
func fenced(x []float32) []float32 {
	if end := faultAfter(len(x)); end != nil {
		copy(end, x)
		return end[:len(x):len(x)]
	}
	return append([]float32(nil), x...)
}

// halves is x as 16-bit values.
func halves(x []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))
}
