package nn

type reduceOp struct {
	unary
	m       nest
	scale   float32
	mean    bool
	reduced [maxAxes]bool // summed axes
}

// Sum is the sum over axes of x, which has at most 8; negative axes count from the last, -1. The
// result has the remaining axes; without arguments the sum is over all axes, and the result has one
// value, [1].
func (t *Tape) Sum(x *Tensor, axes ...int) *Tensor { return t.reduce("sum", x, axes, false) }

// Mean is the mean over axes of x, with the axes of Sum. It panics without values.
func (t *Tape) Mean(x *Tensor, axes ...int) *Tensor {
	require(len(x.Data) > 0, "mean", "one value at least", x.Shape...)
	return t.reduce("mean", x, axes, true)
}

func (t *Tape) reduce(name string, x *Tensor, axes []int, mean bool) *Tensor {
	rank := len(x.Shape)
	require(rank <= maxAxes, name, "at most 8 axes", x.Shape...)
	var reduced [maxAxes]bool
	for _, a := range axes {
		if i := a + rank; a < 0 && i >= 0 {
			a = i
		}
		requireOf(a >= 0 && a < rank && !reduced[a], name, "axes, each once, of", x.Shape, axes...)
		reduced[a] = true
	}
	var shape [maxAxes]int
	n, count := 0, 1
	for i, d := range x.Shape {
		if reduced[i] || len(axes) == 0 {
			reduced[i], count = true, count*d
			continue
		}
		shape[n] = d
		n++
	}
	if n == 0 {
		shape[0], n = 1, 1
	}
	o := record[reduceOp](t)
	o.x, o.scale, o.mean, o.reduced = x, 1, mean, reduced
	if mean {
		o.scale = 1 / float32(count)
	}
	o.m = makeNest(x.Shape, stepsOf(x.Shape, reduced), strides{})
	y := t.begin(o, shape[:n]...)
	t.fold(&o.m, &o.m.a, y.Data, x.Data, o.scale)
	return y
}

// stepsOf returns the strides, along x's axes, of a tensor without the reduced axes.
func stepsOf(shape []int, reduced [maxAxes]bool) (s strides) {
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if !reduced[i] && shape[i] != 1 {
			s[i] = step
			step *= shape[i]
		}
	}
	return s
}

func (o *reduceOp) backward(t *Tape) {
	if o.scale != 1 {
		t.k.Scale(o.y.grad, o.scale)
	}
	dx := t.into(o.x)
	t.spread(copyStretch, &o.m, dx, o.y.grad, &o.m.a, nil, &o.m.b)
	t.merge(o.x, dx)
}
