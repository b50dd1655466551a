package simd

// Block sizes. kcMax floats of a 14-row tile of A fit in a 32 KiB L1 together with the lines of B
// that stream through; a block of B stays in L2, and so does a block of A's rows.
const (
	kcMax       = 512
	blockBytes  = 512 << 10 // block of B, in L2
	rowBytes    = 256 << 10 // block of A, in L2
	packedBytes = 4 << 20   // packed part of B
	// callSteps is the approximate maximum of row-vector steps in one assembly call: 20 us at the
	// slowest clock.
	callSteps = 1 << 16
)

// matrix is a strided view: element (i,j) is data[i*rs+j*cs].
type matrix struct {
	data   []float32
	rs, cs int
}

// at is the view from row i and column j on.
func (a matrix) at(i, j int) matrix {
	a.data = a.data[min(len(a.data), i*a.rs+j*a.cs):]
	return a
}

// left is the left-hand matrix A[m,kk]: in memory, or delivered by rows, which holds its transpose
// if transposed is set.
type left struct {
	matrix
	rows       RowPacker
	transposed bool
}

func (a *left) set(trans bool, m, kk int, data []float32, ld int) {
	if trans {
		checkMatrix("A", data, kk, m, ld)
		a.matrix = matrix{data, 1, ld}
	} else {
		checkMatrix("A", data, m, kk, ld)
		a.matrix = matrix{data, ld, 1}
	}
}

// product is a matrix product in progress.
type product struct {
	k        *gemmLevel
	s        *Scratch
	m, n, kk int
	a        left
	b        *denseB
	packed   *PackedB // instead of b, or nil
	c        []float32
	ldc      int
	e        Epilogue

	ready matrix // rows of A from packA
	first int    // first row in ready
	each  int    // distance of separately packed tiles in floats
}

// Blocks is the number of blocks of an element's kk products. Each block is summed from zero and
// then added to the ones before: blocks from separate calls of [Kernels.Gemm], added in order, have
// the bits of one product.
func (k *Kernels) Blocks(kk int) int { return k.gemm.blocks(kk) }

func (l *gemmLevel) blocks(kk int) int {
	deepest := kcMax
	if l.rowPairs {
		deepest = kcMax / 2 // floats of a 32-row tile of A fit in a 48 KiB L1
	}
	return max(1, (l.depth(kk)+deepest-1)/deepest)
}

// Block returns the range of block i of Blocks(kk): lo to hi-1 of the kk products.
func (k *Kernels) Block(kk, i int) (lo, hi int) { return k.gemm.blockOf(kk, i) }

func (l *gemmLevel) blockOf(kk, i int) (lo, hi int) {
	blocks, depth := l.blocks(kk), l.depth(kk)
	lo, hi = i*depth/blocks, (i+1)*depth/blocks
	if l.pair != nil {
		return 2 * lo, min(2*hi, kk)
	}
	return lo, hi
}

func (g *product) run(accumulate bool) {
	checkMatrix("C", g.c, g.m, g.n, g.ldc)
	checkEpilogue(g.e, g.m, g.n)
	if g.packed != nil {
		g.packed.check(g.k, g.kk, g.n)
	}
	if g.m == 0 || g.n == 0 {
		return
	}
	blocks := g.k.blocks(g.kk)
	for i := range blocks {
		k0, k1 := g.k.blockOf(g.kk, i)
		g.block(k0, k1-k0, accumulate || i > 0, i == blocks-1)
	}
	g.s.tile = tile{}
}

// block adds the products k0..k0+kc to all of C.
func (g *product) block(k0, kc int, accumulate, last bool) {
	nr := g.k.nr
	t := &g.s.tile
	t.kc = g.k.depth(kc)
	t.accumulate = flag(accumulate)
	t.amx.sums = &g.s.edge
	t.relu = flag(last && g.e.ReLU)
	ncMax := max(nr, packedBytes/4/max(1, t.kc)/nr*nr)
	if g.packed != nil {
		ncMax = g.n
	}
	for n0 := 0; n0 < g.n; n0 += ncMax {
		nc := min(ncMax, g.n-n0)
		g.columns(k0, kc, n0, nc, g.packB(k0, kc, n0, nc), last)
	}
}

// columns computes the columns n0..n0+nc from their block of B: a block of A's rows is packed once
// and multiplied with all panels of B that stay in L2, tile by tile.
func (g *product) columns(k0, kc, n0, nc int, b panels, last bool) {
	nr, depth := g.k.nr, max(1, g.k.depth(kc))
	inner := max(nr, blockBytes/4/depth/nr*nr)
	tiles, per := g.tiles(), max(1, rowBytes/4/depth/g.k.mr)
	blocks := (tiles + per - 1) / per
	for i := range blocks {
		first, end := i*tiles/blocks, (i+1)*tiles/blocks
		g.packA(first, end, k0, kc, nc)
		for j := 0; j < nc; j += inner {
			strip := strip{n0: n0 + j, nc: min(inner, nc-j), b: b.from(j/nr, nr), last: last}
			for l := first; l < end; {
				count := g.alike(l, end)
				if l == 0 && b.source != nil {
					count = 1
				} else {
					strip.b.source = nil
				}
				g.tall(&strip, l-first, l, count)
				l += count
			}
		}
	}
}

