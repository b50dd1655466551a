package simd

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
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

// BenchmarkReduceShared is an allreduce of two processors: each has just written
// one window, then reduces half of both in place. Only the reduction is timed;
// waits spin, so it wants two idle processors.
func BenchmarkReduceShared(b *testing.B) {
	for _, n := range []int{64, 1000, 16 << 10, 256 << 10, 1 << 20, 8 << 20} {
		for _, k := range Levels() {
			b.Run(fmt.Sprintf("%d/%s", n, k.Name()), func(b *testing.B) {
				windows := [2][]float32{make([]float32, n), make([]float32, n)}
				var arrived atomic.Int64
				var busy time.Duration
				rank := func(r int) {
					var phase int64
					meet := func() {
						arrived.Add(1)
						for phase += 2; arrived.Load() < phase; {
						}
					}
					mine := [][]float32{windows[0][r*n/2 : (r+1)*n/2], windows[1][r*n/2 : (r+1)*n/2]}
					for range b.N {
						for i := range windows[r] {
							windows[r][i] = 1
						}
						meet()
						start := time.Now()
						k.ReduceAll(ReduceSum, mine, mine, 0.5)
						meet()
						if r == 0 {
							busy += time.Since(start)
						}
					}
				}
				done := make(chan struct{})
				go func() { rank(1); close(done) }()
				rank(0)
				<-done
				b.ReportMetric(float64(busy.Nanoseconds())/float64(b.N), "ns/reduction")
				b.ReportMetric(16*float64(n)*float64(b.N)/busy.Seconds()/1e9, "GB/s")
			})
		}
	}
}
