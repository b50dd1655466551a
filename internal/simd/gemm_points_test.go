package simd

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestGemmPointsHasTheBitsOfGemm(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	for _, k := range Levels() {
		for range 60 {
			p := Points{
				Count: 1 + r.IntN(4), M: 1 + r.IntN(70), N: 1 + r.IntN(150), K: 1 + r.IntN(90),
				TransA: r.IntN(2) == 0, Accumulate: r.IntN(2) == 0,
			}
			if r.IntN(10) == 0 {
				p.K += kcMax
			}
			rows, cols := p.M, p.K
			if p.TransA {
				rows, cols = p.K, p.M
			}
			p.LDA, p.LDB, p.LDC = cols+r.IntN(5), p.N+r.IntN(5), p.N+r.IntN(5)
			p.AStep, p.BStep, p.CStep = rows*p.LDA+3, p.K*p.LDB+1, p.M*p.LDC+2
			p.A, p.B = random(r, p.Count*p.AStep), random(r, p.Count*p.BStep)
			c := random(r, p.Count*p.CStep)
			var s Scratch
			want := slices.Clone(c)
			for i := range p.Count {
				k.Gemm(&s, p.TransA, false, p.M, p.N, p.K, p.A[i*p.AStep:], p.LDA, p.B[i*p.BStep:], p.LDB, p.Accumulate, want[i*p.CStep:], p.LDC)
			}
			name := fmt.Sprintf("%s: %d of %dx%dx%d, transposed %v", k.Name(), p.Count, p.M, p.N, p.K, p.TransA)
			p.C = slices.Clone(c)
			k.GemmPoints(&s, &p)
			if !slices.Equal(p.C, want) {
				t.Fatalf("%s: bits differ", name)
			}
			p.Packed = make([]PackedB, p.Count)
			for i := range p.Packed {
				k.PackB(&p.Packed[i], false, p.K, p.N, p.B[i*p.BStep:], p.LDB)
			}
			p.C = slices.Clone(c)
			k.GemmPoints(&s, &p)
			if !slices.Equal(p.C, want) {
				t.Fatalf("%s: bits differ where B is packed", name)
			}
		}
	}
}
