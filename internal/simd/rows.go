package simd

import "fmt"

// rowsLevel holds the kernels on rows of matrices. Strides are in bytes, vectors counts whole
// vectors of a row, and mask holds the lanes of the rest. width 0: all is portable.
type rowsLevel struct {
	width     int
	copy, add linesKernel
	sum       func(dst, src *float32, lds, rows, vectors int, mask *int32)
}

type linesKernel func(dst *float32, ldd int, src *float32, lds, rows, vectors int, mask *int32, lines, dstLine, srcLine int)

// runs calls f for runs of rows, each within the limit of a call.
func runs(rows, limit int, f func(from, rows int)) {
	for from := 0; from < rows; from += limit {
		f(from, min(limit, rows-from))
	}
}

// lineFloats returns the limit of a call for rows of cols floats, at least 1.
func lineFloats(cols int) int { return max(1, 2*callFloats/cols) }

func checkStrided(op string, dst []float32, ldd int, src []float32, lds, rows, cols int) {
	if rows < 0 || cols < 0 || ldd < 0 || lds < 0 {
		panic(fmt.Sprintf("simd: %s: %d rows of %d", op, rows, cols))
	}
	if rows > 0 && cols > 0 && (len(dst) < (rows-1)*ldd+cols || len(src) < (rows-1)*lds+cols) {
		panic(fmt.Sprintf("simd: %s: %d rows of %d, %d and %d floats apart, in %d and %d", op, rows, cols, ldd, lds, len(dst), len(src)))
	}
}

// CopyRows copies rows of cols floats, lds floats apart in src and ldd apart in dst. Rows of src
// may overlap; dst must not overlap src.
func (k *Kernels) CopyRows(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	k.copyLines(dst, ldd, 0, src, lds, 0, rows, 1, cols)
}

// AddToRows adds rows of cols floats, lds apart, to rows ldd apart in dst, in order: rows of dst
// may overlap. dst must not overlap src.
func (k *Kernels) AddToRows(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	k.addToLines(dst, ldd, 0, src, lds, 0, rows, 1, cols)
}

// SumRows adds rows of len(dst) floats, lds apart, to dst, in order.
func (k *Kernels) SumRows(dst, src []float32, lds, rows int) {
	cols := len(dst)
	checkStrided("SumRows", dst, 0, src, lds, rows, cols)
	if rows == 0 || cols == 0 {
		return
	}
	w := k.rows.width
	if w == 0 {
		for i := range rows {
			addGo(dst, src[i*lds:][:cols])
		}
		return
	}
	runs(rows, lineFloats(cols), func(at, n int) {
		k.rows.sum(&dst[0], &src[at*lds], 4*lds, n, cols/w, k.rowMask(cols))
	})
}

// copyLines is CopyRows for rows of several lines of cols floats, dstLine and srcLine apart.
func (k *Kernels) copyLines(dst []float32, ldd, dstLine int, src []float32, lds, srcLine, rows, lines, cols int) {
	one := func(dst, src []float32) { copy(dst, src) }
	k.lines("CopyRows", k.rows.copy, one, dst, ldd, dstLine, src, lds, srcLine, rows, lines, cols)
}

// addToLines is AddToRows for rows of several lines.
func (k *Kernels) addToLines(dst []float32, ldd, dstLine int, src []float32, lds, srcLine, rows, lines, cols int) {
	k.lines("AddToRows", k.rows.add, addGo, dst, ldd, dstLine, src, lds, srcLine, rows, lines, cols)
}

// lines runs a kernel, or one for each line.
func (k *Kernels) lines(op string, kernel linesKernel, one func(dst, src []float32),
	dst []float32, ldd, dstLine int, src []float32, lds, srcLine, rows, lines, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	checkStrided(op, dst[(lines-1)*dstLine:], ldd, src[(lines-1)*srcLine:], lds, rows, cols)
	w := k.rows.width
	if w == 0 {
		for i := range rows {
			for l := range lines {
				one(dst[i*ldd+l*dstLine:][:cols], src[i*lds+l*srcLine:][:cols])
			}
		}
		return
	}
	runs(rows, lineFloats(lines*cols), func(at, n int) {
		kernel(&dst[at*ldd], 4*ldd, &src[at*lds], 4*lds, n, cols/w, k.rowMask(cols), lines, 4*dstLine, 4*srcLine)
	})
}
