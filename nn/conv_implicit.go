package nn

import "github.com/ringo-ml/ringo/internal/simd"

// implicitGEMM computes a convolution as a product of windows, packed on demand, and weights.
type implicitGEMM struct{}

// Working memory of a worker.
const (
	bufPlane = iota // a sample's result before pooling, or its gradient
	bufCols         // gradients of windows
	bufPoints
	bufProducts
	bufStrip
	bufWeights
)

func (implicitGEMM) forward(o *convOp, t *Tape) {
	var fresh bool
	if o.w, fresh = t.weightsOf(o.l.W, 0); fresh {
		t.pack(&o.w.packed, false, o.win.Cols(), o.out, o.l.W.Data, o.out)
	}
	if o.cfg.MaxPool2 {
		o.job.share(t, o, pooledForward, o.x.Shape[0], 1, 1)
		return
	}
	o.job.share(t, o, implicitForward, o.rows(), 1, productRows)
}

// productRows is the least number of rows for which a separate part of a product with a packed
// matrix is worth its cost.
const productRows = 112

// product computes rows lo to hi-1 of windows times weights.
func (o *convOp) product(w *worker, lo, hi int, c []float32, e simd.Epilogue) {
	cols := o.win.Cols()
	if o.win.Whole() {
		w.k.GemmWith(&w.gemm, false, hi-lo, o.out, cols, o.x.Data[lo*cols:], cols, &o.w.packed, false, c, o.out, e)
		return
	}
	w.windows = simd.WindowRows{Windows: o.win, Kernels: w.k, Images: o.x.Data, First: lo}
	w.k.GemmRows(&w.gemm, hi-lo, o.out, cols, &w.windows, &o.w.packed, false, c, o.out, e)
}

func implicitForward(o *convOp, w *worker, _, lo, hi int) {
	o.product(w, lo, hi, o.y.Data[lo*o.out:], simd.Epilogue{ColBias: o.bias(), ReLU: o.cfg.Activation == ReLU})
}

// pooledForward processes samples in order: the result before pooling stays in the cache.
func pooledForward(o *convOp, w *worker, _, lo, hi int) {
	rows := o.win.Rows()
	plane := w.floats(bufPlane, rows*o.out)
	for s := lo; s < hi; s++ {
		o.product(w, s*rows, (s+1)*rows, plane, simd.Epilogue{ColBias: o.bias()})
		y := sampleOf(o.y.Data, o.x, s)
		w.k.MaxPool(y, sampleOf(o.from, o.x, s), plane, &o.pool)
		if o.cfg.Activation == ReLU {
			w.k.ReLU(y, y)
		}
	}
}

// smallWeights is the largest number of weights with a gradient that is summed separately for each
// part of the batch. With more weights, threads divide the columns.
const smallWeights = 1 << 16

func (implicitGEMM) backward(o *convOp, t *Tape) {
	if o.dx != nil {
		o.w = &o.packed.weights
		t.pack(&o.w.packed, true, o.out, o.win.Cols(), o.l.W.Data, o.out)
	}
	if !o.cfg.MaxPool2 {
		t.watch.turn(t, "weights")
	}
	o.implicitWeights(t)
	if o.dx == nil || o.cfg.MaxPool2 { // done with the weights
		return
	}
	t.watch.turn(t, "input")
	switch {
	case o.win.Whole():
		o.job.share(t, o, wholeInput, o.rows(), 1, productRows)
	default:
		o.job.share(t, o, implicitInput, o.x.Shape[0], 1, 1)
	}
}

func (o *convOp) implicitWeights(t *Tape) {
	if o.cfg.MaxPool2 || len(o.l.W.Data) <= smallWeights {
		parts := min(convParts, o.x.Shape[0])
		o.packed.sums = sized(o.packed.sums, parts*o.sumLen())
		o.job.run(t, o, implicitSums, parts, o.x.Shape[0], 1)
		o.addParts(t, o.l.W, 0, parts)
		if o.l.B != nil {
			o.addParts(t, o.l.B, len(o.l.W.Data), parts)
		}
		return
	}
	o.job.share(t, o, implicitColumns, o.out, 2*lineValues, 4)
	o.biasGrad(t)
}

