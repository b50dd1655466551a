package simd

import "fmt"

// PackedB is a whole packed right-hand matrix B[kk,n] for the kernels of one level, for repeated
// use in [Kernels.GemmWith]: panels of Width() columns, row by row, the last panel padded with
// zeros:
//
//	data[(p*kk+i)*W + j] = B[i, p*W+j]     0 <= p < ceil(n/W), 0 <= i < kk
//
// The zero value is empty; packing again reuses its memory. Any number of goroutines may multiply
// with it simultaneously, if none packs it.
type PackedB struct {
	kk, n, width int
	data         []float32
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
	b.kk, b.n, b.width = kk, n, width
	b.data = grow(&b.data, (n+width-1)/width*width*kk)
	return b.data, width
}

// PanelsIn makes b a view of panels for a matrix B[kk,n] in the caller's memory, before or after
// packing: ceil(n/PanelWidth())*PanelWidth()*kk floats.
func (k *Kernels) PanelsIn(b *PackedB, data []float32, kk, n int) {
	size := (n + k.gemm.nr - 1) / k.gemm.nr * k.gemm.nr * kk
	*b = PackedB{kk: kk, n: n, width: k.gemm.nr, data: data[:size:size]}
}

// PanelsOf makes dst a view of columns lo to hi-1 of b. lo is a multiple of PanelWidth(), and so is
// hi unless it is the number of columns.
func (k *Kernels) PanelsOf(dst, b *PackedB, lo, hi int) {
	k.PanelsIn(dst, b.data[lo*b.kk:], b.kk, hi-lo)
}

// PanelWidth is the number of columns of a panel.
func (k *Kernels) PanelWidth() int { return k.gemm.nr }

// Size returns kk and n.
func (b *PackedB) Size() (kk, n int) { return b.kk, b.n }

func (b *PackedB) check(width, kk, n int) {
	if b.width != width || b.kk != kk || b.n != n {
		panic(fmt.Sprintf("simd: Gemm: B is %dx%d, packed is one of %dx%d in panels of %d columns, the kernels' have %d", kk, n, b.kk, b.n, b.width, width))
	}
}

// block is B from row k0 and column n0, a multiple of the width, on.
func (b *PackedB) block(k0, n0 int) panels {
	at := n0*b.kk + k0*b.width
	return panels{data: b.data[min(len(b.data), at):], bps: b.kk * b.width}
}
