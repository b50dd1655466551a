package schema

import (
	"math"
	"testing"
)

// Owners are part of what is saved: they must never change.
func TestOwnerGolden(t *testing.T) {
	keys := []uint64{0, 1, 2, 3, 1 << 20, 1<<40 + 1, math.MaxUint64}
	golden := map[int][]int{
		1:    {0, 0, 0, 0, 0, 0, 0},
		2:    {0, 1, 0, 0, 0, 1, 0},
		3:    {0, 2, 0, 0, 0, 1, 1},
		7:    {0, 4, 1, 0, 0, 3, 2},
		1000: {0, 704, 229, 44, 43, 565, 393},
	}
	for servers, want := range golden {
		for i, key := range keys {
			if got := Owner(key, servers); got != want[i] {
				t.Errorf("key %d belongs to server %d of %d, was %d", key, got, servers, want[i])
			}
		}
	}
}

// Consecutive keys, strided ones and powers of two are spread as if at random:
// within 6 standard deviations.
func TestOwnerBalance(t *testing.T) {
	const n = 100_000
	for _, stride := range []uint64{1, 64, 1 << 32, 0x9e3779b97f4a7c15} {
		for _, servers := range []int{2, 3, 7, 16, 100} {
			counts := make([]int, servers)
			for i := range uint64(n) {
				counts[Owner(i*stride, servers)]++
			}
			mean := float64(n) / float64(servers)
			for s, c := range counts {
				if math.Abs(float64(c)-mean) > 6*math.Sqrt(mean) {
					t.Errorf("stride %d: server %d of %d has %d keys of %v", stride, s, servers, c, mean)
				}
			}
		}
	}
}

func TestCut(t *testing.T) {
	for _, length := range []int{0, 1, 15, 16, 17, 160, 1000, 1<<20 + 5} {
		for _, servers := range []int{1, 2, 3, 7, 64} {
			at, least, most := 0, length, 0
			for i := range servers {
				lo, hi := Cut(length, servers, i)
				if lo != at || hi < lo || lo%16 != 0 && lo != length {
					t.Fatalf("%d values: server %d of %d has [%d, %d) after %d", length, i, servers, lo, hi, at)
				}
				at = hi
				least, most = min(least, hi-lo), max(most, hi-lo)
			}
			if at != length {
				t.Fatalf("%d values over %d servers end at %d", length, servers, at)
			}
			if most-least > 31 {
				t.Errorf("%d values over %d servers: ranges of %d to %d", length, servers, least, most)
			}
		}
	}
	for i, want := range [][2]int{{0, 336}, {336, 672}, {672, 1000}} {
		if lo, hi := Cut(1000, 3, i); [2]int{lo, hi} != want {
			t.Errorf("server %d of 3 has [%d, %d) of 1000 values, was %v", i, lo, hi, want)
		}
	}
}

func TestCutPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("server 3 of 3 has a range")
		}
	}()
	Cut(100, 3, 3)
}
