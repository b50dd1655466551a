package nn

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
)

type denseOp struct {
	output
	x   *Tensor
	l   Layer
	act Activation

	job    passJob[denseOp] // over columns, rows or values
	dx     []float32
	packed *simd.PackedB // weights, if rows are shared
}

func (o *denseOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x}, [4]*Param{o.l.W, o.l.B}
}

// Dense is act(x Wᵀ + b): x is [n, in], W is [out, in], b is [out] or nil, the result is [n, out].
// It costs 2·n·in·out operations forward and twice that backward.
func (t *Tape) Dense(x *Tensor, l Layer, act Activation) *Tensor {
	checkDense(x, l)
	require(act <= GELU, "dense", "one of the activations", int(act))
	if act == GELU { // the slope depends on the input
		return t.GELU(t.Dense(x, l, Identity))
	}
	o := record[denseOp](t)
	o.x, o.l, o.act = x, l, act
	y := t.begin(o, x.Shape[0], l.W.Shape[0])
	if out, in := l.W.Shape[0], l.W.Shape[1]; o.byRows(t) || t.packedWeights != nil {
		o.packed = t.matrixOf(l.W, true, in, out, in)
		if x.Shape[0] >= productRows || t.pool.threads() == 1 {
			o.job.share(t, o, denseForwardRows, x.Shape[0], 1, productRows)
		} else {
			o.job.share(t, o, denseForwardPanels, out, t.k.PanelWidth(), denseColumns/2)
		}
	} else {
		o.job.share(t, o, denseForward, l.W.Shape[0], lineValues, denseColumns)
	}
	return y
}

func checkDense(x *Tensor, l Layer) {
	l.want(len(l.W.Shape) == 2, "dense", "weights [out, in]", l.W.Shape...)
	out, in := l.W.Shape[0], l.W.Shape[1]
	l.want(l.B == nil || len(l.B.Data) == out, "dense", "one bias per output", out)
	if len(x.Shape) != 2 || x.Shape[0] == 0 || x.Shape[1] != in {
		panic(&ShapeError{Op: "dense " + l.W.Name, Required: fmt.Sprintf("an input [n, %d], n > 0", in), Got: x.Shape})
	}
}

// denseColumns is the least number of cache lines of columns, or of rows of the weights, for which
// a separate part is worth its cost.
const denseColumns = 8

// byRows reports whether threads divide the rows of a product, with weights packed once for all
// threads, instead of its columns. Each thread then reads less data that other threads wrote, but
// packed weights are written and read once more.
func (o *denseOp) byRows(t *Tape) bool {
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	return t.pool.threads() > 1 && n >= productRows && 3*out*in < n*(out+in)
}

// denseForwardRows computes rows of y = act(x Wᵀ + b).
func denseForwardRows(o *denseOp, w *worker, _, lo, hi int) {
	out, in := o.l.W.Shape[0], o.l.W.Shape[1]
	after := simd.Epilogue{ReLU: o.act == ReLU}
	if o.l.B != nil {
		after.ColBias = o.l.B.Data
	}
	y := o.y.Data[lo*out : hi*out]
	w.k.GemmWith(&w.gemm, false, hi-lo, out, in, o.x.Data[lo*in:], in, o.packed, false, y, out, after)
	if o.act != Identity && o.act != ReLU {
		o.act.apply(w.k, y, y)
	}
}

// denseForward computes columns of y = act(x Wᵀ + b).
func denseForward(o *denseOp, w *worker, _, lo, hi int) {
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	after := simd.Epilogue{ReLU: o.act == ReLU}
	if o.l.B != nil {
		after.ColBias = o.l.B.Data[lo:hi]
	}
	w.k.GemmEpilogue(&w.gemm, false, true, n, hi-lo, in, o.x.Data, in, o.l.W.Data[lo*in:], in, false, o.y.Data[lo:], out, after)
	o.activate(w, lo, hi)
}

