package simd

// nearRows is the largest number of floats of rows left in place, because copies never pay: for a
// recurrent layer's sequences at one step, with each thread's columns of the weights, the copy is a
// tenth of the product.
const nearRows = 9 << 10

// packA prepares the columns k0..k0+kc of the tiles first..end-1 of A for tileOfA: in place, or
// copied if used often enough. Copied rows are an odd number of cache lines apart, to avoid sharing
// a cache set; tiles of a transposed matrix are copied separately, mr floats for each of kc.
func (g *product) packA(first, end, k0, kc, nc int) {
	g.ready, g.first, g.each = matrix{}, g.row(first), 0
	if kc == 0 {
		return
	}
	rows := g.row(end) - g.first
	a := g.a.at(g.first, k0)
	switch {
	case g.a.rows != nil && !g.a.transposed:
		g.ready = matrix{grow(&g.s.a, rows*oddStride(kc)), oddStride(kc), 1}
		g.a.rows.PackRows(g.ready.data, g.ready.rs, g.first, rows, k0, kc)
	case g.a.rows != nil:
		a = matrix{grow(&g.s.r, kc*oddStride(rows)), 1, oddStride(rows)}
		g.a.rows.PackRows(a.data, a.cs, k0, kc, g.first, rows)
		g.packTiles(a, first, end, kc)
	case nc <= 4*g.k.nr && !conflicts(max(a.rs, a.cs)), a.cs == 1 && rows*kc <= nearRows && !conflicts(a.rs):
		g.ready = a
	case a.cs == 1:
		g.ready = matrix{grow(&g.s.a, rows*oddStride(kc)), oddStride(kc), 1}
		for i := range rows {
			copy(g.ready.data[i*oddStride(kc):], a.data[i*a.rs:][:kc])
		}
	default:
		g.packTiles(a, first, end, kc)
	}
}

// packTiles copies the tiles first..end-1 of a, a transposed matrix beginning with the first.
func (g *product) packTiles(a matrix, first, end, kc int) {
	mr := g.k.mr
	g.each = oddStride(kc * mr)
	g.ready = matrix{grow(&g.s.a, (end-first)*g.each), 1, mr}
	for l := first; l < end; {
		count := g.alike(l, end)
		rows := g.row(l+1) - g.row(l)
		dst, src := g.ready.data[(l-first)*g.each:], a.data[g.row(l)-g.first:]
		if g.k.copyTiles == nil {
			for i := range kc * count {
				copy(dst[i%count*g.each+i/count*mr:], src[i/count*a.cs+i%count*rows:][:rows])
			}
		} else {
			step := max(1, callFloats/(count*mr))
			for i := 0; i < kc; i += step {
				g.k.copyTiles(&dst[i*mr], g.each, mr, &src[i*a.cs], a.cs, rows, count, min(step, kc-i))
			}
		}
		l += count
	}
}

// oddStride is the least distance for rows of n floats that is an odd number of cache lines.
func oddStride(n int) int { return (n+15)/16*16 | 16 }

// conflicts reports whether rows at this distance share few cache sets.
func conflicts(stride int) bool { return stride >= 256 && stride%128 == 0 }

// tileOfA points the kernel's tile at tile l of A, number at of packA's tiles.
func (g *product) tileOfA(at, l int) {
	t := &g.s.tile
	a := g.ready
	t.aStep = t.rows * a.rs
	if g.each > 0 {
		a.data = a.data[at*g.each:]
		t.aStep = g.each
	} else {
		a = a.at(g.row(l)-g.first, 0)
	}
	t.a, t.ars, t.acs = a.data, a.rs, a.cs
}
