package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkTake compares the compaction that gradient sparsification does with
// Add, one streaming pass over the same two arrays; GB/s counts the bytes that
// the pass reads and writes.
func BenchmarkTake(b *testing.B) {
	for _, n := range []int{1 << 16, 1 << 20, 1 << 24} {
		r := rand.New(rand.NewPCG(1, 2))
		grad, x := random(r, n), make([]float32, n)
		against := append([]float32(nil), grad...)
		Host().Scale(against, -1)
		index, value := make([]int32, n), make([]float32, n)
		for _, k := range Levels() {
			b.Run(fmt.Sprintf("add/%s/%d", k.Name(), n), func(b *testing.B) {
				b.SetBytes(12 * int64(n))
				for b.Loop() {
					k.Add(x, grad)
				}
			})
			for _, ratio := range []float32{0.01, 0.1} {
				b.Run(fmt.Sprintf("take/%s/%d/%v", k.Name(), n, ratio), func(b *testing.B) {
					b.SetBytes(12 * int64(n))
					clear(x)
					for i := 0; b.Loop(); i++ { // what the one leaves the other takes back
						k.TakeAdded(index, value, x, [][]float32{grad, against}[i%2], Magnitude(1-ratio), 0, OftenOf(int(100*ratio), 100))
					}
				})
			}
		}
	}
}
