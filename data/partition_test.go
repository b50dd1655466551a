package data

import (
	"slices"
	"testing"
)

func TestPartitionCoversOnceInOrder(t *testing.T) {
	for n := range 70 {
		for size := 1; size <= 17; size++ {
			next, least, most := 0, n, 0
			for rank := range size {
				lo, hi := partition(n, rank, size, false)
				if lo != next || hi < lo {
					t.Fatalf("n %d, rank %d of %d: [%d, %d), want it to begin at %d", n, rank, size, lo, hi, next)
				}
				next, least, most = hi, min(least, hi-lo), max(most, hi-lo)
			}
			if next != n || most-least > 1 {
				t.Fatalf("n %d over %d: covers %d, sizes %d to %d", n, size, next, least, most)
			}
		}
	}
}

func TestPartitionDropsTheRemainder(t *testing.T) {
	for _, c := range []struct{ n, rank, size, lo, hi int }{
		{10, 0, 3, 0, 3}, {10, 1, 3, 3, 6}, {10, 2, 3, 6, 9},
		{2, 1, 3, 0, 0}, {60000, 3, 7, 25713, 34284}, {0, 0, 1, 0, 0},
	} {
		if lo, hi := partition(c.n, c.rank, c.size, true); lo != c.lo || hi != c.hi {
			t.Errorf("%d, rank %d of %d: [%d, %d), want [%d, %d)", c.n, c.rank, c.size, lo, hi, c.lo, c.hi)
		}
	}
}

func TestPermutation(t *testing.T) {
	a := permutation(1, 0, 1000, nil)
	sorted := slices.Sorted(slices.Values(a))
	for i, v := range sorted {
		if int(v) != i {
			t.Fatalf("not a permutation: %d at %d", v, i)
		}
	}
	if !slices.Equal(a, permutation(1, 0, 1000, nil)) {
		t.Error("not repeatable")
	}
	if slices.Equal(a, permutation(1, 1, 1000, nil)) || slices.Equal(a, permutation(2, 0, 1000, nil)) {
		t.Error("epoch or seed does not matter")
	}
	dst := make([]int32, 0, 1000)
	if got := permutation(1, 0, 1000, dst); &got[0] != &dst[:1][0] || !slices.Equal(a, got) {
		t.Error("memory is not reused")
	}
	if got := permutation(1, 0, 0, nil); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	// A run must give the same order on every host and in every version.
	if got := permutation(42, 3, 8, nil); !slices.Equal(got, []int32{5, 3, 6, 7, 2, 1, 0, 4}) {
		t.Errorf("order changed: %v", got)
	}
}

// Every element comes to every place about equally often.
func TestPermutationIsUniform(t *testing.T) {
	const n, draws = 5, 20000
	var count [n][n]int
	var p []int32
	for epoch := range draws {
		p = permutation(9, epoch, n, p)
		for place, v := range p {
			count[place][v]++
		}
	}
	for place := range n {
		for v, c := range count[place] {
			if c < draws/n*94/100 || c > draws/n*106/100 { // about 4 deviations
				t.Errorf("%d at place %d: %d times of %d", v, place, c, draws)
			}
		}
	}
}
