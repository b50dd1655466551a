package nn

type maxPoolOp struct {
	x    *Tensor
	act  Activation
	y    Tensor
	from []uint8 // which value of its window each output was, see simd

	pass  func(o *maxPoolOp, w *worker, lo, hi int)
	parts int
	dx    []float32
}

func (o *maxPoolOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }
func (o *maxPoolOp) result() *Tensor                   { return &o.y }

// MaxPool2 is act of the maximum of each 2x2 window of x, [n, c, h, w], without
// overlap: the result is [n, c, h/2, w/2]. An odd last row or column is left
// out. The gradient goes to the first maximum of a window in row-major order.
//
// A ReLU belongs here rather than before: the result is the same at a quarter
// of the work.
func (t *Tape) MaxPool2(x *Tensor, act Activation) *Tensor {
	want(len(x.Shape) == 4 && x.Shape[0] > 0, "max-pool", "an input [n, c, h, w], n > 0", x.Shape...)
	o := record[maxPoolOp](t)
	o.x, o.act = x, act
	y := t.begin(o, x.Shape[0], x.Shape[1], x.Shape[2]/2, x.Shape[3]/2)
	o.from = sizedBytes(o.from, y.Len())
	o.run(t, maxPoolForward)
	return y
}

func (o *maxPoolOp) run(t *Tape, pass func(o *maxPoolOp, w *worker, lo, hi int)) {
	o.pass, o.parts = pass, min(o.x.Shape[0], t.pool.threads())
	t.pool.run(o, o.parts)
}

// part computes a share of the samples.
func (o *maxPoolOp) part(w *worker, i int) {
	n := o.x.Shape[0]
	o.pass(o, w, n*i/o.parts, n*(i+1)/o.parts)
}

// sizes returns the values per sample of x and of y, and the channels.
func (o *maxPoolOp) sizes() (in, out, channels int) {
	s := o.x.Shape
	return s[1] * s[2] * s[3], s[1] * (s[2] / 2) * (s[3] / 2), s[1]
}

func maxPoolForward(o *maxPoolOp, w *worker, lo, hi int) {
	in, out, c := o.sizes()
	w.k.MaxPool2(o.y.Data[lo*out:hi*out], o.from[lo*out:hi*out], o.x.Data[lo*in:hi*in], (hi-lo)*c, o.x.Shape[2], o.x.Shape[3], o.act == ReLU)
}

func (o *maxPoolOp) backward(t *Tape) {
	o.dx = t.into(o.x)
	o.run(t, maxPoolBackward)
	t.merge(o.x, o.dx)
}

func maxPoolBackward(o *maxPoolOp, w *worker, lo, hi int) {
	in, out, c := o.sizes()
	w.k.MaxPool2Grad(o.dx[lo*in:hi*in], o.y.grad[lo*out:hi*out], o.from[lo*out:hi*out], (hi-lo)*c, o.x.Shape[2], o.x.Shape[3])
}

func sizedBytes(buf []uint8, n int) []uint8 {
	if cap(buf) >= n {
		return buf[:n]
	}
	return make([]uint8, n)
}