// tiles is the number of tiles in a column. Rows are spread evenly: the first tiles have one more
// than the last.
func (g *product) tiles() int { return (g.m + g.k.mr - 1) / g.k.mr }

// row is the first row of tile l.
func (g *product) row(l int) int {
	tiles := g.tiles()
	return l*(g.m/tiles) + min(l, g.m%tiles)
}

// alike is the number of tiles l..end-1 with the same number of rows as the first.
func (g *product) alike(l, end int) int {
	if larger := g.m % g.tiles(); l < larger {
		return min(end, larger) - l
	}
	return end - l
}

// panels is a block of B for the micro-kernels: packed, at a distance of bps floats. If source is
// not nil, the first tile to use a panel packs it, from rows at a distance of brs floats.
type panels struct {
	data   []float32
	bps    int
	source []float32
	brs    int
}

// from returns the block without its first p panels.
func (b panels) from(p, nr int) panels {
	b.data = b.data[min(len(b.data), p*b.bps):]
	if b.source != nil {
		b.source = b.source[p*nr:]
	}
	return b
}

// packB returns the block of B, packed, or with source for the first tile that reads it to pack.
func (g *product) packB(k0, kc, n0, nc int) panels {
	nr := g.k.nr
	if g.packed != nil {
		return g.packed.block(k0, n0)
	}
	depth := g.k.depth(kc)
	b := panels{data: grow(&g.s.b, (nc+nr-1)/nr*nr*depth), bps: depth * nr}
	d := g.b
	if !g.k.chained || g.k.pair != nil || d.ns != 1 || kc == 0 {
		d.packPanels(b.data, k0, kc, n0, nc, nr)
		return b
	}
	b.source, b.brs = d.data[k0*d.ks+n0:], d.ks
	if tail := nc % nr; tail > 0 && !g.k.masked {
		d.packPanels(b.data[nc/nr*b.bps:], k0, kc, n0+nc-tail, tail, nr)
	}
	return b
}

// strip is a range of columns of C and their panels of B.
type strip struct {
	n0, nc int
	b      panels
	last   bool // last block of kk
}

// tall computes count tiles of equal height from tile l on, at index at of packA's tiles, with the
// maximum number per assembly call.
func (g *product) tall(s *strip, at, l, count int) {
	t, nr := &g.s.tile, g.k.nr
	t.rows, t.ldc = g.row(l+1)-g.row(l), g.ldc
	perCall := max(1, callSteps/((t.kc+8)*g.k.mr))
	full, tail := s.nc/nr, s.nc%nr
	t.tiles = 1
	if g.k.chained && (tail == 0 || g.k.masked) {
		t.tiles = max(1, perCall/max(1, full))
	}
	for ; count > 0; count, at, l = count-t.tiles, at+t.tiles, l+t.tiles {
		t.tiles = min(t.tiles, count)
		g.tileOfA(at, l)
		t.rowBias = nil
		if s.last && g.e.RowBias != nil {
			t.rowBias = g.e.RowBias[g.row(l):]
		}
		t.columns, t.mask = nr, 1<<nr-1
		for p := 0; p < full; p += perCall {
			t.panels = min(perCall, full-p)
			g.panel(s, l, p)
			g.k.wide[t.rows](t)
		}
		if tail > 0 {
			t.panels, t.columns, t.mask = 1, tail, 1<<tail-1
			g.panel(s, l, full)
			g.tail(t.rows, tail)
		}
	}
	t.pack = nil
}

// panel points the tile at panel p of the strip, in tile l.
func (g *product) panel(s *strip, l, p int) {
	t, nr := &g.s.tile, g.k.nr
	j := s.n0 + p*nr
	t.c = g.c[g.row(l)*g.ldc+j:]
	t.colBias = nil
	if s.last && g.e.ColBias != nil {
		t.colBias = g.e.ColBias[j:]
	}
	t.b = s.b.data[p*s.b.bps:]
	t.brs, t.bps = nr, s.b.bps
	t.pack, t.packStep, t.packPanelStep = nil, 0, 0
	if s.b.source == nil || t.columns < nr && !g.k.masked {
		return
	}
	t.pack = &t.b[0]
	t.b, t.brs, t.bps = s.b.source[p*nr:], s.b.brs, nr
	if g.m > g.k.mr { // otherwise used once: all rows overwrite one place
		t.packStep, t.packPanelStep = nr, s.b.bps
	}
}
