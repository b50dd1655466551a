package nn

import (
	"slices"

	"github.com/ringo-ml/ringo/internal/simd"
)

type addOp struct{ binary }

// Add is a + b, elementwise, with broadcasting as in Subtract.
func (t *Tape) Add(a, b *Tensor) *Tensor {
	if !slices.Equal(a.Shape, b.Shape) {
		return t.binary(addition, a, b)
	}
	o := record[addOp](t)
	o.a, o.b = a, b
	y := t.begin(o, a.Shape...)
	t.elementwise(addTo, y.Data, a.Data, b.Data)
	return y
}

// vectorJob is an operation on every value of some slices, cut into parts.
type vectorJob struct {
	f    func(k *simd.Kernels, dst, a, b []float32)
	dst  []float32
	a, b []float32

	parts int
}

func addTo(k *simd.Kernels, dst, a, b []float32) { k.AddTo(dst, a, b) }

func copyOf(_ *simd.Kernels, dst, a, _ []float32) { copy(dst, a) }

func zeros(_ *simd.Kernels, dst, _, _ []float32) { clear(dst) }

func reluGrad(k *simd.Kernels, dst, a, b []float32) { k.ReLUGrad(dst, a, b) }

func (j *vectorJob) part(w *worker, i int) {
	lo, hi := spanOf(len(j.dst), i, j.parts)
	j.f(w.k, j.dst[lo:hi], j.a[lo:hi], j.b[lo:hi])
}

// elementwise runs f on all threads.
func (t *Tape) elementwise(f func(k *simd.Kernels, dst, a, b []float32), dst, a, b []float32) {
	t.values = vectorJob{f: f, dst: dst, a: a, b: b, parts: t.pool.cutValues(len(dst))}
	t.pool.run(&t.values, t.values.parts)
	t.values = vectorJob{}
}

func (o *addOp) backward(t *Tape) {
	if o.a.needs && o.b.needs {
		dx := t.into(o.a)
		t.elementwise(copyOf, dx, o.y.grad, o.y.grad)
		t.merge(o.a, dx)
	}
	last := o.b
	if !o.b.needs {
		last = o.a
	}
	t.handOver(last, &o.y)
}

type reshapeOp struct{ unary }

// Reshape returns the same values in another shape of equal size. The result shares x's memory.
func (t *Tape) Reshape(x *Tensor, shape ...int) *Tensor {
	require(volume(shape) == len(x.Data), "reshape", "a shape of as many values", shape...)
	o := record[reshapeOp](t)
	o.x = x
	o.y.Shape = append(o.y.Shape[:0], shape...)
	o.y.Data = x.Data
	t.note(o)
	return &o.y
}

// Flatten makes one row per sample: [n, ...] becomes [n, values].
func (t *Tape) Flatten(x *Tensor) *Tensor {
	require(len(x.Shape) > 0 && x.Shape[0] > 0, "flatten", "at least one sample", x.Shape...)
	return t.Reshape(x, x.Shape[0], len(x.Data)/x.Shape[0])
}

func (o *reshapeOp) backward(t *Tape) {
	if !o.x.has { // first contribution: pass on the memory
		o.x.grad, o.y.grad = o.y.grad, o.x.grad
		o.x.has, o.y.has = true, false
		return
	}
	t.elementwise(addTo, o.x.grad, o.x.grad, o.y.grad)
}

// mapOp is a custom function of each value.
type mapOp struct {
	unary
	name string
	f    func(i int, x float32) (y, slope float32)

	slopes []float32
	parts  int
}

// Map is a custom function of each value: f returns the result for value i of x, in row-major
// order, and its slope, the derivative with respect to x. With i, f can find a target of the value,
// or its column (i modulo the number of columns): a Map can be a loss of each sample. f is called
// on all threads. name is the operation's name in errors and exports.
//
//	softplus := t.Map("softplus", x, func(_ int, v float32) (y, slope float32) {
//		e := math.Exp(float64(v))
//		return float32(math.Log1p(e)), float32(e / (1 + e))
//	})
func (t *Tape) Map(name string, x *Tensor, f func(i int, x float32) (y, slope float32)) *Tensor {
	require(f != nil, name, "a function")
	o := record[mapOp](t)
	o.name, o.f, o.x = name, f, x
	y := t.begin(o, x.Shape...)
	if t.pool.dry {
		return y
	}
	o.slopes, o.parts = sized(o.slopes, len(x.Data)), t.pool.cutValues(len(x.Data))
	t.pool.run(o, o.parts)
	return y
}

func (o *mapOp) part(_ *worker, i int) {
	lo, hi := spanOf(len(o.x.Data), i, o.parts)
	for k := lo; k < hi; k++ {
		o.y.Data[k], o.slopes[k] = o.f(k, o.x.Data[k])
	}
}

func (o *mapOp) backward(t *Tape) {
	dx := t.into(o.x)
	t.elementwise(multiplyTo, dx, o.y.grad, o.slopes)
	t.merge(o.x, dx)
}

func multiplyTo(_ *simd.Kernels, dst, a, b []float32) {
	for i, v := range a {
		dst[i] = v * b[i]
	}
}

func (o *mapOp) node() Node { return Node{Op: "apply", Name: o.name, Inputs: []*Tensor{o.x}} }
