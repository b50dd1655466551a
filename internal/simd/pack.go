package simd

// denseB packs a matrix in memory: B[k,j] is data[k*ks+j*ns], and one of the
// strides is 1.
type denseB struct {
	level  *gemmLevel
	data   []float32
	ns, ks int
}

// PackPanels implements [Packer].
func (d *denseB) PackPanels(dst []float32, k0, kc, n0, nc, width int) {
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

// packColumns transposes: src row j (of stride ns) becomes column j.
func (d *denseB) packColumns(panel, src []float32, kc, columns, width int) {
	j := 0
	if d.level.transpose8 != nil && kc >= 8 {
		for ; j+8 <= columns; j += 8 {
			d.level.transpose8(&panel[j], width, &src[j*d.ns], d.ns, kc/8)
			for i := kc &^ 7; i < kc; i++ {
				for jj := range 8 {
					panel[i*width+j+jj] = src[(j+jj)*d.ns+i]
				}
			}
		}
	}
	for ; j < columns; j++ {
		for i, v := range src[j*d.ns:][:kc] {
			panel[i*width+j] = v
		}
	}
	for ; j < width; j++ {
		for i := range kc {
			panel[i*width+j] = 0
		}
	}
}
