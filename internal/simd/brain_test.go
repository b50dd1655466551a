package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// withBF16 skips a test on processors without products of bfloat16.
func withBF16(t testing.TB) *Kernels {
	k, err := BF16()
	if err != nil {
		t.Skip(err)
	}
	return k
}

// emulated are kernels that the tests execute in Go, set for amd64.
var emulated []*Kernels

// eachBF16 runs f for all kinds of kernels with products of bfloat16.
func eachBF16(t *testing.T, f func(t *testing.T, k *Kernels)) {
	kinds := emulated
	if k := bf16(); k != nil {
		kinds = append(kinds[:len(kinds):len(kinds)], k)
	}
	if len(kinds) == 0 {
		t.Skip("no kernels with products of bfloat16")
	}
	for i, k := range kinds {
		name := k.Name()
		if i < len(emulated) {
			name = "emulated"
		}
		t.Run(name, func(t *testing.T) { f(t, k) })
	}
}

// pairProducts is VDPBF16PS on one lane: acc plus the products of the second values, rounded, plus
// the products of the first, rounded. Inputs and results below the normal range are 0.
func pairProducts(acc float32, x, y [2]float32) float32 {
	for _, i := range []int{1, 0} {
		acc = toNormal(float32(math.FMA(float64(x[i]), float64(y[i]), float64(acc))))
	}
	return acc
}

func toNormal(x float32) float32 {
	if math.Float32bits(x)&0x7f800000 == 0 {
		return math.Float32frombits(math.Float32bits(x) & 0x80000000)
	}
	return x
}

// rounded is x as an operand of a product.
func rounded(x float32) float32 { return fromBrain(toNormalBrain(x)) }

// brainNaive is Gemm of BF16 without blocks in memory: the naive twin, with the same bits.
func brainNaive(k *Kernels, m, n, kk int, a, b []float32, accumulate bool, c []float32, ldc int) {
	for i := range m {
		for j := range n {
			for block := range k.Blocks(kk) {
				lo, hi := k.Block(kk, block)
				var x, y [2][]float32 // the first and the second values of the pairs
				for p := lo; p < hi; p++ {
					x[(p-lo)%2], y[(p-lo)%2] = append(x[(p-lo)%2], rounded(a[i*kk+p])), append(y[(p-lo)%2], rounded(b[p*n+j]))
				}
				if (hi-lo)%2 != 0 {
					x[1], y[1] = append(x[1], 0), append(y[1], 0)
				}
				sum := pairSum(x, y)
				if k.gemm.rowPairs {
					sum = stepSum(x, y)
				}
				if accumulate || block > 0 {
					sum += c[i*ldc+j]
				}
				c[i*ldc+j] = sum
			}
		}
	}
}

// pairSum is the order of AVX512-BF16.
func pairSum(x, y [2][]float32) (sum float32) {
	for p := range x[0] {
		sum = pairProducts(sum, [2]float32{x[0][p], x[1][p]}, [2]float32{y[0][p], y[1][p]})
	}
	return sum
}

// stepSum is the order of AMX.
func stepSum(x, y [2][]float32) (sum float32) {
	for p := 0; p < len(x[0]); p += 16 {
		var part [2]float32
		for i := range part {
			for l := p; l < min(p+16, len(x[i])); l++ {
				part[i] = toNormal(float32(math.FMA(float64(x[i][l]), float64(y[i][l]), float64(part[i]))))
			}
		}
		sum = toNormal(sum + toNormal(part[0]+part[1]))
	}
	return sum
}

