package simd

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/hugepage"
)

// RowPacker delivers a matrix R block by block, row-major: the left-hand matrix of
// [Kernels.GemmRows], or of [Kernels.GemmRowsT] transposed. The whole matrix need never exist: a
// convolution over channels-last images is a product of patches, runs of kernelWidth*channels
// floats, as rows.
type RowPacker interface {
	// PackRows writes the rows i0 to i0+rows and columns k0 to k0+kc:
	//
	//	dst[i*ld + j] = R[i0+i, k0+j]     0 <= i < rows, 0 <= j < kc
	//
	// The floats of dst between the rows may be overwritten. A block is requested once per product
	// if n is below some thousands.
	PackRows(dst []float32, ld, i0, rows, k0, kc int)
}

// Epilogue is applied to C while a tile is in registers, after the last product: C = relu(C +
// RowBias[i] + ColBias[j]). The zero value has no effect.
type Epilogue struct {
	RowBias []float32 // a value per row of C, or nil
	ColBias []float32 // a value per column of C, or nil
	ReLU    bool      // see [Kernels.ReLU]
}

// Scratch holds the packing buffers of one goroutine. The zero value is ready; buffers grow to the
// largest call (a few MiB) and are reused, so that repeated calls allocate no memory.
type Scratch struct {
	a, b, r []float32             // A and B packed, a block of a RowPacker
	pairs   []float32             // a block of A as pairs, before its tiles
	edge    [amxRows * 32]float32 // sums of one tile
	tile    tile
	dense   denseB
	points  [37 * 16]float32 // one Winograd tile
}

// grow returns a slice of n floats on *buf, with slack at the end.
func grow(buf *[]float32, n int) []float32 {
	if cap(*buf) < n {
		*buf = make([]float32, n+n/4)
		hugepage.Advise(*buf)
	}
	return (*buf)[:n]
}

// Gemm computes C[m,n] = op(A)[m,kk] * op(B)[kk,n], or adds the product to C if accumulate is set.
// Matrices are row-major with leading dimensions lda, ldb, ldc in elements; op(X) is X, or its
// transpose if transX is set (A is then stored as [kk,m], B as [n,kk]). C is not read without
// accumulate. C must not overlap A or B.
//
// Blocked after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008):
// 2*m*n*kk flops, with one pass over C per 512 of kk (1,024 for AVX512-BF16). The products of an
// element are added in the order of kk, in blocks that depend on kk only.
func (k *Kernels) Gemm(s *Scratch, transA, transB bool, m, n, kk int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	k.GemmEpilogue(s, transA, transB, m, n, kk, a, lda, b, ldb, accumulate, c, ldc, Epilogue{})
}

// GemmEpilogue is [Kernels.Gemm] followed by e.
func (k *Kernels) GemmEpilogue(s *Scratch, transA, transB bool, m, n, kk int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int, e Epilogue) {
	k.setDense(s, transB, kk, n, b, ldb)
	g := product{k: &k.gemm, s: s, m: m, n: n, kk: kk, b: &s.dense, c: c, ldc: ldc, e: e}
	g.a.set(transA, m, kk, a, lda)
	g.run(accumulate)
	s.dense.data = nil
}

// GemmWith is [Kernels.GemmEpilogue] with a packed B[kk,n], and the same bits.
func (k *Kernels) GemmWith(s *Scratch, transA bool, m, n, kk int, a []float32, lda int, b *PackedB, accumulate bool, c []float32, ldc int, e Epilogue) {
	g := product{k: &k.gemm, s: s, m: m, n: n, kk: kk, packed: b, c: c, ldc: ldc, e: e}
	g.a.set(transA, m, kk, a, lda)
	g.run(accumulate)
}

// GemmRows is [Kernels.GemmWith] with A[m,kk] delivered by a, and the same bits.
func (k *Kernels) GemmRows(s *Scratch, m, n, kk int, a RowPacker, b *PackedB, accumulate bool, c []float32, ldc int, e Epilogue) {
	g := product{k: &k.gemm, s: s, m: m, n: n, kk: kk, packed: b, c: c, ldc: ldc, e: e}
	g.a.rows = a
	g.run(accumulate)
}

// GemmRowsT computes C[m,n] = transpose(R)[m,kk] * B[kk,n], or adds it to C, with R[kk,m] delivered
// by r: the gradient of a convolution's weights, with the kk patches of [Kernels.GemmRows] as R and
// the gradient of its output as B. It has the bits of [Kernels.Gemm] with transA set.
func (k *Kernels) GemmRowsT(s *Scratch, m, n, kk int, r RowPacker, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	k.setDense(s, false, kk, n, b, ldb)
	g := product{k: &k.gemm, s: s, m: m, n: n, kk: kk, b: &s.dense, c: c, ldc: ldc}
	g.a.rows, g.a.transposed = r, true
	g.run(accumulate)
	s.dense.data = nil
}

func (k *Kernels) setDense(s *Scratch, transB bool, kk, n int, b []float32, ldb int) {
	if transB {
		checkMatrix("B", b, n, kk, ldb)
		s.dense = denseB{level: &k.gemm, data: b, ns: ldb, ks: 1}
	} else {
		checkMatrix("B", b, kk, n, ldb)
		s.dense = denseB{level: &k.gemm, data: b, ns: 1, ks: ldb}
	}
}

func checkMatrix(name string, x []float32, rows, cols, ld int) {
	if rows < 0 || cols < 0 || ld < cols {
		panic(fmt.Sprintf("simd: Gemm: %s is %dx%d with leading dimension %d", name, rows, cols, ld))
	}
	if rows > 0 && cols > 0 && len(x) < (rows-1)*ld+cols {
		panic(fmt.Sprintf("simd: Gemm: %s has %d elements, %dx%d with leading dimension %d needs %d", name, len(x), rows, cols, ld, (rows-1)*ld+cols))
	}
}

func checkEpilogue(e Epilogue, m, n int) {
	if e.RowBias != nil && len(e.RowBias) != m || e.ColBias != nil && len(e.ColBias) != n {
		panic(fmt.Sprintf("simd: Gemm: C is %dx%d, the row bias has %d elements, the column bias %d", m, n, len(e.RowBias), len(e.ColBias)))
	}
}

// peakTurns is the number of iterations of one call of fma: some 20 us.
const peakTurns = 1 << 10

// Peak executes about flops floating-point operations at the highest rate of the level's
// multiply-add instructions, in registers only, and returns their number: with the elapsed time,
// the upper limit for matrix products. The portable level has no such instructions and returns 0.
func (k *Kernels) Peak(flops int) int {
	if k.gemm.fma == nil {
		return 0
	}
	done, call := 0, peakTurns*4*k.gemm.mr*k.gemm.lanes*2
	for done < flops {
		k.gemm.fma(peakTurns)
		done += call
	}
	return done
}