// denseForwardPanels computes columns of y from whole panels of packed weights.
func denseForwardPanels(o *denseOp, w *worker, _, lo, hi int) {
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	after := simd.Epilogue{ReLU: o.act == ReLU}
	if o.l.B != nil {
		after.ColBias = o.l.B.Data[lo:hi]
	}
	w.k.PanelsOf(&w.panels[0], o.packed, lo, hi)
	w.k.GemmWith(&w.gemm, false, n, hi-lo, in, o.x.Data, in, &w.panels[0], false, o.y.Data[lo:], out, after)
	o.activate(w, lo, hi)
}

// activate applies the activation to columns of y, except ReLU, which the product applied.
func (o *denseOp) activate(w *worker, lo, hi int) {
	if o.act == Identity || o.act == ReLU {
		return
	}
	out := o.l.W.Shape[0]
	for r := range o.x.Shape[0] {
		y := o.y.Data[r*out+lo : r*out+hi]
		o.act.apply(w.k, y, y)
	}
}

// denseSlope computes values of the gradient before the activation.
func denseSlope(o *denseOp, w *worker, _, lo, hi int) {
	o.act.grad(w.k, o.y.grad[lo:hi], o.y.Data[lo:hi])
}

func (o *denseOp) backward(t *Tape) {
	if o.act != Identity {
		o.job.share(t, o, denseSlope, len(o.y.Data), lineValues, valuesPart/2/lineValues)
	}
	if !o.skips() {
		t.watch.turn(t, "weights")
		if o.byBlocks(t) {
			t.blocks.compute(t, o)
		} else {
			o.job.share(t, o, denseWeights, o.l.W.Shape[0], lineValues/2, math.MaxInt) // each part reads all of x
		}
	}
	if o.x.needs {
		t.watch.turn(t, "input")
		o.dx = t.into(o.x)
		if o.byRows(t) {
			o.packed = &t.packed.weights.packed
			t.pack(o.packed, false, o.l.W.Shape[0], o.l.W.Shape[1], o.l.W.Data, o.l.W.Shape[1])
			o.job.share(t, o, denseInputRows, o.x.Shape[0], 1, productRows)
		} else {
			o.job.share(t, o, denseInput, o.l.W.Shape[1], lineValues, denseColumns)
		}
		t.merge(o.x, o.dx)
	}
}

func (o *denseOp) skips() bool { return allFrozen(o.l.W, o.l.B) }

// denseWeights computes rows of dW = dyᵀ x and values of db.
func denseWeights(o *denseOp, w *worker, _, lo, hi int) {
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	w.k.Gemm(&w.gemm, true, false, hi-lo, in, n, o.y.grad[lo:], out, o.x.Data, in, o.l.W.touched, o.l.W.Grad[lo*in:], in)
	line := func(at int) int { return min(out, (at+lineValues-1)/lineValues*lineValues) } // so that parts do not share a cache line
	o.biasGrad(w, 0, w.k.Blocks(n), line(lo), line(hi))
}

// biasGrad adds blocks first to last-1 of the rows to columns lo to hi-1 of the bias's gradient. In
// a step's first Backward, block 0 overwrites the gradient.
func (o *denseOp) biasGrad(w *worker, first, last, lo, hi int) {
	if o.l.B == nil || first == last {
		return
	}
	n, out := o.x.Shape[0], o.l.W.Shape[0]
	db := o.l.B.Grad[lo:hi]
	if first == 0 && !o.l.B.touched {
		clear(db)
	}
	from, _ := w.k.Block(n, first)
	_, to := w.k.Block(n, last-1)
	for r := from; r < to; r++ {
		w.k.Add(db, o.y.grad[r*out+lo:r*out+hi])
	}
}

// denseInput computes columns of dx = dy W.
func denseInput(o *denseOp, w *worker, _, lo, hi int) {
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	w.k.Gemm(&w.gemm, false, false, n, hi-lo, out, o.y.grad, out, o.l.W.Data[lo:], in, false, o.dx[lo:], in)
}

// denseInputRows computes rows of dx = dy W.
func denseInputRows(o *denseOp, w *worker, _, lo, hi int) {
	out, in := o.l.W.Shape[0], o.l.W.Shape[1]
	w.k.GemmWith(&w.gemm, false, hi-lo, in, out, o.y.grad[lo*out:], out, o.packed, false, o.dx[lo*in:hi*in], in, simd.Epilogue{})
}
