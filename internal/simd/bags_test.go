package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Bags has the bits of sums in order, whatever the widths, gaps and lengths, among them empty bags and one that no call may add up at once.
func TestBags(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(71, 72))
		for _, dim := range []int{1, 3, 8, 10, 15, 16, 17, 33, 64, 80, 650} {
			for _, lengths := range [][]int{{0}, {0, 0}, {1}, {0, 3, 0}, {1, 2, 20, 0, 5}, {lookupRows + 3, 1, 0, 2 * lookupRows}} {
				const rows = 37
				table, guardTable := guarded(r, rows*dim)
				n, gap := len(lengths), dim+r.IntN(5)
				dst, guardDst := guarded(r, (n-1)*gap+dim)
				ids, offsets, scales := []int32{5}, []int32{1}, make([]float32, n) // what comes before is others'
				want := append([]float32(nil), dst...)
				for i, length := range lengths {
					scales[i] = float32(1 / math.Sqrt(float64(max(1, length))))
					sum := want[i*gap:][:dim]
					clear(sum)
					for range length {
						id := r.IntN(rows)
						ids = append(ids, int32(id))
						for c := range sum {
							sum[c] += table[id*dim+c]
						}
					}
					for c := range sum {
						sum[c] *= scales[i]
					}
					offsets = append(offsets, int32(len(ids)))
				}
				k.Bags(dst, gap, table, ids, offsets, scales, dim)
				at := fmt.Sprintf("bags of %v rows of %d", lengths, dim)
				sameValues(t, at, dst, want)
				guardTable(t, at)
				guardDst(t, at)
			}
		}
	})
}

// What is no row, or no bag, is never read.
func TestBagsWantRowsOfTheTable(t *testing.T) {
	x, one := make([]float32, 12), []float32{1}
	for name, call := range map[string]func(){
		"beyond":   func() { Host().Bags(x[:4], 4, x, []int32{3}, []int32{0, 1}, one, 4) },
		"negative": func() { Host().Bags(x[:4], 4, x, []int32{-1}, []int32{0, 1}, one, 4) },
		"offset":   func() { Host().Bags(x[:4], 4, x, []int32{1}, []int32{0, 2}, one, 4) },
		"falling":  func() { Host().Bags(x, 4, x, []int32{1, 1}, []int32{0, 2, 1, 2}, []float32{1, 1, 1}, 4) },
		"rising":   func() { Host().Bags(x, 4, x, []int32{1, 1}, []int32{0, 500, 1100, 2}, []float32{1, 1, 1}, 4) },
		"scales":   func() { Host().Bags(x[:4], 4, x, []int32{1}, []int32{0, 1}, nil, 4) },
		"length":   func() { Host().Bags(x[:3], 4, x, []int32{1}, []int32{0, 1}, one, 4) },
		"width":    func() { Host().Bags(x, 0, x, nil, []int32{0}, nil, 0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}