// implicitSums sums the gradients of samples lo to hi-1. With pooling it also computes the input's
// gradient, from a reconstructed gradient of the result.
func implicitSums(o *convOp, w *worker, part, lo, hi int) {
	dw, db := o.partSums(part)
	clear(db)
	rows := o.win.Rows()
	if !o.cfg.MaxPool2 {
		dy := o.y.grad[lo*rows*o.out : hi*rows*o.out]
		o.windowsT(w, lo*rows, hi*rows, 0, o.out, dy, false, dw)
		w.k.SumRows(db, dy, o.out, (hi-lo)*rows)
		return
	}
	for s := lo; s < hi; s++ {
		dy := w.floats(bufPlane, rows*o.out)
		w.k.MaxPoolGrad(dy, sampleOf(o.y.grad, o.x, s), sampleOf(o.from, o.x, s), &o.pool)
		o.windowsT(w, s*rows, (s+1)*rows, 0, o.out, dy, s > lo, dw)
		w.k.SumRows(db, dy, o.out, rows)
		if o.dx != nil {
			o.inputGrad(w, s, dy)
		}
	}
}

// windowsT computes, or adds, the columns lo to hi-1 of the gradient of the
// weights from windows first to last-1.
func (o *convOp) windowsT(w *worker, first, last, lo, hi int, dy []float32, accumulate bool, dw []float32) {
	cols := o.win.Cols()
	if o.win.Whole() {
		w.k.Gemm(&w.gemm, true, false, cols, hi-lo, last-first, o.x.Data[first*cols:], cols, dy[lo:], o.out, accumulate, dw[lo:], o.out)
		return
	}
	w.windows = simd.WindowRows{Windows: o.win, Kernels: w.k, Images: o.x.Data, First: first}
	w.k.GemmRowsT(&w.gemm, cols, hi-lo, last-first, &w.windows, dy[lo:], o.out, accumulate, dw[lo:], o.out)
}

// implicitColumns computes columns lo to hi-1 of the gradient of the weights.
func implicitColumns(o *convOp, w *worker, _, lo, hi int) {
	o.windowsT(w, 0, o.rows(), lo, hi, o.y.grad, o.l.W.touched, o.l.W.Grad)
}

func wholeInput(o *convOp, w *worker, _, lo, hi int) {
	in := o.win.Channels
	w.k.GemmWith(&w.gemm, false, hi-lo, in, o.out, o.y.grad[lo*o.out:], o.out, &o.w.packed, false, o.dx[lo*in:], in, simd.Epilogue{})
}

func implicitInput(o *convOp, w *worker, _, lo, hi int) {
	for s := lo; s < hi; s++ {
		o.inputGrad(w, s, sampleOf(o.y.grad, o.x, s))
	}
}

// windowBlock is the number of windows with gradients that are computed before they are added to
// the image, so that they stay in the cache.
const windowBlock = 128

// inputGrad computes dx of one sample: dy Wᵀ is the gradient of the windows, and each value of x
// gets the sum over its windows.
func (o *convOp) inputGrad(w *worker, s int, dy []float32) {
	dx, rows, cols := sampleOf(o.dx, o.x, s), o.win.Rows(), o.win.Cols()
	clear(dx)
	for lo := 0; lo < rows; lo += windowBlock {
		n := min(windowBlock, rows-lo)
		g := w.floats(bufCols, n*cols)
		w.k.GemmWith(&w.gemm, false, n, cols, o.out, dy[lo*o.out:], o.out, &o.w.packed, false, g, cols, simd.Epilogue{})
		w.k.AddWindows(dx, o.win, g, cols, lo, n)
	}
}
