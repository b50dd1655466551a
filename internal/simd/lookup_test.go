package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestLookup(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(61, 62))
		for _, dim := range []int{1, 7, 8, 10, 15, 16, 17, 33, 64, 650} {
			for _, n := range []int{0, 1, 5, lookupRows + 3} {
				const rows = 37
				table, guardTable := guarded(r, rows*dim)
				dst, guardDst := guarded(r, n*dim)
				ids, want := make([]int32, n), make([]float32, 0, n*dim)
				for i := range ids {
					ids[i] = int32(r.IntN(rows))
					if i == 0 {
						ids[i] = rows - 1
					}
					want = append(want, table[int(ids[i])*dim:][:dim]...)
				}
				k.Lookup(dst, table, ids, dim)
				at := fmt.Sprintf("%d rows of %d", n, dim)
				sameValues(t, at, dst, want)
				guardTable(t, at)
				guardDst(t, at)
			}
		}
	})
}

func TestLookupWantsRowsOfTheTable(t *testing.T) {
	x := make([]float32, 12)
	for name, f := range map[string]func(){
		"beyond":   func() { Host().Lookup(x[:4], x, []int32{3}, 4) },
		"negative": func() { Host().Lookup(x[:4], x, []int32{-1}, 4) },
		"length":   func() { Host().Lookup(x[:5], x, []int32{1}, 4) },
		"width":    func() { Host().Lookup(x[:0], x, nil, 0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
