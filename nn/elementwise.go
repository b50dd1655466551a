package nn

import "github.com/ringo-ml/ringo/internal/simd"

type addOp struct{ binary }

// Add is a + b, elementwise, with broadcasting as of Subtract.
func (t *Tape) Add(a, b *Tensor) *Tensor {
	if !sameShape(a, b) {
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