// TestBF16Pairs compares the three ways to round operands with one value at a time.
func TestBF16Pairs(t *testing.T) {
	k := withBF16(t)
	r := rand.New(rand.NewPCG(1, 1))
	values := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			switch r.IntN(4) {
			case 0: // any bits: NaNs, infinities, values below the normal range
				x[i] = math.Float32frombits(r.Uint32())
			case 1: // ties
				x[i] = math.Float32frombits(r.Uint32()&0xffff0000 | 0x8000)
			case 2:
				x[i] = math.Float32frombits(r.Uint32() & 0x80ffffff)
			default:
				x[i] = r.Float32() - 0.5
			}
		}
		return x
	}
	for _, rows := range []int{1, 2, 3, 16, 17, 33, 64, 65, 100, 700} {
		for _, columns := range []int{1, 2, 15, 16, 17, 31, 32, 33, 64, 95, 131, 600} {
			pad := r.IntN(3)
			src := values((rows-1)*(columns+pad) + columns)
			at := func(i, j int) float32 {
				if i >= rows || j >= columns {
					return 0
				}
				return src[i*(columns+pad)+j]
			}
			name := fmt.Sprintf("%dx%d+%d", rows, columns, pad)
			depth := (columns + 1) / 2
			got := make([]float32, rows*depth)
			k.gemm.pair.pack(got, depth, src, columns+pad, columns, rows)
			for i := range got {
				same(t, name+" rows", i, got[i], pairOf(at(i/depth, i%depth*2), at(i/depth, i%depth*2+1)))
			}
			got = make([]float32, (rows+1)/2*columns)
			k.gemm.pair.interleave(got, columns, src, columns+pad, columns, columns, rows)
			for i := range got {
				p, j := i/columns*2, i%columns
				same(t, name+" between", i, got[i], pairOf(at(p, j), at(p+1, j)))
			}
			if rows <= 32 {
				got = values(depth * 32)
				k.gemm.pair.packColumns(got, src, columns+pad, columns, rows, 32)
				for i := range got {
					same(t, name+" columns", i, got[i], pairOf(at(i%32, i/32*2), at(i%32, i/32*2+1)))
				}
			}
		}
	}
}

func same(t *testing.T, what string, i int, got, want float32) {
	t.Helper()
	if math.Float32bits(got) != math.Float32bits(want) {
		t.Fatalf("%s: element %d is %#x, want %#x", what, i, math.Float32bits(got), math.Float32bits(want))
	}
}

// TestBF16ProductsEqualTwin compares products with the naive twin, bit by bit, for values of any
// size.
func TestBF16ProductsEqualTwin(t *testing.T) { eachBF16(t, productsEqualTwin) }

func productsEqualTwin(t *testing.T, k *Kernels) {
	r := rand.New(rand.NewPCG(2, 2))
	var s Scratch
	for _, scale := range []float64{1, 0x1p-64, 0x1p-66, 0x1p60} {
		for _, g := range [][3]int{{1, 1, 1}, {5, 9, 3}, {14, 32, 2}, {15, 33, 70}, {29, 70, 513}, {3, 20, 1025}, {7, 65, 2051}} {
			m, n, kk := g[0], g[1], g[2]
			a, b, start := normal(r, m*kk), normal(r, kk*n), normal(r, m*n)
			for i := range a {
				a[i] = float32(float64(a[i]) * scale)
			}
			for i := range b {
				b[i] = float32(float64(b[i]) * scale)
			}
			for _, accumulate := range []bool{false, true} {
				got, want := append([]float32(nil), start...), append([]float32(nil), start...)
				k.Gemm(&s, false, false, m, n, kk, a, kk, b, n, accumulate, got, n)
				brainNaive(k, m, n, kk, a, b, accumulate, want, n)
				equalBits(t, fmt.Sprint(g, " scale ", scale), got, want)
			}
		}
	}
}

// TestBF16ProductsWithinBound compares products with exact ones of unrounded operands: each of the
// kk terms is off by at most 2^-7 of its magnitude (two roundings of 2^-8), and each of the sums by
// 2^-24.
func TestBF16ProductsWithinBound(t *testing.T) { eachBF16(t, productsWithinBound) }

func productsWithinBound(t *testing.T, k *Kernels) {
	r := rand.New(rand.NewPCG(3, 3))
	var s Scratch
	for _, kk := range []int{1, 64, 1000, 3000} {
		const m, n = 20, 40
		a, b, c := normal(r, m*kk), normal(r, kk*n), make([]float32, m*n)
		k.Gemm(&s, false, false, m, n, kk, a, kk, b, n, false, c, n)
		for i, got := range c {
			var want, size float64
			for p := range kk {
				v := float64(a[i/n*kk+p]) * float64(b[p*n+i%n])
				want, size = want+v, size+math.Abs(v)
			}
			bound := size * (0x1p-7 + 0x1p-16 + float64(kk)*0x1p-24)
			if math.Abs(float64(got)-want) > bound {
				t.Fatalf("%d terms: element %d is %v, want %v within %v", kk, i, got, want, bound)
			}
		}
	}
}

