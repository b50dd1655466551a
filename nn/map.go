package nn

import "github.com/ringo-ml/ringo/internal/simd"

// mapOp is a custom function of each value.
type mapOp struct {
	unary
	name string
	f    func(i int, x float32) (y, slope float32)

	slopes []float32
	parts  int
}

// Map is a custom function of each value: f returns the result for value i of x, in row-major
// order, and its slope, the derivative with respect to x. The value of i selects a target, or a
// column as i modulo the columns: a loss of each sample is a Map, too. f is called on all threads.
// name is the operation's name in errors and exports.
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
