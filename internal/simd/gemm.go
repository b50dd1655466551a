package simd

import "fmt"

// Packer delivers the right-hand matrix B[kk,n] of [Kernels.GemmPacked] block
// by block, so that B need never exist as a whole (implicit-GEMM convolution).
type Packer interface {
	// PackPanels writes the block B[k0:k0+kc, n0:n0+nc] as column panels:
	// with W = width (a power of two), panel p holds the columns
	// n0+p*W .. n0+p*W+W-1, one row after the other:
	//
	//	dst[p*kc*W + i*W + j] = B[k0+i, n0+p*W+j]     0 <= i < kc, 0 <= j < W
	//
	// len(dst) = ceil(nc/W)*kc*W. Every element is written: where the last
	// panel reaches beyond nc, with zero. A block may be asked for twice.
	PackPanels(dst []float32, k0, kc, n0, nc, width int)
}

// Epilogue is applied to C while a tile is still in registers, after the last
// product was added: C = relu(C + RowBias[i] + ColBias[j]). The zero value
// does nothing.
type Epilogue struct {
	RowBias []float32 // one per row of C, or nil
	ColBias []float32 // one per column of C, or nil
	ReLU    bool      // as [Kernels.ReLU]
}

// Scratch holds the packing buffers of one goroutine. The zero value is ready;
// buffers grow to what the largest call needs (about 1 MiB) and are reused, so
// that repeated calls allocate nothing.
type Scratch struct {
	a, b  []float32
	edge  [16 * 64]float32
	tile  tile
	dense denseB
	image imageB
	plan  spreadPlan
}

// grow returns a slice of n floats on *buf, with slack at the end.
func grow(buf *[]float32, n int) []float32 {
	if cap(*buf) < n {
		*buf = make([]float32, n+n/4)
	}
	return (*buf)[:n]
}

// matrix is a strided view: element (i,j) is data[i*rs+j*cs].
type matrix struct {
	data   []float32
	rs, cs int
}

// tile is one call of a micro-kernel: rows x (panels*nr) elements of C, from
// kc products each. The assembly knows the offsets of its fields (see
// gen/gemm.go, checked in tile_amd64.go).
type tile struct {
	a             []float32 // element (i,k) is a[i*ars+k*acs]
	ars, acs      int
	b             []float32 // panel p, row k is b[p*bps+k*brs:]
	brs, bps      int
	c             []float32
	ldc           int
	kc            int
	panels        int
	rowBias       []float32 // by the tile's rows, or nil
	colBias       []float32 // by the tile's columns, or nil
	accumulate    int       // 1: C += products
	relu          int
	mask          uint64 // bit j: column j of the (only) panel exists
	rows, columns int    // columns of the last panel; for the portable kernel
}

// Block sizes. kcMax floats of a 14-row tile of A fit in a 32 KiB L1 together
// with the lines of B that stream through; a block of B stays in L2.
const (
	kcMax      = 512
	blockBytes = 512 << 10
	// One assembly call does at most about this many row-vector steps: 20 us
	// at the slowest clock.
	callSteps = 1 << 16
)

// Gemm computes C[m,n] = op(A)[m,kk] * op(B)[kk,n], or adds it to C where
// accumulate is set. Matrices are row-major with leading dimensions lda, ldb,
// ldc in elements; op(X) is X, or its transpose where transX is set (A is then
// stored as [kk,m], B as [n,kk]). C is not read unless accumulate is set. C
// must not overlap A or B.
//
// Blocked after Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008): 2*m*n*kk flops, C is passed over once per 512 of kk.
// The products of one element are added in the order of kk, in blocks that
// depend on kk alone.
func (k *Kernels) Gemm(s *Scratch, transA, transB bool, m, n, kk int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	k.GemmEpilogue(s, transA, transB, m, n, kk, a, lda, b, ldb, accumulate, c, ldc, Epilogue{})
}

