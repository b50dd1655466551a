package simd

import (
	"fmt"
	"testing"
)

// BenchmarkReduceAll reduces in place, as windows of shared memory are, and
// counts the bytes read and written; copy is the limit.
func BenchmarkReduceAll(b *testing.B) {
	for _, n := range []int{12, 1000, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		var all [8][]float32
		for i := range all {
			all[i] = make([]float32, n)
			for j := range all[i] {
				all[i][j] = 1
			}
		}
		b.Run(fmt.Sprintf("%d/copy", n), func(b *testing.B) {
			b.SetBytes(int64(8 * n))
			for b.Loop() {
				copy(all[0], all[1])
			}
		})
		for _, ranks := range []int{2, 4, 8} {
			windows := all[:ranks]
			for _, k := range Levels() {
				b.Run(fmt.Sprintf("%d/%d ranks/%s", n, ranks, k.Name()), func(b *testing.B) {
					b.SetBytes(int64(8 * n * ranks))
					for b.Loop() {
						k.ReduceAll(ReduceSum, windows, windows, 1)
					}
				})
			}
		}
		for _, k := range Levels() {
			b.Run(fmt.Sprintf("%d/combine/%s", n, k.Name()), func(b *testing.B) {
				b.SetBytes(int64(12 * n))
				for b.Loop() {
					k.Combine(ReduceSum, all[0], all[1], all[2])
				}
			})
			b.Run(fmt.Sprintf("%d/add/%s", n, k.Name()), func(b *testing.B) {
				b.SetBytes(int64(12 * n))
				for b.Loop() {
					k.AddTo(all[0], all[1], all[2])
				}
			})
		}
	}
}
