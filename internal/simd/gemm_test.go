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

// Shapes that cross the block sizes, and those of the MNIST network.
func TestGemmLarge(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(3, 4))
		var s Scratch
		for _, g := range []gemmCase{
			{m: 20, n: 576, kk: 25, bias: true, relu: true},
			{m: 50, n: 64, kk: 500},
			{m: 50, n: 500, kk: 64, transB: true, accumulate: true},
			{m: 131, n: 64, kk: 50, transA: true},
			{m: 64, n: 75, kk: 801, bias: true},
			{m: 33, n: 70, kk: 513, pad: 5, transA: true, accumulate: true, bias: true, relu: true},
			{m: 5, n: 1100, kk: 520, transB: true},
			{m: 40, n: 512, kk: 256}, // rows that meet in one cache set
			{m: 30, n: 260, kk: 1030, transB: true, accumulate: true},
		} {
			g.run(t, k, &s, r)
		}
	})
}

func FuzzGemm(f *testing.F) {
	f.Add(uint8(20), uint8(70), uint16(25), uint8(3), uint8(0), uint64(1))
	f.Add(uint8(15), uint8(33), uint16(600), uint8(0), uint8(31), uint64(2))
	f.Fuzz(func(t *testing.T, m, n uint8, kk uint16, pad, flags uint8, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		g := gemmCase{int(m), int(n), int(kk % 1100), int(pad % 9), flags&1 > 0, flags&2 > 0, flags&4 > 0, flags&8 > 0, flags&16 > 0}
		var s Scratch
		for _, k := range Levels() {
			g.run(t, k, &s, r)
		}
	})
}

// However rows and columns are split among calls, the bits are the same, and
// the fused levels agree with each other.
func TestGemmSameBits(t *testing.T) {
	const m, n, kk = 45, 101, 700
	r := rand.New(rand.NewPCG(5, 6))
	a, b, bias := random(r, m*kk), random(r, kk*n), random(r, n)
	start := random(r, m*n)
	var fused []float32
	eachLevel(t, func(t *testing.T, k *Kernels) {
		whole := splitsSameBits(t, k, m, n, kk, a, b, bias, start)
		if k.Name() != "portable" {
			if fused != nil {
				equalBits(t, "avx2 and avx512", whole, fused)
			}
			fused = whole
		}
	})
}

// splitsSameBits computes a product in one call and in calls for parts of its rows and columns.
func splitsSameBits(t *testing.T, k *Kernels, m, n, kk int, a, b, bias, start []float32) (whole []float32) {
	var s Scratch
	whole = append([]float32(nil), start...)
	k.GemmEpilogue(&s, false, false, m, n, kk, a, kk, b, n, true, whole, n, Epilogue{ColBias: bias})
	for _, rows := range []int{1, 7, 23} {
		for _, cols := range []int{3, 16, 40} {
			split := append([]float32(nil), start...)
			for i := 0; i < m; i += rows {
				for j := 0; j < n; j += cols {
					w := min(cols, n-j)
					k.GemmEpilogue(&s, false, false, min(rows, m-i), w, kk, a[i*kk:], kk, b[j:], n, true, split[i*n+j:], n, Epilogue{ColBias: bias[j : j+w]})
				}
			}
			equalBits(t, fmt.Sprintf("split %dx%d", rows, cols), split, whole)
		}
	}
	return whole
}

func equalBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v (%#x), want %v (%#x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func TestGemmChecks(t *testing.T) {
	var s Scratch
	x := make([]float32, 12)
	for name, f := range map[string]func(){
		"short A":  func() { Host().Gemm(&s, false, false, 4, 3, 4, x, 4, x, 3, false, x, 3) },
		"narrow C": func() { Host().Gemm(&s, false, false, 3, 4, 1, x, 1, x, 4, false, x, 3) },
		"bias":     func() { Host().GemmEpilogue(&s, false, false, 3, 4, 1, x, 1, x, 4, false, x, 4, Epilogue{RowBias: x}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestGemmAllocatesNothing(t *testing.T) {
	var s Scratch
	x, c := make([]float32, 100*100), make([]float32, 100*100)
	for _, k := range Levels() {
		if n := testing.AllocsPerRun(3, func() {
			k.Gemm(&s, false, true, 50, 100, 100, x, 100, x, 100, false, c, 100)
		}); n > 0 {
			t.Errorf("%s: %v allocations", k.Name(), n)
		}
	}
}
