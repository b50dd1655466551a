package nn

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/simd"
)

type denseOp struct {
	x   *Tensor
	l   Layer
	act Activation
	y   Tensor

	pass  densePass
	parts int
	span  int // columns or rows that the parts share
	dx    []float32
}

// densePass computes the columns or rows lo to hi-1 of a product.
type densePass func(o *denseOp, w *worker, lo, hi int)

func (o *denseOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x}, [4]*Param{o.l.W, o.l.B}
}
func (o *denseOp) result() *Tensor { return &o.y }

// Dense is act(x Wᵀ + b): x is [n, in], W is [out, in], b is [out] or nil, the
// result is [n, out]. It costs 2·n·in·out operations forward and twice that
// backward.
func (t *Tape) Dense(x *Tensor, l Layer, act Activation) *Tensor {
	checkDense(x, l)
	want(act <= GELU, "dense", "one of the activations", int(act))
	if act == GELU { // its slope is known by its input, which is kept
		return t.GELU(t.Dense(x, l, Identity))
	}
	o := record[denseOp](t)
	o.x, o.l, o.act = x, l, act
	y := t.begin(o, x.Shape[0], l.W.Shape[0])
	o.run(t, denseForward, l.W.Shape[0])
	return y
}

func checkDense(x *Tensor, l Layer) {
	l.want(len(l.W.Shape) == 2, "dense", "weights [out, in]", l.W.Shape...)
	out, in := l.W.Shape[0], l.W.Shape[1]
	l.want(l.B == nil || len(l.B.Data) == out, "dense", "one bias per output", out)
	if len(x.Shape) != 2 || x.Shape[0] == 0 || x.Shape[1] != in {
		panic(&ShapeError{Op: "dense " + l.W.Name, Want: fmt.Sprintf("an input [n, %d], n > 0", in), Got: x.Shape})
	}
}

// run cuts span in as many parts as there are threads, at multiples of a cache
// line. Every value is the same sum in the same order whatever the cut.
func (o *denseOp) run(t *Tape, pass densePass, span int) {
	o.pass, o.span = pass, span
	o.parts = min(t.pool.threads(), (span+lineValues-1)/lineValues)
	t.pool.run(o, o.parts)
}

func (o *denseOp) part(w *worker, i int) {
	lines := (o.span + lineValues - 1) / lineValues
	lo, hi := lines*i/o.parts*lineValues, lines*(i+1)/o.parts*lineValues
	o.pass(o, w, lo, min(hi, o.span))
}

// denseForward computes columns of y = act(x Wᵀ + b).
func denseForward(o *denseOp, w *worker, lo, hi int) {
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	after := simd.Epilogue{ReLU: o.act == ReLU}
	if o.l.B != nil {
		after.ColBias = o.l.B.Data[lo:hi]
	}
	w.k.GemmEpilogue(&w.gemm, false, true, n, hi-lo, in, o.x.Data, in, o.l.W.Data[lo*in:], in, false, o.y.Data[lo:], out, after)
	if o.act != Identity && o.act != ReLU {
		for r := range n {
			y := o.y.Data[r*out+lo : r*out+hi]
			o.act.apply(w.k, y, y)
		}
	}
}

// denseSlope computes values of the gradient before the activation.
func denseSlope(o *denseOp, w *worker, lo, hi int) {
	o.act.grad(w.k, o.y.grad[lo:hi], o.y.Data[lo:hi])
}

func (o *denseOp) backward(t *Tape) {
	if o.act != Identity {
		o.run(t, denseSlope, len(o.y.Data))
	}
	if !o.skips() {
		o.run(t, denseWeights, o.l.W.Shape[0])
	}
	if o.x.needs {
		o.dx = t.into(o.x)
		o.run(t, denseInput, o.l.W.Shape[1])
		t.merge(o.x, o.dx)
	}
}

func (o *denseOp) skips() bool { return allFrozen(o.l.W, o.l.B) }

// denseWeights computes rows of dW = dyᵀ x and values of db.
func denseWeights(o *denseOp, w *worker, lo, hi int) {
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	w.k.Gemm(&w.gemm, true, false, hi-lo, in, n, o.y.grad[lo:], out, o.x.Data, in, o.l.W.touched, o.l.W.Grad[lo*in:], in)
	if o.l.B == nil {
		return
	}
	db := o.l.B.Grad[lo:hi]
	if !o.l.B.touched {
		clear(db)
	}
	for r := range n {
		w.k.Add(db, o.y.grad[r*out+lo:r*out+hi])
	}
}

// denseInput computes columns of dx = dy W.
func denseInput(o *denseOp, w *worker, lo, hi int) {
	n, out, in := o.x.Shape[0], o.l.W.Shape[0], o.l.W.Shape[1]
	w.k.Gemm(&w.gemm, false, false, n, hi-lo, out, o.y.grad, out, o.l.W.Data[lo:], in, false, o.dx[lo:], in)
}
