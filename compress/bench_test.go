package compress

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

var benchLengths = []int{1 << 12, 1 << 14, 1 << 16, 1 << 20, 1 << 24}

// grads are two gradients; steps take turns, and each is the negative of the
// other, so that residuals stay as they are.
func benchGrads(n int) [2][]float32 {
	r := rand.New(rand.NewPCG(1, 2))
	a, b := zeros(n), zeros(n)
	for i := range a {
		a[i] = float32(r.NormFloat64())
		b[i] = -a[i]
	}
	return [2][]float32{a, b}
}

// BenchmarkSelect compares selections with one streaming pass over gradient and
// residual, "stream": GB/s counts the bytes of that pass, so that ratios of times
// are those of GB/s.
func BenchmarkSelect(b *testing.B) {
	for _, n := range benchLengths {
		grads := benchGrads(n)
		residual := zeros(n)
		b.Run(fmt.Sprintf("stream/%d", n), func(b *testing.B) {
			b.SetBytes(12 * int64(n))
			k := simd.Host()
			for i := 0; b.Loop(); i++ {
				k.Add(residual, grads[i%2])
			}
		})
		for _, ratio := range []float64{0.01, 0.1} {
			for _, c := range []Selector{
				DLGS{Ratio: ratio, Every: 1 << 20}, // reuse only
				TopK{Ratio: ratio}, Sampled{Ratio: ratio}, GaussianK{Ratio: ratio},
			} {
				b.Run(fmt.Sprintf("%s/%d", c.Name(), n), func(b *testing.B) {
					var w Workspace
					var s Sparse
					sel := c.Bind(n)
					clear(residual)
					s.Reset(n)
					sel.Select(&w, &s, 0, residual, grads[0])
					b.SetBytes(12 * int64(n))
					for i := 1; b.Loop(); i++ {
						s.Reset(n)
						sel.Select(&w, &s, 0, residual, grads[i%2])
					}
					b.ReportMetric(s.Density(), "density")
				})
			}
		}
	}
}

// BenchmarkExactByCounting is the exact selection where the sample misled: all
// values but few are equal.
func BenchmarkExactByCounting(b *testing.B) {
	const n = 1 << 24
	grad, residual := zeros(n), zeros(n)
	for i := range grad {
		grad[i] = 1
	}
	var w Workspace
	var s Sparse
	b.SetBytes(12 * n)
	for b.Loop() {
		clear(residual)
		s.Reset(n)
		w.Exact(&s, 0, residual, grad, n/100)
	}
}

// BenchmarkCode counts the bytes of values in float32.
func BenchmarkCode(b *testing.B) {
	const n = 1 << 20
	x := benchGrads(n)[0]
	for _, q := range quantisers {
		buf := make([]byte, q.Size(n))
		b.Run("encode/"+q.Name(), func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				_ = q.Encode(buf, x)
			}
		})
		b.Run("decode/"+q.Name(), func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				_ = q.Decode(x, buf)
			}
		})
	}
}

// BenchmarkPayload counts the bytes of entries, 8 each.
func BenchmarkPayload(b *testing.B) {
	const n = 1 << 20
	r := rand.New(rand.NewPCG(3, 4))
	for _, share := range []float64{0.01, 0.1, 0.4} {
		s, c := someOf(r, n, share), &Coder{q: FP32{}}
		p, err := c.Encode(nil, s)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("encode/%v", share), func(b *testing.B) {
			b.SetBytes(8 * int64(s.Count()))
			for b.Loop() {
				p, _ = c.Encode(p[:0], s)
			}
			b.ReportMetric(float64(len(p))/float64(s.Count()), "bytes/entry")
		})
		var got Sparse
		b.Run(fmt.Sprintf("decode/%v", share), func(b *testing.B) {
			b.SetBytes(8 * int64(s.Count()))
			for b.Loop() {
				_ = c.Decode(&got, p)
			}
		})
		sum := zeros(n)
		b.Run(fmt.Sprintf("add/%v", share), func(b *testing.B) {
			b.SetBytes(8 * int64(s.Count()))
			for b.Loop() {
				s.AddTo(sum)
			}
		})
	}
}
