package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkStore reads and writes rows on SSD.
func BenchmarkStore(b *testing.B) {
	d := mustSegments(b, 4<<30)
	const width, batch, keys = 100, 4096, 200_000
	var rows Rows
	for k := uint64(0); k < keys; {
		rows.Reset()
		for ; rows.Len() < batch && k < keys; k++ {
			rows.Add(2*k, make([]byte, width))
			rows.Old = append(rows.Old, -1)
		}
		must(b, d.Put(1, &rows))
	}
	must(b, d.Compact(context.Background()))
	r := rand.New(rand.NewPCG(9, 10))
	for _, odd := range []uint64{0, 1} {
		b.Run(fmt.Sprintf("get/found=%v", odd == 0), func(b *testing.B) {
			var found Rows
			for range b.N {
				at := r.Uint64N(keys / 8)
				wanted := make([]uint64, batch)
				for i := range wanted {
					wanted[i] = 2*(at+uint64(i)*40) + odd
				}
				must(b, d.Get(1, wanted, &found))
			}
			b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "rows/s")
		})
	}
	for _, known := range []bool{false, true} {
		b.Run(fmt.Sprintf("put/known=%v", known), func(b *testing.B) {
			for range b.N {
				at := r.Uint64N(keys - batch*40)
				rows.Reset()
				for i := range uint64(batch) {
					rows.Add(2*(at+i*40), make([]byte, width))
					if known {
						rows.Old = append(rows.Old, width)
					}
				}
				must(b, d.Put(1, &rows))
			}
			b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
