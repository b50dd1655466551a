package nn

import (
	"math"
	"slices"
)

type rowOp struct {
	binary
	kind rowKind

	dim         int
	stats       []float32 // a value per row, if the kind needs it
	dx, operand []float32 // memory of dotGrad
	pass        func(o *rowOp, w *worker, r int)
	job         passJob[rowOp]
}

// rowKind is the operation on rows.
type rowKind uint8

const (
	rowSoftmax rowKind = iota
	rowLogSoftmax
	rowNormalize
	rowDot
)

func (k rowKind) String() string {
	return [...]string{"softmax", "log-softmax", "normalise", "dot product by rows"}[k]
}

// Softmax is exp(x)/Σ exp(x) over the last axis. It first subtracts the largest value: no overflow.
func (t *Tape) Softmax(x *Tensor) *Tensor { return t.byRows(rowSoftmax, x, nil) }

// LogSoftmax is x - log Σ exp(x) over the last axis. It is exact even if the softmax is near 0.
func (t *Tape) LogSoftmax(x *Tensor) *Tensor { return t.byRows(rowLogSoftmax, x, nil) }

// Normalize is x/max(|x|, 1e-12) over the last axis, of rows of length 1, with |x| the root of the
// sum of squares.
func (t *Tape) Normalize(x *Tensor) *Tensor { return t.byRows(rowNormalize, x, nil) }

// RowDot is the sum of a·b over the last axis: for two tensors [..., dim] it is [...], or [1]
// without another axis.
func (t *Tape) RowDot(a, b *Tensor) *Tensor {
	requireOf(slices.Equal(a.Shape, b.Shape), rowDot.String(), "the same shape as", a.Shape, b.Shape...)
	return t.byRows(rowDot, a, b)
}

func (t *Tape) byRows(kind rowKind, a, b *Tensor) *Tensor {
	n := len(a.Shape)
	require(n > 0 && len(a.Data) > 0, kind.String(), "rows of one value at least", a.Shape...)
	o := record[rowOp](t)
	o.kind, o.a, o.b, o.dim = kind, a, b, a.Shape[n-1]
	shape := a.Shape
	if kind == rowDot {
		if shape = shape[:n-1]; n == 1 {
			shape = oneValue[:]
		}
	}
	y := t.begin(o, shape...)
	o.stats = sized(o.stats, len(a.Data)/o.dim)
	o.run(t, [...]func(o *rowOp, w *worker, r int){softmaxForward, logSoftmaxForward, normalizeForward, dotForward}[kind])
	return y
}

var oneValue = [1]int{1}

func (o *rowOp) run(t *Tape, pass func(o *rowOp, w *worker, r int)) {
	o.pass = pass
	o.job.each(t, o, func(o *rowOp, w *worker, _, lo, hi int) {
		for r := lo; r < hi; r++ {
			o.pass(o, w, r)
		}
	}, len(o.stats), max(1, valuesPart/2/o.dim))
}

func (o *rowOp) row(data []float32, r int) []float32 { return data[r*o.dim : (r+1)*o.dim] }

func softmaxForward(o *rowOp, w *worker, r int) { w.k.Softmax(o.row(o.y.Data, r), o.row(o.a.Data, r)) }

func logSoftmaxForward(o *rowOp, w *worker, r int) {
	x := o.row(o.a.Data, r)
	most := w.k.Max(x)
	log := float32(math.Log(w.k.ExpSum(x, most)))
	for i, y := 0, o.row(o.y.Data, r); i < len(x); i++ {
		y[i] = x[i] - most - log
	}
}

// normalizeEpsilon is the minimum length.
const normalizeEpsilon = 1e-12

func normalizeForward(o *rowOp, w *worker, r int) {
	x, y := o.row(o.a.Data, r), o.row(o.y.Data, r)
	o.stats[r] = float32(1 / max(math.Sqrt(w.k.SumSquares(x)), normalizeEpsilon))
	copy(y, x)
	w.k.Scale(y, o.stats[r])
}

func dotForward(o *rowOp, _ *worker, r int) {
	o.y.Data[r] = dot(o.row(o.a.Data, r), o.row(o.b.Data, r))
}

func (o *rowOp) backward(t *Tape) {
	if o.kind == rowDot {
		for _, x := range [2]*Tensor{o.a, o.b} {
			if x.needs {
				o.dotGrad(t, x)
			}
		}
		return
	}
	o.run(t, [...]func(o *rowOp, w *worker, r int){softmaxBackward, logSoftmaxBackward, normalizeBackward}[o.kind])
	t.handOver(o.a, &o.y)
}

func softmaxBackward(o *rowOp, w *worker, r int) {
	dy, y := o.row(o.y.grad, r), o.row(o.y.Data, r)
	w.k.SoftmaxGrad(dy, y, dot(dy, y), 1)
}

// logSoftmaxBackward is dy - softmax·Σ dy.
func logSoftmaxBackward(o *rowOp, w *worker, r int) {
	dy, p := o.row(o.y.grad, r), w.floats(0, o.dim)
	w.k.ExpScale(p, o.row(o.y.Data, r), 0, float32(w.k.Sum(dy)))
	w.k.Subtract(dy, p)
}

// normalizeBackward is (dy - y·(y·dy))/|x|, or dy/bound for |x| below the bound.
func normalizeBackward(o *rowOp, w *worker, r int) {
	dy, y, inverse := o.row(o.y.grad, r), o.row(o.y.Data, r), o.stats[r]
	along := float32(0)
	if inverse < 1/normalizeEpsilon {
		along = dot(dy, y)
	}
	for i, v := range y {
		dy[i] = (dy[i] - float32(v*along)) * inverse
	}
}

// dotGrad adds, for each row, dy times the other operand.
func (o *rowOp) dotGrad(t *Tape, x *Tensor) {
	o.operand = o.a.Data // the other
	if x == o.a {
		o.operand = o.b.Data
	}
	o.dx = t.into(x)
	o.run(t, func(o *rowOp, w *worker, r int) {
		dx := o.row(o.dx, r)
		copy(dx, o.row(o.operand, r))
		w.k.Scale(dx, o.y.grad[r])
	})
	t.merge(x, o.dx)
	o.dx, o.operand = nil, nil
}
