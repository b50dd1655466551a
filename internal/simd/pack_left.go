package simd

// packA makes the columns k0..k0+kc of the tiles first..end-1 (of tiles) of A
// ready for tileOfA: in place, or copied together where they are used often
// enough to pay for it. Copied rows are an odd number of cache lines apart, so
// that they do not meet in one cache set; of a transposed matrix, each tile is
// copied by itself, mr floats for each of kc.
func (g *product) packA(first, end, tiles, k0, kc, nc int) {
	g.tiles, g.each = matrix{}, 0
	if kc == 0 {
		return
	}
	i0, i1 := first*g.m/tiles, end*g.m/tiles
	a := g.a.at(i0, k0)
	switch ld := (kc+15)/16*16 | 16; {
	case g.a.rows != nil && !g.a.transposed:
		g.tiles = matrix{grow(&g.s.a, (i1-i0)*ld), ld, 1}
		g.a.rows.PackRows(g.tiles.data, ld, i0, i1-i0, k0, kc)
		return
	case g.a.rows != nil:
		ld = (i1-i0+15)/16*16 | 16
		a = matrix{grow(&g.s.r, kc*ld), 1, ld}
		g.a.rows.PackRows(a.data, ld, k0, kc, i0, i1-i0)
	case nc <= 4*g.k.nr && !conflicts(max(a.rs, a.cs)):
		g.tiles = a
		return
	case a.cs == 1:
		g.tiles = matrix{grow(&g.s.a, (i1-i0)*ld), ld, 1}
		for i := range i1 - i0 {
			copy(g.tiles.data[i*ld:], a.data[i*a.rs:][:kc])
		}
		return
	}
	mr := g.k.mr
	g.each = kc * mr
	g.tiles = matrix{grow(&g.s.a, (end-first)*g.each), 1, mr}
	for l := first; l < end; l++ {
		from, to := l*g.m/tiles-i0, (l+1)*g.m/tiles-i0
		dst := g.tiles.data[(l-first)*g.each:]
		for i := range kc {
			copy(dst[i*mr:], a.data[i*a.cs+from:][:to-from])
		}
	}
}

// conflicts reports whether rows that many floats apart share few cache sets.
func conflicts(stride int) bool { return stride >= 256 && stride%128 == 0 }

// tileOfA points the tile at packed tile l, whose first row is the given one.
func (g *product) tileOfA(l, row int) {
	t := &g.s.tile
	a := g.tiles.at(row, 0)
	if g.each > 0 {
		a = g.tiles
		a.data = a.data[l*g.each:]
	}
	t.a, t.ars, t.acs = a.data, a.rs, a.cs
}
