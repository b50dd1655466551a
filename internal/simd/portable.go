package simd

// portableGemm is the level for every processor: the driver of the assembly levels with a
// micro-kernel in Go. Two rows by four columns are the accumulators that fit in 16 registers.
var portableGemm = gemmLevel{
	mr:     4,
	nr:     8,
	masked: true,
	wide:   []func(*tile){nil, tileGo, tileGo, tileGo, tileGo},
}

// tileGo is the micro-kernel in Go, equal to the assembly kernels except for separate
// multiplication and addition if the compiler does not fuse.
func tileGo(t *tile) {
	for p := range t.panels {
		columns := 8
		if p == t.panels-1 {
			columns = t.columns
		}
		for i := 0; i < t.rows; i += 2 {
			for j := 0; j < columns; j += 4 {
				tileGo2x4(t, p, i, j, min(4, columns-j))
			}
		}
	}
}

// tileGo2x4 computes rows i and i+1 (if present) of columns j..j+n of panel p.
func tileGo2x4(t *tile, p, i, j, n int) {
	var sums [2][4]float32
	a0, b := t.a[min(len(t.a), i*t.ars):], t.b[min(len(t.b), p*t.bps+j):]
	if i+1 < t.rows && n == 4 && t.kc > 0 {
		sums = dot2x4(t, a0, a0[t.ars:], b)
	} else {
		for r := range min(2, t.rows-i) {
			for k := range t.kc {
				av := a0[r*t.ars+k*t.acs]
				for l, bv := range b[k*t.brs:][:n] {
					sums[r][l] += av * bv
				}
			}
		}
	}
	for r := range min(2, t.rows-i) {
		at := (i+r)*t.ldc + p*8 + j
		view := *t
		if t.colBias != nil {
			view.colBias = t.colBias[p*8+j:]
		}
		finish(t.c[at:][:n], sums[r][:], &view, i+r)
	}
}

func dot2x4(t *tile, a0, a1, b []float32) (sums [2][4]float32) {
	var c00, c01, c02, c03, c10, c11, c12, c13 float32
	acs, brs := t.acs, t.brs
	for k, ia, ib := 0, 0, 0; k < t.kc; k, ia, ib = k+1, ia+acs, ib+brs {
		bv := (*[4]float32)(b[ib:])
		x, y := a0[ia], a1[ia]
		c00 += x * bv[0]
		c01 += x * bv[1]
		c02 += x * bv[2]
		c03 += x * bv[3]
		c10 += y * bv[0]
		c11 += y * bv[1]
		c12 += y * bv[2]
		c13 += y * bv[3]
	}
	return [2][4]float32{{c00, c01, c02, c03}, {c10, c11, c12, c13}}
}