// TestBF16NaNStaysInItsRow checks that a NaN of A and an infinity of B reach their row and column
// only.
func TestBF16NaNStaysInItsRow(t *testing.T) {
	eachBF16(t, func(t *testing.T, k *Kernels) {
		const m, n, kk, row, column = 37, 41, 75, 20, 33
		r := rand.New(rand.NewPCG(6, 6))
		a, b, c := random(r, m*kk), random(r, kk*n), make([]float32, m*n)
		a[row*kk+kk-1], b[(kk-1)*n+column] = float32(math.NaN()), float32(math.Inf(1))
		var s Scratch
		k.Gemm(&s, false, false, m, n, kk, a, kk, b, n, false, c, n)
		for i, v := range c {
			if nan, inf := math.IsNaN(float64(v)), math.IsInf(float64(v), 0); nan != (i/n == row) || inf != (i/n != row && i%n == column) {
				t.Fatalf("element %d,%d is %v", i/n, i%n, v)
			}
		}
	})
}

// TestBF16SameBits checks that packed or not, transposed or not, split or not, products have the
// same bits, and blocks of a sum the bits of one product.
func TestBF16SameBits(t *testing.T) { eachBF16(t, bf16SameBits) }

func bf16SameBits(t *testing.T, k *Kernels) {
	most := 1 << 30
	if slices.Contains(emulated, k) {
		most = 3e6
	}
	waysSameBits(t, k, most)
	blocksAddUp(t, k)
	const m, n, kk = 45, 101, 1700
	r := rand.New(rand.NewPCG(5, 6))
	splitsSameBits(t, k, m, n, kk, random(r, m*kk), random(r, kk*n), random(r, n), random(r, m*n))
}

// TestBF16CallsAreShort is TestCallsAreShort.
func TestBF16CallsAreShort(t *testing.T) {
	most := calls{}
	runLarge(counted(withBF16(t), most))
	for kernel, limit := range map[string]int{"gemm": callSteps, "pairs": callFloats} {
		if most[kernel] > limit || most[kernel] < limit/2 {
			t.Errorf("one call of %s was given %d, the limit is %d", kernel, most[kernel], limit)
		}
	}
}

// TestBF16AllocatesNothing is TestGemmAllocatesNothing, with packed operands.
func TestBF16AllocatesNothing(t *testing.T) {
	k := withBF16(t)
	const n = 100
	var s Scratch
	var p PackedB
	x, c := make([]float32, n*n), make([]float32, n*n)
	rows := &rowsOf{x, n}
	if allocs := testing.AllocsPerRun(3, func() {
		k.PackB(&p, true, n, n, x, n)
		k.GemmWith(&s, true, n, n, n, x, n, &p, false, c, n, Epilogue{})
		k.GemmRows(&s, n, n, n, rows, &p, false, c, n, Epilogue{})
		k.GemmRowsT(&s, n, n, n, rows, x, n, false, c, n)
	}); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// BenchmarkBF16 reports the share of the measured peak of dot products ("peak") and the rate
// relative to float32 operands ("ratio").
func BenchmarkBF16(b *testing.B) {
	k := withBF16(b)
	for _, g := range []gemmCase{
		{m: 1024, n: 1024, kk: 1024},
		{m: 1024, n: 1024, kk: 1024, transB: true},
		{m: 1024, n: 1024, kk: 1024, transA: true},
		{m: 128, n: 4096, kk: 1024, transB: true},
		{m: 64, n: 500, kk: 800, transB: true},
		{m: 500, n: 800, kk: 64, transA: true},
	} {
		b.Run(g.String(), func(b *testing.B) {
			var s Scratch
			x, y, c := make([]float32, g.m*g.kk), make([]float32, g.n*g.kk), make([]float32, g.m*g.n)
			lda, ldb := g.kk, g.n
			if g.transA {
				lda = g.m
			}
			if g.transB {
				ldb = g.kk
			}
			rate := func(k *Kernels, n int) float64 {
				begun := time.Now()
				for range n {
					k.Gemm(&s, g.transA, g.transB, g.m, g.n, g.kk, x, lda, y, ldb, false, c, g.n)
				}
				return 2 * float64(n*g.m*g.n*g.kk) / time.Since(begun).Seconds()
			}
			begun := time.Now()
			flops := k.Peak(20e9)
			peak := float64(flops) / time.Since(begun).Seconds()
			brain, single := rate(k, b.N), rate(Host(), b.N)
			b.ReportMetric(brain/1e9, "GFLOP/s")
			b.ReportMetric(brain/peak, "peak")
			b.ReportMetric(brain/single, "ratio")
		})
	}
}

// TestSameBits checks the kinds of kernels with equal bits.
func TestSameBits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"avx2", "avx512", true}, {"avx512", "portable", false}, {"avx512-bf16", "avx512", false}, {"avx512-bf16", "avx512-bf16", true}} {
		if got := SameBits(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: same bits %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
