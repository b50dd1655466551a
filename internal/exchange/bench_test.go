package exchange

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/compress"
)

// sparseOf has about so many of n entries, at independent places.
func sparseOf(n, k int, seed uint64) *compress.Sparse {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &compress.Sparse{Len: n}
	gap := float64(n)/float64(k) - 0.5
	for i := rng.ExpFloat64() * gap; i < float64(n); i += 1 + rng.ExpFloat64()*gap {
		s.Append(int(i), float32(rng.NormFloat64()))
	}
	return s
}

// Summing N ranks' vectors, in one pass over the sum, and one after the other.
func BenchmarkSum(b *testing.B) {
	for _, n := range []int{1 << 20, 16 << 20} {
		for _, ranks := range []int{2, 8} {
			for _, density := range []float64{0.001, 0.01, 0.1} {
				var vectors []*compress.Sparse
				entries := 0
				for r := range ranks {
					vectors = append(vectors, sparseOf(n, int(density*float64(n)), uint64(r)))
					entries += vectors[r].Count()
				}
				x := make([]float32, n)
				onRanks(b, 1, Config{}, func(e *GroupReducer, _ int) error {
					for name, sum := range map[string]func(){
						"pass": func() { e.sum(x, vectors) },
						"addto": func() {
							clear(x)
							for _, v := range vectors {
								v.AddTo(x)
							}
						},
						"clear": func() { clear(x) },
					} {
						b.Run(fmt.Sprintf("%dMi/%d/%v/%s", n>>20, ranks, density, name), func(b *testing.B) {
							for b.Loop() {
								sum()
							}
							b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(entries), "ns/entry")
						})
					}
					return nil
				})
			}
		}
	}
}

// Whole exchanges among ranks of one process: what is computed, mostly.
func BenchmarkExchange(b *testing.B) {
	const n = 1 << 20
	for _, ranks := range []int{2, 4} {
		for _, density := range []float64{0.01, 0.1} {
			for _, algorithm := range Algorithms() {
				b.Run(fmt.Sprintf("%d/%v/%s", ranks, density, algorithm), func(b *testing.B) {
					onRanks(b, ranks, Config{Algorithm: algorithm}, func(e *GroupReducer, rank int) error {
						op := &Request{X: make([]float32, n), Sparse: sparseOf(n, int(density*n), uint64(rank))}
						for range b.N {
							if err := do(e, op); err != nil {
								return err
							}
						}
						return nil
					})
				})
			}
		}
	}
	for _, q := range []compress.Quantiser{compress.FP32{}, compress.FP16{}, compress.Int8{}, compress.Sign{}} {
		b.Run("2/"+q.Name(), func(b *testing.B) {
			x := random(2, n, q)
			b.SetBytes(4 * n)
			onRanks(b, 2, Config{}, func(e *GroupReducer, rank int) error {
				op := &Request{X: make([]float32, n), Code: q}
				for range b.N {
					copy(op.X, x[rank])
					if err := do(e, op); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// What Tree does in each step.
func BenchmarkMerge(b *testing.B) {
	x, y := sparseOf(1<<20, 10000, 1), sparseOf(1<<20, 10000, 2)
	onRanks(b, 1, Config{}, func(e *GroupReducer, _ int) error {
		for b.Loop() {
			e.merge(x, y)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(x.Count()+y.Count()), "ns/entry")
		return nil
	})
}