// GemmEpilogue is [Kernels.Gemm] followed by e.
func (k *Kernels) GemmEpilogue(s *Scratch, transA, transB bool, m, n, kk int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int, e Epilogue) {
	if transB {
		checkMatrix("B", b, n, kk, ldb)
		s.dense = denseB{level: &k.gemm, data: b, ns: ldb, ks: 1}
	} else {
		checkMatrix("B", b, kk, n, ldb)
		s.dense = denseB{level: &k.gemm, data: b, ns: 1, ks: ldb}
	}
	k.GemmPacked(s, transA, m, n, kk, a, lda, &s.dense, accumulate, c, ldc, e)
	s.dense.data = nil
}

// GemmPacked is [Kernels.GemmEpilogue] with B[kk,n] delivered by b.
func (k *Kernels) GemmPacked(s *Scratch, transA bool, m, n, kk int, a []float32, lda int, b Packer, accumulate bool, c []float32, ldc int, e Epilogue) {
	if transA {
		checkMatrix("A", a, kk, m, lda)
	} else {
		checkMatrix("A", a, m, kk, lda)
	}
	checkMatrix("C", c, m, n, ldc)
	checkEpilogue(e, m, n)
	if m == 0 || n == 0 {
		return
	}
	g := product{k: &k.gemm, s: s, m: m, n: n, b: b, c: c, ldc: ldc, e: e}
	g.a = matrix{a, lda, 1}
	if transA {
		g.a = matrix{a, 1, lda}
	}
	blocks := max(1, (kk+kcMax-1)/kcMax)
	for i := range blocks {
		k0, k1 := i*kk/blocks, (i+1)*kk/blocks
		g.block(k0, k1-k0, accumulate || i > 0, i == blocks-1)
	}
	s.tile = tile{}
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

// product is one GemmPacked under way.
type product struct {
	k    *gemmLevel
	s    *Scratch
	m, n int
	a    matrix
	b    Packer
	c    []float32
	ldc  int
	e    Epilogue
}

// block adds the products k0..k0+kc to all of C.
func (g *product) block(k0, kc int, accumulate, last bool) {
	nr := g.k.nr
	ncMax := max(nr, blockBytes/4/max(1, kc)/nr*nr)
	t := &g.s.tile
	t.kc = kc
	t.accumulate = flag(accumulate)
	t.relu = flag(last && g.e.ReLU)
	for n0 := 0; n0 < g.n; n0 += ncMax {
		nc := min(ncMax, g.n-n0)
		b := g.packB(k0, kc, n0, nc)
		count := (g.m + g.k.mr - 1) / g.k.mr // rows are spread evenly over tiles
		for i := range count {
			i0, i1 := i*g.m/count, (i+1)*g.m/count
			g.packA(i0, i1-i0, k0, kc, nc)
			g.row(i0, i1-i0, n0, nc, b, last)
		}
	}
}

// panels is a block of B as the micro-kernels read it.
type panels struct {
	data     []float32
	brs, bps int
	tail     []float32 // the last, partial panel where it lies elsewhere
}

// packB returns the block of B, in place where that is as fast.
func (g *product) packB(k0, kc, n0, nc int) panels {
	nr := g.k.nr
	if d, ok := g.b.(*denseB); ok && d.direct(g.m, kc, g.k.mr) {
		p := panels{data: d.data[k0*d.ks+n0:], brs: d.ks, bps: nr}
		if tail := nc % nr; tail > 0 && !g.k.masked {
			p.tail = grow(&g.s.b, kc*nr)
			d.PackPanels(p.tail, k0, kc, n0+nc-tail, tail, nr)
		}
		return p
	}
	dst := grow(&g.s.b, (nc+nr-1)/nr*nr*kc)
	g.b.PackPanels(dst, k0, kc, n0, nc, nr)
	return panels{data: dst, brs: nr, bps: kc * nr}
}

// packA points the tile at rows i0..i0+rows of A, copied together where they
// are used often enough to pay for it.
func (g *product) packA(i0, rows, k0, kc, nc int) {
	t := &g.s.tile
	t.a, t.ars, t.acs = nil, g.a.rs, g.a.cs
	if kc == 0 {
		return
	}
	t.a = g.a.data[i0*g.a.rs+k0*g.a.cs:]
	if nc <= 4*g.k.nr && !conflicts(max(g.a.rs, g.a.cs)) {
		return
	}
	if g.a.cs == 1 {
		// An odd number of cache lines apart: rows do not meet in one set.
		t.ars = (kc+15)/16*16 | 16
		dst := grow(&g.s.a, rows*t.ars)
		for i := range rows {
			copy(dst[i*t.ars:], t.a[i*g.a.rs:][:kc])
		}
		t.a = dst
		return
	}
	dst := grow(&g.s.a, kc*16)
	for i := range kc {
		copy(dst[i*16:], t.a[i*g.a.cs:][:rows])
	}
	t.a, t.acs = dst, 16
}

// conflicts reports whether rows that many floats apart share few cache sets.
func conflicts(stride int) bool { return stride >= 256 && stride%128 == 0 }

// row computes rows i0.. of the columns n0..n0+nc.
func (g *product) row(i0, rows, n0, nc int, b panels, last bool) {
	t, nr := &g.s.tile, g.k.nr
	t.rows, t.columns, t.mask = rows, nr, 1<<nr-1
	t.brs, t.bps, t.ldc = b.brs, b.bps, g.ldc
	t.rowBias = nil
	if last && g.e.RowBias != nil {
		t.rowBias = g.e.RowBias[i0:]
	}
	perCall := max(1, callSteps/((t.kc+8)*g.k.mr))
	for p, full := 0, nc/nr; p < full; p += perCall {
		t.panels = min(perCall, full-p)
		g.at(i0, n0+p*nr, last)
		t.b = b.data[p*b.bps:]
		g.k.wide[rows](t)
	}
	tail := nc % nr
	if tail == 0 {
		return
	}
	t.panels, t.columns, t.mask = 1, tail, 1<<tail-1
	g.at(i0, n0+nc-tail, last)
	if t.b = b.tail; t.b == nil {
		t.b = b.data[nc/nr*b.bps:]
	} else {
		t.brs = nr
	}
	g.tail(rows, tail)
}

// at points the tile at C[i0,j0] and the column bias that belongs to it.
func (g *product) at(i0, j0 int, last bool) {
	t := &g.s.tile
	t.c = g.c[i0*g.ldc+j0:]
	t.colBias = nil
	if last && g.e.ColBias != nil {
		t.colBias = g.e.ColBias[j0:]
	}
}

// tail computes a tile of fewer than nr columns.
func (g *product) tail(rows, columns int) {
	kernels := g.k.wide
	if g.k.narrow != nil && columns <= g.k.nr/2 {
		kernels = g.k.narrow
	}
	if g.k.masked {
		kernels[rows](&g.s.tile)
		return
	}
	g.edge(kernels[rows], rows, columns)
}

// edge runs a kernel that always writes whole tiles on a buffer and carries
// the columns that exist over to C, in the kernel's order of operations.
func (g *product) edge(kernel func(*tile), rows, columns int) {
	t := &g.s.tile
	out := *t
	t.c, t.ldc = g.s.edge[:], g.k.nr
	t.rowBias, t.colBias, t.accumulate, t.relu = nil, nil, 0, 0
	kernel(t)
	t.accumulate, t.relu = out.accumulate, out.relu
	for i := range rows {
		finish(out.c[i*out.ldc:][:columns], g.s.edge[i*g.k.nr:], &out, i)
	}
}

// finish stores the sums of one row of a tile to c, with what the tile asks.
func finish(c, sums []float32, t *tile, i int) {
	for j := range c {
		v := sums[j]
		if t.accumulate != 0 {
			v = c[j] + v
		}
		if t.rowBias != nil {
			v += t.rowBias[i]
		}
		if t.colBias != nil {
			v += t.colBias[j]
		}
		if t.relu != 0 && v < 0 {
			v = 0
		}
		c[j] = v
	}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
