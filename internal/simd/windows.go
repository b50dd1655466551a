package simd

import (
	"errors"
	"fmt"
)

// Windows describes the windows of a convolution over channels-last images [Height, Width,
// Channels]. The windows of an image are the rows of a matrix: row y*OutWidth()+x is the window at
// (y,x), and its columns are the window's values, (ky,kx,c) at (ky*KernelWidth+kx)*Channels+c, 0
// outside the image. The whole matrix is never stored.
type Windows struct {
	Height, Width, Channels   int
	KernelHeight, KernelWidth int
	Stride                    int // 0 means 1
	Pad                       int // pixels on all four sides
}

func (p Windows) stride() int { return max(1, p.Stride) }

// OutHeight is the number of window positions from top to bottom.
func (p Windows) OutHeight() int { return (p.Height+2*p.Pad-p.KernelHeight)/p.stride() + 1 }

// OutWidth is the number of window positions from left to right.
func (p Windows) OutWidth() int { return (p.Width+2*p.Pad-p.KernelWidth)/p.stride() + 1 }

// Rows is the number of windows of an image.
func (p Windows) Rows() int { return p.OutHeight() * p.OutWidth() }

// Cols is the number of values of a window.
func (p Windows) Cols() int { return p.KernelHeight * p.KernelWidth * p.Channels }

// ImageSize is the number of values of an image.
func (p Windows) ImageSize() int { return p.Height * p.Width * p.Channels }

// Whole reports whether the windows are the pixels, so that the matrix is the image.
func (p Windows) Whole() bool {
	return p.KernelHeight == 1 && p.KernelWidth == 1 && p.stride() == 1 && p.Pad == 0
}

// Validate reports all errors together. Layers call it in each step: it allocates for errors only.
func (p Windows) Validate() error {
	var errs []error
	if p.Height < 1 || p.Width < 1 || p.Channels < 1 {
		errs = append(errs, fmt.Errorf("an image of %dx%d with %d channels", p.Height, p.Width, p.Channels))
	}
	if p.KernelHeight < 1 || p.KernelWidth < 1 {
		errs = append(errs, fmt.Errorf("a window of %dx%d", p.KernelHeight, p.KernelWidth))
	}
	if p.Stride < 0 || p.Pad < 0 {
		errs = append(errs, fmt.Errorf("stride %d, padding %d", p.Stride, p.Pad))
	}
	if len(errs) == 0 && (p.Height+2*p.Pad < p.KernelHeight || p.Width+2*p.Pad < p.KernelWidth) {
		errs = append(errs, fmt.Errorf("a window of %dx%d does not fit an image of %dx%d with padding %d", p.KernelHeight, p.KernelWidth, p.Height, p.Width, p.Pad))
	}
	return errors.Join(errs...)
}

// run is a piece of the matrix with rows within a line of the image each: count rows from row, n
// columns a line from col. Line l of row i begins at image[at+i*step+l*lineStep]. at < 0: outside,
// and zero.
type run struct {
	row, count, col, n int
	at, step           int
	lines, lineStep    int
}

// each calls f for the runs of rows i0..i0+rows and columns k0..k0+kc of the matrix of several
// adjacent images.
func (p Windows) each(i0, rows, k0, kc int, f func(run)) {
	ow := p.OutWidth()
	for i := i0; i < i0+rows; {
		x := i % ow
		n := min(ow-x, i0+rows-i)
		image, y := i/ow/p.OutHeight(), i/ow%p.OutHeight()
		p.outputLine(i-i0, n, image, y, x, k0, kc, f)
		i += n
	}
}

