package simd

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRowsAgainstTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, k := range Levels() {
		for _, rows := range []int{0, 1, 3, 700} {
			for _, cols := range []int{0, 1, 7, 8, 15, 16, 17, 50, 64, 83, 144} {
				lds, ldd := cols+rows%5, max(1, cols/3) // rows of AddToRows overlap
				last := max(0, rows-1)                  // where its row ends, so does the memory
				src, dst := fenced(random(r, last*lds+cols)), random(r, last*(cols+2)+cols)
				name := k.Name()
				want, got := slices.Clone(dst), fenced(dst)
				for i := range rows {
					copy(want[i*(cols+2):][:cols], src[i*lds:])
				}
				k.CopyRows(got, cols+2, src, lds, rows, cols)
				if !slices.Equal(got, want) {
					t.Fatalf("%s: CopyRows of %d rows of %d differs from its twin", name, rows, cols)
				}
				want, got = slices.Clone(dst), fenced(dst)
				for i := range rows {
					for j := range cols {
						want[i*ldd+j] += src[i*lds+j]
					}
				}
				k.AddToRows(got, ldd, src, lds, rows, cols)
				if !slices.Equal(got, want) {
					t.Fatalf("%s: AddToRows of %d rows of %d differs from its twin", name, rows, cols)
				}
				want, got = slices.Clone(dst[:cols]), fenced(dst[:cols])
				for i := range rows {
					for j := range cols {
						want[j] += src[i*lds+j]
					}
				}
				k.SumRows(got, src, lds, rows)
				if !slices.Equal(got, want) {
					t.Fatalf("%s: SumRows of %d rows of %d differs from its twin", name, rows, cols)
				}
			}
		}
	}
}
