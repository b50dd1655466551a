package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// gemmCase is one shape, with leading dimensions pad beyond the least.
type gemmCase struct {
	m, n, kk, pad  int
	transA, transB bool
	accumulate     bool
	bias, relu     bool
}

func (g gemmCase) String() string {
	return fmt.Sprintf("%dx%dx%d+%d/tA=%v,tB=%v,acc=%v,bias=%v,relu=%v", g.m, g.n, g.kk, g.pad, g.transA, g.transB, g.accumulate, g.bias, g.relu)
}

const guard = 12345.5

// guarded returns n random elements between guard values, 4 bytes off any
// alignment, and a check that the guards still stand.
func guarded(r *rand.Rand, n int) (x []float32, check func(t *testing.T, what string)) {
	const g = 65
	all := random(r, n+2*g)
	for i := range g {
		all[i], all[g+n+i] = guard, guard
	}
	return all[g : g+n : g+n], func(t *testing.T, what string) {
		t.Helper()
		for i := range g {
			if all[i] != guard || all[g+n+i] != guard {
				t.Errorf("%s: written outside, %d from an end", what, i)
				return
			}
		}
	}
}

func stored(rows, cols, ld int) int {
	if rows == 0 || cols == 0 {
		return 0
	}
	return (rows-1)*ld + cols
}

func (g gemmCase) run(t *testing.T, k *Kernels, s *Scratch, r *rand.Rand) {
	t.Helper()
	ar, ac, br, bc := g.m, g.kk, g.kk, g.n
	if g.transA {
		ar, ac = ac, ar
	}
	if g.transB {
		br, bc = bc, br
	}
	lda, ldb, ldc := ac+g.pad, bc+g.pad, g.n+g.pad
	a, checkA := guarded(r, stored(ar, ac, lda))
	b, checkB := guarded(r, stored(br, bc, ldb))
	c, checkC := guarded(r, stored(g.m, g.n, ldc))
	var e Epilogue
	if g.bias {
		e.RowBias, e.ColBias = random(r, g.m), random(r, g.n)
	}
	e.ReLU = g.relu
	want := append([]float32(nil), c...)
	gemmNaive(g.transA, g.transB, g.m, g.n, g.kk, a, lda, b, ldb, g.accumulate, want, ldc)
	applyEpilogue(want, g.m, g.n, ldc, e)
	if !g.accumulate { // C must not be read
		for i := range g.m {
			for j := range g.n {
				c[i*ldc+j] = float32(math.NaN())
			}
		}
	}
	k.GemmEpilogue(s, g.transA, g.transB, g.m, g.n, g.kk, a, lda, b, ldb, g.accumulate, c, ldc, e)
	checkA(t, g.String()+" A")
	checkB(t, g.String()+" B")
	checkC(t, g.String()+" C")
	tolerance := 4e-7 * (1 + float64(g.kk))
	for i := range c {
		if !(math.Abs(float64(c[i]-want[i])) <= tolerance) {
			t.Fatalf("%s: C[%d,%d] = %v, want %v", g, i/ldc, i%ldc, c[i], want[i])
		}
	}
}

func applyEpilogue(c []float32, m, n, ldc int, e Epilogue) {
	for i := range m {
		for j := range n {
			v := &c[i*ldc+j]
			if e.RowBias != nil {
				*v += e.RowBias[i]
			}
			if e.ColBias != nil {
				*v += e.ColBias[j]
			}
			if e.ReLU && *v < 0 {
				*v = 0
			}
		}
	}
}

func TestGemm(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(1, 2))
		var s Scratch
		for _, m := range []int{0, 1, 2, 3, 6, 7, 13, 14, 15, 20, 29} {
			for _, n := range []int{0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 50, 65} {
				for _, kk := range []int{0, 1, 2, 5, 8, 25} {
					f := r.IntN(64)
					gemmCase{m, n, kk, f & 1 * 3, f&2 > 0, f&4 > 0, f&8 > 0, f&16 > 0, f&32 > 0}.run(t, k, &s, r)
				}
			}
		}
	})
}
