package simd

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
// Columns of the last panel after nc are zero.
func (d *denseB) packPanels(dst []float32, k0, kc, n0, nc, width int) {
	for ; nc > 0 && kc > 0; n0, nc = n0+width, nc-width {
		panel := dst[:kc*width]
		dst = dst[kc*width:]
		src := d.data[min(len(d.data), k0*d.ks+n0*d.ns):]
		if d.ns == 1 {
			packRows(panel, src, d.ks, min(nc, width), width)
		} else {
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
