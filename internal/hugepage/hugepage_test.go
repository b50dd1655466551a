package hugepage

import "testing"

func TestInnerIsWholePages(t *testing.T) {
	const page = 64 << 10
	for _, c := range []struct {
		address uintptr
		size    int
		lo, hi  int
	}{
		{0, 4 * page, 0, 4 * page},
		{page, 4*page + 5, 0, 4 * page},
		{page + 64, 4 * page, page - 64, 4*page - 64},
		{page - 1, page, 1, 1},
		{3*page + 7, page, page - 7, page - 7},
	} {
		if lo, hi := inner(c.address, c.size); lo != c.lo || hi != c.hi {
			t.Errorf("inner(%d, %d) = %d, %d, want %d, %d", c.address, c.size, lo, hi, c.lo, c.hi)
		}
	}
}

func TestAdviceChangesNoValue(t *testing.T) {
	for _, n := range []int{0, 1, least/4 - 1, least / 4, least + 12345} {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i % 1000)
		}
		Advise(x[n/1000:])
		for i := range x {
			if x[i] != float32(i%1000) {
				t.Fatalf("%d values: value %d is %v", n, i, x[i])
			}
		}
	}
}

// Shared memory stays shared and zero after Collapse.
func TestCollapseKeepsSharing(t *testing.T) {
	for _, n := range []int{0, 1, least/4 - 1, least / 4, 3*least + 12345} {
		one, other := twice(t, 4*n)
		Collapse(one)
		for i, v := range one {
			if v != 0 || other[i] != 0 {
				t.Fatalf("%d values: value %d is %v and %v", n, i, v, other[i])
			}
			one[i] = float32(i % 1000)
		}
		for i, v := range other {
			if v != float32(i%1000) {
				t.Fatalf("%d values: value %d is %v on the other side", n, i, v)
			}
		}
	}
}
