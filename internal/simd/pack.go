package simd

import "fmt"

// denseB packs a matrix in memory: B[k,j] is data[k*ks+j*ns], and one of the strides is 1.
type denseB struct {
	level  *gemmLevel
	data   []float32
	ns, ks int
}

// packPanels writes the block B[k0:k0+kc, n0:n0+nc] as column panels: with W = width (a power of
// two), panel p holds the columns n0+p*W .. n0+p*W+W-1, row by row:
//
//	dst[p*kc*W + i*W + j] = B[k0+i, n0+p*W+j]     0 <= i < kc, 0 <= j < W
//
// Columns of the last panel after nc are zero. In bf16 each element of a panel is 32 bits with the
// bfloat16 values of rows 2*i and 2*i+1 of a column: a panel has half as many rows.
func (d *denseB) packPanels(dst []float32, k0, kc, n0, nc, width int) {
	depth, pair := d.level.depth(kc), d.level.pair
	for ; nc > 0 && kc > 0; n0, nc = n0+width, nc-width {
		panel := dst[:depth*width]
		dst = dst[depth*width:]
		src := d.data[min(len(d.data), k0*d.ks+n0*d.ns):]
		switch {
		case pair != nil && d.ns == 1:
			pair.interleave(panel, width, src, d.ks, min(nc, width), width, kc)
		case pair != nil:
			pair.packColumns(panel, src, d.ns, kc, min(nc, width), width)
		case d.ns == 1:
			packRows(panel, src, d.ks, min(nc, width), width)
		default:
			d.packColumns(panel, src, kc, min(nc, width), width)
		}
	}
}

// packRows copies columns (at most width) of each row of src.
func packRows(panel, src []float32, ld, columns, width int) {
	for i := 0; i*width < len(panel); i++ {
		row := panel[i*width:][:width]
		n := copy(row, src[i*ld:][:columns])
		clear(row[n:])
	}
}

// packColumns transposes: src row j (of stride ns) becomes column j. The remainder after whole
// blocks is covered by blocks that overlap previous ones.
func (d *denseB) packColumns(panel, src []float32, kc, columns, width int) {
	j := 0
	if d.level.transpose16 != nil && width == d.level.nr && kc >= 16 {
		for next := 0; columns >= 16 && next < columns; next = j {
			at := min(next, columns-16)
			d.transpose(panel, src, kc, at, 16, width)
			j = at + 16
		}
	}
	if d.level.transpose8 != nil && kc >= 8 && columns-j >= 8 {
		for next := j; next < columns; next = j {
			at := min(next, columns-8)
			d.transpose(panel, src, kc, at, 8, width)
			j = at + 8
		}
	}
	for ; j < columns; j++ {
		for i, v := range src[j*d.ns:][:kc] {
			panel[i*width+j] = v
		}
	}
	for i := 0; j < width && i < kc; i++ {
		clear(panel[i*width+j : (i+1)*width])
	}
}

// transpose makes n rows of src, 8 or 16, from row j on, columns of the panel.
func (d *denseB) transpose(panel, src []float32, kc, j, n, width int) {
	for k, left := 0, kc; left > 0; left = kc - k {
		blocks := min(left, kcMax) / n // limits a call's time
		if blocks == 0 {
			k, blocks = kc-n, 1
		}
		if n == 16 {
			d.level.transpose16(&panel[k*width+j], &src[j*d.ns+k], d.ns, blocks)
		} else {
			d.level.transpose8(&panel[k*width+j], width, &src[j*d.ns+k], d.ns, blocks)
		}
		k += blocks * n
	}
}

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
	if g.k.pair != nil {
		g.packPairs(first, end, k0, kc)
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

// PackedB is a whole packed right-hand matrix B[kk,n] for the kernels of one level, for repeated
// use in [Kernels.GemmWith]: panels of Width() columns, row by row, the last panel padded with
// zeros:
//
//	data[(p*kk+i)*W + j] = B[i, p*W+j]     0 <= p < ceil(n/W), 0 <= i < kk
//
// The zero value is empty; packing again reuses its memory. Any number of goroutines may multiply
// with it simultaneously, if none packs it.
type PackedB struct {
	kk, n int
	depth int // rows of a panel: kk, or the pairs of the kk rows
	level *gemmLevel
	data  []float32
}

// PackB packs op(B)[kk,n] into dst: B, or its transpose (B is then stored as [n,kk]) if transB is
// set, with leading dimension ldb. It reads and writes the matrix once.
func (k *Kernels) PackB(dst *PackedB, transB bool, kk, n int, b []float32, ldb int) {
	d := denseB{level: &k.gemm, data: b, ns: 1, ks: ldb}
	if transB {
		checkMatrix("B", b, n, kk, ldb)
		d.ns, d.ks = ldb, 1
	} else {
		checkMatrix("B", b, kk, n, ldb)
	}
	data, width := k.Panels(dst, kk, n)
	d.packPanels(data, 0, kk, 0, n, width)
}

// Panels makes b a packed matrix B[kk,n] of unspecified values, for kernels that compute their
// right-hand matrix directly into panels. The caller writes every float of the ceil(n/width)
// panels, including zeros at the end of the last.
func (k *Kernels) Panels(b *PackedB, kk, n int) (data []float32, width int) {
	if kk < 0 || n < 0 {
		panic(fmt.Sprintf("simd: a packed matrix of %dx%d", kk, n))
	}
	width = k.gemm.nr
	b.kk, b.n, b.depth, b.level = kk, n, k.gemm.depth(kk), &k.gemm
	b.data = grow(&b.data, (n+width-1)/width*width*b.depth)
	return b.data, width
}

// PanelsIn makes b a view of panels for a matrix B[kk,n] in the caller's memory, before or after
// packing: ceil(n/PanelWidth())*PanelWidth()*kk floats, for bfloat16 with kk/2, rounded up.
func (k *Kernels) PanelsIn(b *PackedB, data []float32, kk, n int) {
	depth := k.gemm.depth(kk)
	size := (n + k.gemm.nr - 1) / k.gemm.nr * k.gemm.nr * depth
	*b = PackedB{kk: kk, n: n, depth: depth, level: &k.gemm, data: data[:size:size]}
}

// PanelsOf makes dst a view of columns lo to hi-1 of b. lo is a multiple of PanelWidth(), and so is
// hi unless it is the number of columns.
func (k *Kernels) PanelsOf(dst, b *PackedB, lo, hi int) {
	k.PanelsIn(dst, b.data[lo*b.depth:], b.kk, hi-lo)
}

// PanelWidth is the number of columns of a panel.
func (k *Kernels) PanelWidth() int { return k.gemm.nr }

// Size returns kk and n.
func (b *PackedB) Size() (kk, n int) { return b.kk, b.n }

func (b *PackedB) check(level *gemmLevel, kk, n int) {
	if b.level != level || b.kk != kk || b.n != n {
		panic(fmt.Sprintf("simd: Gemm: B is %dx%d, packed is one of %dx%d, for kernels of the same level: %v", kk, n, b.kk, b.n, b.level == level))
	}
}

// block is B from row k0 and column n0, a multiple of the width, on.
func (b *PackedB) block(k0, n0 int) panels {
	nr := b.level.nr
	at := n0*b.depth + b.level.depth(k0)*nr
	return panels{data: b.data[min(len(b.data), at):], bps: b.depth * nr}
}
