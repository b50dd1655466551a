package simd

// Block sizes. kcMax floats of a 14-row tile of A fit in a 32 KiB L1 together
// with the lines of B that stream through; a block of B stays in L2, and so
// does a block of A's rows.
const (
	kcMax       = 512
	blockBytes  = 512 << 10 // of B, in L2
	rowBytes    = 256 << 10 // of A, in L2
	packedBytes = 4 << 20   // of B, packed at a time
	// One assembly call does at most about this many row-vector steps: 20 us
	// at the slowest clock.
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

// left is the left-hand matrix A[m,kk]: in memory, or delivered by rows, which
// holds its transpose where transposed is set.
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

// product is one matrix product under way.
type product struct {
	k        *gemmLevel
	s        *Scratch
	m, n, kk int
	a        left
	b        Packer
	packed   *PackedB // instead of b, or nil
	c        []float32
	ldc      int
	e        Epilogue

	tiles matrix // rows of A as packA left them
	each  int    // floats of each tile, where they are packed by themselves
}

func (g *product) run(accumulate bool) {
	checkMatrix("C", g.c, g.m, g.n, g.ldc)
	checkEpilogue(g.e, g.m, g.n)
	if g.packed != nil {
		g.packed.check(g.k.nr, g.kk, g.n)
	}
	if g.m == 0 || g.n == 0 {
		return
	}
	blocks := max(1, (g.kk+kcMax-1)/kcMax)
	for i := range blocks {
		k0, k1 := i*g.kk/blocks, (i+1)*g.kk/blocks
		g.block(k0, k1-k0, accumulate || i > 0, i == blocks-1)
	}
	g.s.tile = tile{}
}

// block adds the products k0..k0+kc to all of C.
func (g *product) block(k0, kc int, accumulate, last bool) {
	nr := g.k.nr
	t := &g.s.tile
	t.kc = kc
	t.accumulate = flag(accumulate)
	t.relu = flag(last && g.e.ReLU)
	ncMax := max(nr, packedBytes/4/max(1, kc)/nr*nr)
	if g.packed != nil {
		ncMax = g.n
	}
	for n0 := 0; n0 < g.n; n0 += ncMax {
		nc := min(ncMax, g.n-n0)
		g.columns(k0, kc, n0, nc, g.packB(k0, kc, n0, nc), last)
	}
}

// columns computes the columns n0..n0+nc from their block of B: a block of
// A's rows is packed once and multiplied with as many panels of B as stay in
// L2, tile by tile.
func (g *product) columns(k0, kc, n0, nc int, b panels, last bool) {
	nr, mr := g.k.nr, g.k.mr
	inner := max(nr, blockBytes/4/max(1, kc)/nr*nr)
	tiles := (g.m + mr - 1) / mr // rows are spread evenly over them
	per := max(1, rowBytes/4/max(1, kc)/mr)
	for i := 0; i < tiles; i += per {
		end := min(tiles, i+per)
		g.packA(i, end, tiles, k0, kc, nc)
		for j := 0; j < nc; j += inner {
			for l := i; l < end; l++ {
				i0, i1 := l*g.m/tiles, (l+1)*g.m/tiles
				g.tileOfA(l-i, i0-i*g.m/tiles)
				b := b.from(j/nr, nr)
				if l > 0 {
					b.source = nil
				}
				g.row(i0, i1-i0, n0+j, min(inner, nc-j), b, last)
			}
		}
	}
}

// panels is a block of B as the micro-kernels read it: packed, bps floats
// apart. Where source is not nil, the first tile to use a panel packs it, from
// rows that lie brs floats apart there.
type panels struct {
	data   []float32
	bps    int
	source []float32
	brs    int
}

// from is the block without its first p panels.
func (b panels) from(p, nr int) panels {
	b.data = b.data[min(len(b.data), p*b.bps):]
	if b.source != nil {
		b.source = b.source[p*nr:]
	}
	return b
}

// packB returns the block of B, packed, or to be packed on the way.
func (g *product) packB(k0, kc, n0, nc int) panels {
	nr := g.k.nr
	if g.packed != nil {
		return g.packed.block(k0, n0)
	}
	b := panels{data: grow(&g.s.b, (nc+nr-1)/nr*nr*kc), bps: kc * nr}
	d, ok := g.b.(*denseB)
	if !ok || !g.k.packs || d.ns != 1 || kc == 0 {
		g.b.PackPanels(b.data, k0, kc, n0, nc, nr)
		return b
	}
	b.source, b.brs = d.data[k0*d.ks+n0:], d.ks
	if tail := nc % nr; tail > 0 && !g.k.masked {
		d.PackPanels(b.data[nc/nr*b.bps:], k0, kc, n0+nc-tail, tail, nr)
	}
	return b
}

// row computes rows i0.. of the columns n0..n0+nc.
func (g *product) row(i0, rows, n0, nc int, b panels, last bool) {
	t, nr := &g.s.tile, g.k.nr
	t.rows, t.columns, t.mask = rows, nr, 1<<nr-1
	t.ldc = g.ldc
	t.rowBias = nil
	if last && g.e.RowBias != nil {
		t.rowBias = g.e.RowBias[i0:]
	}
	perCall := max(1, callSteps/((t.kc+8)*g.k.mr))
	for p, full := 0, nc/nr; p < full; p += perCall {
		t.panels = min(perCall, full-p)
		g.at(i0, n0+p*nr, last)
		g.panel(b, p)
		g.k.wide[rows](t)
	}
	if tail := nc % nr; tail > 0 {
		t.panels, t.columns, t.mask = 1, tail, 1<<tail-1
		g.at(i0, n0+nc-tail, last)
		if !g.k.masked {
			b.source = nil
		}
		g.panel(b, nc/nr)
		g.tail(rows, tail)
	}
	t.pack = nil
}

// panel points the tile at panel p of b.
func (g *product) panel(b panels, p int) {
	t, nr := &g.s.tile, g.k.nr
	t.b = b.data[p*b.bps:]
	t.brs, t.bps = nr, b.bps
	t.pack, t.packStep, t.packPanelStep = nil, 0, 0
	if b.source == nil {
		return
	}
	t.pack = &t.b[0]
	t.b, t.brs, t.bps = b.source[p*nr:], b.brs, nr
	if g.m > g.k.mr { // else it is used once: all rows go to one place
		t.packStep, t.packPanelStep = nr, b.bps
	}
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