// outputLine divides the windows of n places of an output line, from x on, into runs: windows
// completely inside the image are one run.
func (p Windows) outputLine(row, n, image, y, x, k0, kc int, f func(run)) {
	st, line, top := p.stride(), p.KernelWidth*p.Channels, y*p.stride()-p.Pad
	first, last := p.inside(x, n)
	if top < 0 || top+p.KernelHeight > p.Height || k0%line != 0 || kc%line != 0 {
		first, last = 0, 0
	}
	each := func(from, to int) {
		if from >= to {
			return
		}
		for ky := k0 / line; ky*line < k0+kc; ky++ {
			lo, hi := max(k0, ky*line)-ky*line, min(k0+kc, (ky+1)*line)-ky*line
			p.line(run{row: row + from, count: to - from, col: ky*line + lo - k0, n: hi - lo, lines: 1}, image, top+ky, x+from, lo, f)
		}
	}
	each(0, first)
	if last > first {
		at := ((image*p.Height+top+k0/line)*p.Width + (x+first)*st - p.Pad) * p.Channels
		f(run{row: row + first, count: last - first, n: line, at: at, step: st * p.Channels, lines: kc / line, lineStep: p.Width * p.Channels})
	}
	each(last, n)
}

// inside returns which of n windows from column x on are between the image's left and right edges.
func (p Windows) inside(x, n int) (first, last int) {
	st := p.stride()
	first = min(max(0, (p.Pad+st-1)/st-x), n)
	if p.Width-p.KernelWidth+p.Pad < 0 {
		return first, first
	}
	return first, max(first, min(n, (p.Width-p.KernelWidth+p.Pad)/st+1-x))
}

// line divides a run of count windows, the first at x, with columns in line iy of the image from
// value lo of the window's line on.
func (p Windows) line(r run, image, iy, x, lo int, f func(run)) {
	if iy < 0 || iy >= p.Height {
		r.at = -1
		f(r)
		return
	}
	st, c := p.stride(), p.Channels
	start := (image*p.Height + iy) * p.Width * c
	first, last := p.inside(x, r.count)
	single := func(i int) {
		// The window's line covers values from..to of the image's line.
		from := ((x+i)*st-p.Pad)*c + lo
		p.clipped(run{row: r.row + i, count: 1, col: r.col, n: r.n, lines: 1}, start, from, f)
	}
	for i := range first {
		single(i)
	}
	if last > first {
		f(run{row: r.row + first, count: last - first, col: r.col, n: r.n, at: start + ((x+first)*st-p.Pad)*c + lo, step: st * c, lines: 1})
	}
	for i := last; i < r.count; i++ {
		single(i)
	}
}

// clipped divides a row of a run that begins, without clipping, at value from of the image's line.
func (p Windows) clipped(r run, start, from int, f func(run)) {
	width := p.Width * p.Channels
	lo := min(max(0, -from), r.n)
	hi := max(lo, min(r.n, width-from))
	if lo > 0 {
		f(run{row: r.row, count: 1, col: r.col, n: lo, at: -1, lines: 1})
	}
	if hi > lo {
		f(run{row: r.row, count: 1, col: r.col + lo, n: hi - lo, at: start + from + lo, lines: 1})
	}
	if hi < r.n {
		f(run{row: r.row, count: 1, col: r.col + hi, n: r.n - hi, at: -1, lines: 1})
	}
}

// WindowRows is the matrix of the windows of adjacent images, as the left-hand side of a product.
type WindowRows struct {
	Windows
	Kernels *Kernels
	Images  []float32
	First   int // window of row 0
}

var _ RowPacker = (*WindowRows)(nil)

// PackRows implements RowPacker.
func (w *WindowRows) PackRows(dst []float32, ld, i0, rows, k0, kc int) {
	w.each(w.First+i0, rows, k0, kc, func(r run) {
		if r.at >= 0 {
			w.Kernels.copyLines(dst[r.row*ld+r.col:], ld, r.n, w.Images[r.at:], r.step, r.lineStep, r.count, r.lines, r.n)
			return
		}
		for i := range r.count {
			clear(dst[(r.row+i)*ld+r.col:][:r.n])
		}
	})
}

// AddWindows adds rows i0..i0+rows of the matrix of windows, cols with leading dimension ld, to the
// windows' values in images: the gradient of a convolution's input. The additions are in the order
// of rows.
func (k *Kernels) AddWindows(images []float32, p Windows, cols []float32, ld, i0, rows int) {
	p.each(i0, rows, 0, p.Cols(), func(r run) {
		if r.at >= 0 {
			k.addToLines(images[r.at:], r.step, r.lineStep, cols[r.row*ld+r.col:], ld, r.n, r.count, r.lines, r.n)
		}
	})
}
