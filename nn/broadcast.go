package nn

import "github.com/ringo-ml/ringo/internal/simd"

// arithmetic is the kind of an operation on two tensors with broadcasting.
type arithmetic uint8

const (
	addition arithmetic = iota
	subtraction
	multiplication
)

func (a arithmetic) String() string { return [...]string{"add", "subtract", "multiply"}[a] }

func (a arithmetic) stretch() stretch {
	return [...]stretch{addStretch, subtractStretch, multiplyStretch}[a]
}

type binaryOp struct {
	binary
	kind arithmetic
	m    nest
}

// Subtract is a - b, elementwise. Shapes are broadcast as in NumPy: aligned at the last axis, each
// axis has equal length in both, or length 1 in one, or is missing in the shorter shape. They have
// at most 8 axes.
func (t *Tape) Subtract(a, b *Tensor) *Tensor { return t.binary(subtraction, a, b) }

// Multiply is a·b, elementwise, with broadcasting as in Subtract.
func (t *Tape) Multiply(a, b *Tensor) *Tensor { return t.binary(multiplication, a, b) }

func (t *Tape) binary(kind arithmetic, a, b *Tensor) *Tensor {
	var shape [maxAxes]int
	rank := max(len(a.Shape), len(b.Shape))
	fits := rank <= maxAxes
	for i := 0; fits && i < rank; i++ {
		p, q := axis(a.Shape, rank, i), axis(b.Shape, rank, i)
		fits = p == q || p == 1 || q == 1
		shape[i] = p
		if p == 1 {
			shape[i] = q
		}
	}
	requireOf(fits, kind.String(), "a shape that is broadcast with", a.Shape, b.Shape...)
	o := record[binaryOp](t)
	o.kind, o.a, o.b = kind, a, b
	o.m = makeNest(shape[:rank], alongside(a.Shape, rank), alongside(b.Shape, rank))
	y := t.begin(o, shape[:rank]...)
	t.spread(kind.stretch(), &o.m, y.Data, a.Data, &o.m.a, b.Data, &o.m.b)
	return y
}

// axis returns the length of axis i of a shape extended to rank axes by leading axes of length 1.
func axis(shape []int, rank, i int) int {
	if i -= rank - len(shape); i >= 0 {
		return shape[i]
	}
	return 1
}

func (o *binaryOp) backward(t *Tape) {
	if o.a.needs {
		o.grad(t, o.a, &o.m.a, o.b, &o.m.b, 1)
	}
	if o.b.needs {
		sign := float32(1)
		if o.kind == subtraction {
			sign = -1
		}
		o.grad(t, o.b, &o.m.b, o.a, &o.m.a, sign)
	}
}

// grad adds to the gradient of x, which has strides s in the loops; other has strides so.
func (o *binaryOp) grad(t *Tape, x *Tensor, s *strides, other *Tensor, so *strides, sign float32) {
	dx := t.into(x)
	whole := len(x.Data) == len(o.y.Data) // no axis to sum over
	switch {
	case o.kind == multiplication && whole:
		t.spread(multiplyStretch, &o.m, dx, o.y.grad, &o.m.full, other.Data, so)
	case o.kind == multiplication:
		g := t.grads.take(len(o.y.Data))
		t.spread(multiplyStretch, &o.m, g, o.y.grad, &o.m.full, other.Data, so)
		t.fold(&o.m, s, dx, g, 1)
		t.grads.give(&g)
	case whole && sign == 1:
		copy(dx, o.y.grad)
	case whole:
		t.elementwise(negate, dx, o.y.grad, o.y.grad)
	default:
		t.fold(&o.m, s, dx, o.y.grad, sign)
	}
	t.merge(x, dx)
}

func negate(_ *simd.Kernels, dst, a, _ []float32) {
	for i, v := range a {
		dst[i] = -v
	}
}

func addStretch(k *simd.Kernels, dst, a, b []float32, sa, sb int) {
	n := len(dst)
	switch {
	case sa == 1 && sb == 1:
		k.AddTo(dst, a[:n], b[:n])
	case sa == 1:
		addScalar(dst, a[:n], b[0])
	case sb == 1:
		addScalar(dst, b[:n], a[0])
	default:
		fill(dst, a[0]+b[0])
	}
}

