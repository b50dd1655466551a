package engine

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo/ps/schema"
)

// Some sessions push and pull batches of 4096 rows of width 16 of a million keys, with
// Adagrad: ns per row.
func BenchmarkEngine(b *testing.B) {
	const dim, batch, most = 16, 4096, 1 << 20
	for _, durability := range []Durability{None, WAL} {
		for _, op := range []string{"push", "pull"} {
			if op == "pull" && durability == WAL {
				continue
			}
			b.Run(name("%s %s", op, durability), func(b *testing.B) {
				s := schema.Schema{Sparse: []schema.Sparse{{Name: "t", Dim: dim, Rule: schema.Rule{Name: "adagrad", LR: 0.1}}}}
				e := open(b, Config{Trainers: 64, Mode: Async, Durability: durability, Dir: b.TempDir()}, s)
				keys := make([]uint64, most)
				for i := range keys {
					keys[i] = uint64(i)
				}
				must(b, e.PullRows(anyPull, 0, keys, make([]float32, most*dim)))
				var sessions atomic.Int32
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					session := int(sessions.Add(1)) - 1
					rng := rand.New(rand.NewPCG(uint64(session), 1))
					values, at := make([]float32, batch*dim), make([]uint64, batch)
					for seq := uint64(1); pb.Next(); seq++ {
						stride := uint64(rng.IntN(most)) | 1 // odd: the keys are different
						for i := range at {
							at[i] = (uint64(i)*stride + seq) % most
						}
						var err error
						if op == "pull" {
							err = e.PullRows(anyPull, 0, at, values)
						} else {
							var t Ticket
							if t, err = e.PushRows(session, seq, 0, 1, at, values); err == nil {
								err = e.Durable(t)
							}
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/row")
			})
		}
	}
}
