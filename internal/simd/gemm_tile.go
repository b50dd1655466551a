package simd

// tile is one call of a micro-kernel: (tiles*rows) x (panels*nr) elements of C, from kc products
// each. The assembly depends on the offsets of its fields (see gen/gemm.go, checked in
// levels_amd64.go).
type tile struct {
	a          []float32 // element (i,k) is a[i*ars+k*acs]
	ars, acs   int
	b          []float32 // panel p, row k is b[p*bps+k*brs:]; brs is nr where pack is nil
	brs, bps   int
	c          []float32
	ldc        int
	kc         int
	panels     int
	rowBias    []float32 // one per row, or nil
	colBias    []float32 // one per column, or nil
	accumulate int       // 1: C += products
	relu       int
	mask       uint64 // bit j: column j of the (only) panel exists
	// pack is the memory for a copy of B during the multiplication, or nil: panel p, row k go to
	// pack[p*packPanelStep+k*packStep:], a whole panel wide.
	pack          *float32
	packStep      int
	packPanelStep int
	// tiles are in a column and share panels: A of the next tile is aStep floats further.
	tiles         int
	aStep         int
	rows, columns int // columns of the last panel; for the portable kernel and AMX
	amx           amxTile
}

// amxTile is a tile's part for AMX, from configure.
type amxTile struct {
	second      int                    // first row of the second half; the halves can overlap; 0: one half
	steps, rest int                    // whole steps of 16 pairs, and the remaining pairs
	sums        *[amxRows * 32]float32 // memory for sums on their path from tiles to vectors
	config      [64]byte               // operand of LDTILECFG
}

// amxRows and amxStep are the largest sizes of a product by AMX: rows, and pairs per step.
const (
	amxRows = 32
	amxStep = 16
)

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

// edge runs a kernel for whole tiles on a buffer and copies the existing columns to C, in the
// kernel's order of operations.
func (g *product) edge(kernel func(*tile), rows, columns int) {
	t := &g.s.tile
	out := *t
	t.c, t.ldc = g.s.edge[:], g.k.nr
	t.rowBias, t.colBias, t.accumulate, t.relu = nil, nil, 0, 0
	kernel(t)
	*t = out
	for i := range rows {
		finish(out.c[i*out.ldc:][:columns], g.s.edge[i*g.k.nr:], &out, i)
	}
}

// finish stores the sums of a row of a tile to c, with the tile's biases and ReLU.
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