func addScalar(dst, x []float32, v float32) {
	for i, u := range x {
		dst[i] = u + v
	}
}

func subtractStretch(k *simd.Kernels, dst, a, b []float32, sa, sb int) {
	n := len(dst)
	switch {
	case sa == 1 && sb == 1:
		copy(dst, a[:n])
		k.Subtract(dst, b[:n])
	case sa == 1:
		addScalar(dst, a[:n], -b[0])
	case sb == 1:
		v := a[0]
		for i, u := range b[:n] {
			dst[i] = v - u
		}
	default:
		fill(dst, a[0]-b[0])
	}
}

func multiplyStretch(k *simd.Kernels, dst, a, b []float32, sa, sb int) {
	n := len(dst)
	switch {
	case sa == 1 && sb == 1:
		k.Combine(simd.ReduceProd, dst, a[:n], b[:n])
	case sa == 1:
		copy(dst, a[:n])
		k.Scale(dst, b[0])
	case sb == 1:
		copy(dst, b[:n])
		k.Scale(dst, a[0])
	default:
		fill(dst, a[0]*b[0])
	}
}

// copyStretch copies from a, with any stride, and ignores b.
func copyStretch(_ *simd.Kernels, dst, a, _ []float32, sa, _ int) {
	switch sa {
	case 0:
		fill(dst, a[0])
	case 1:
		copy(dst, a[:len(dst)])
	default:
		for i := range dst {
			dst[i] = a[i*sa]
		}
	}
}

type expandOp struct {
	unary
	m nest
}

// Broadcast repeats x along axes of one value, or along new leading axes, to the given shape of at
// most 8 axes.
func (t *Tape) Broadcast(x *Tensor, shape ...int) *Tensor {
	rank := len(shape)
	fits := rank <= maxAxes && len(x.Shape) <= rank
	for i := 0; fits && i < rank; i++ {
		d := axis(x.Shape, rank, i)
		fits = d == shape[i] || d == 1
	}
	requireOf(fits, "broadcast", "a shape to which is broadcast", x.Shape, shape...)
	o := record[expandOp](t)
	o.x, o.m = x, makeNest(shape, alongside(x.Shape, rank), strides{})
	y := t.begin(o, shape...)
	t.spread(copyStretch, &o.m, y.Data, x.Data, &o.m.a, nil, &o.m.b)
	return y
}

func (o *expandOp) backward(t *Tape) {
	dx := t.into(o.x)
	if len(dx) == len(o.y.grad) {
		copy(dx, o.y.grad)
	} else {
		t.fold(&o.m, &o.m.a, dx, o.y.grad, 1)
	}
	t.merge(o.x, dx)
}

type scaleOp struct {
	unary
	s float32
}

// Scale is s·x, elementwise, with a constant s.
func (t *Tape) Scale(x *Tensor, s float32) *Tensor {
	o := record[scaleOp](t)
	o.x, o.s = x, s
	y := t.begin(o, x.Shape...)
	t.pool.run(o, (len(y.Data)+valuesPart-1)/valuesPart)
	return y
}

func (o *scaleOp) part(w *worker, i int) {
	lo, hi := i*valuesPart, min((i+1)*valuesPart, len(o.y.Data))
	copy(o.y.Data[lo:hi], o.x.Data[lo:hi])
	w.k.Scale(o.y.Data[lo:hi], o.s)
}

func (o *scaleOp) backward(t *Tape) {
	t.k.Scale(o.y.grad, o.s)
	t.handOver(o.x, &o.y)
}

type parameterOp struct {
	output
	p *Param
}

func (o *parameterOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{}, [4]*Param{o.p} }

// Parameter returns a parameter as a tensor for any operation. The result shares its memory.
func (t *Tape) Parameter(p *Param) *Tensor {
	o := record[parameterOp](t)
	o.p = p
	o.y.Shape, o.y.Data = append(o.y.Shape[:0], p.Shape...), p.Data
	t.note(o)
	return &o.y
}

func (o *parameterOp) backward(t *Tape) {
	addPart(t, o.p, o.y.grad, 0)
}
