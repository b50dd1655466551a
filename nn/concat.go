package nn

// rowsJob copies rows of cols values, lds apart in src and ldd apart in dst, or adds them.
type rowsJob struct {
	dst, src   []float32
	ldd, lds   int
	rows, cols int
	add        bool

	blocks int // blocks of columns per row
	span   int // rows of a part
}

// copyRows runs j on all threads.
func (t *Tape) copyRows(j rowsJob) {
	if j.rows == 0 || j.cols == 0 {
		return
	}
	j.blocks = (j.cols + valuesPart - 1) / valuesPart
	j.span = max(1, valuesPart/j.cols)
	t.rows = j
	t.pool.run(&t.rows, (j.rows+j.span-1)/j.span*j.blocks)
	t.rows = rowsJob{}
}

func (j *rowsJob) part(w *worker, i int) {
	row, block := i/j.blocks*j.span, i%j.blocks
	n := min(j.span, j.rows-row)
	lo, hi := j.cols*block/j.blocks, j.cols*(block+1)/j.blocks
	dst, src := j.dst[row*j.ldd+lo:], j.src[row*j.lds+lo:]
	if j.add {
		w.k.AddToRows(dst, j.ldd, src, j.lds, n, hi-lo)
	} else {
		w.k.CopyRows(dst, j.ldd, src, j.lds, n, hi-lo)
	}
}

// around returns the number of indices before an axis, and of values per index of the axis.
func around(shape []int, axis int) (before, each int) {
	before, each = 1, 1
	for i, d := range shape {
		switch {
		case i < axis:
			before *= d
		case i > axis:
			each *= d
		}
	}
	return before, each
}

// axisOf is an axis of shape; negative axes count from the last, -1.
func axisOf(name string, shape []int, axis int) int {
	i := axis
	if i < 0 {
		i += len(shape)
	}
	requireOf(i >= 0 && i < len(shape), name, "an axis of", shape, axis)
	return i
}

type concatOp struct {
	output
	xs   []*Tensor
	axis int
}

func (o *concatOp) operands() ([4]*Tensor, [4]*Param)  { return [4]*Tensor{}, [4]*Param{} }
func (o *concatOp) allOperands() ([]*Tensor, []*Param) { return o.xs, nil }

// Concat joins tensors along an axis; their shapes are equal except for that axis. A negative axis
// counts from the last, -1. Values are copied once forward and once backward.
func (t *Tape) Concat(axis int, xs ...*Tensor) *Tensor {
	const name = "concat"
	require(len(xs) > 0 && len(xs[0].Shape) <= maxAxes, name, "one tensor at least, of at most 8 axes", len(xs))
	var shape [maxAxes]int
	rank := copy(shape[:], xs[0].Shape)
	axis = axisOf(name, xs[0].Shape, axis)
	for _, x := range xs[1:] {
		fits := len(x.Shape) == rank
		for i := 0; fits && i < rank; i++ {
			fits = i == axis || x.Shape[i] == shape[i]
		}
		requireOf(fits, name, "but for one axis, the shape", xs[0].Shape, x.Shape...)
		shape[axis] += x.Shape[axis]
	}
	o := record[concatOp](t)
	o.xs, o.axis = append(o.xs[:0], xs...), axis
	y := t.begin(o, shape[:rank]...)
	at := 0
	for _, x := range o.xs {
		at = o.copy(t, x, at, x.Data, y.Data, false)
	}
	return y
}

// copy copies x's part of the result to x or back, and returns the beginning of the next part. at
// is the beginning within each run.
func (o *concatOp) copy(t *Tape, x *Tensor, at int, part, whole []float32, back bool) (next int) {
	before, each := around(o.y.Shape, o.axis)
	cols, ld := each*x.Shape[o.axis], each*o.y.Shape[o.axis]
	j := rowsJob{dst: whole[min(at, len(whole)):], ldd: ld, src: part, lds: cols, rows: before, cols: cols}
	if back {
		j.dst, j.src, j.ldd, j.lds = part, j.dst, cols, ld
	}
	t.copyRows(j)
	return at + cols
}

func (o *concatOp) backward(t *Tape) {
	at := 0
	_, each := around(o.y.Shape, o.axis)
	for _, x := range o.xs {
		if x.needs {
			dx := t.into(x)
			o.copy(t, x, at, dx, o.y.grad, true)
			t.merge(x, dx)
		}
		at += each * x.Shape[o.axis]
	}
}

type sliceOp struct {
	unary
	axis, lo, hi int
}

// Slice copies x from index lo to hi-1 of an axis. A negative axis counts from the last, -1.
// Backward writes a gradient of x's size for the first slice of x, and adds other slices'.
func (t *Tape) Slice(x *Tensor, axis, lo, hi int) *Tensor {
	const name = "slice"
	require(len(x.Shape) <= maxAxes, name, "at most 8 axes", x.Shape...)
	axis = axisOf(name, x.Shape, axis)
	requireOf(0 <= lo && lo <= hi && hi <= x.Shape[axis], name, "bounds, the lower first, of one axis of", x.Shape, axis, lo, hi)
	var shape [maxAxes]int
	rank := copy(shape[:], x.Shape)
	shape[axis] = hi - lo
	o := record[sliceOp](t)
	o.x, o.axis, o.lo, o.hi = x, axis, lo, hi
	y := t.begin(o, shape[:rank]...)
	j := o.rows()
	j.dst, j.src = y.Data, x.Data[o.first():]
	t.copyRows(j)
	return y
}

func (o *sliceOp) first() int {
	_, each := around(o.x.Shape, o.axis)
	return min(each*o.lo, len(o.x.Data))
}

// rows returns the layout of the result's rows in x.
func (o *sliceOp) rows() rowsJob {
	before, each := around(o.x.Shape, o.axis)
	cols := each * (o.hi - o.lo)
	return rowsJob{ldd: cols, lds: each * o.x.Shape[o.axis], rows: before, cols: cols}
}

func (o *sliceOp) backward(t *Tape) {
	if !o.x.has {
		dx := t.into(o.x)
		clear(dx)
		t.merge(o.x, dx)
	}
	j := o.rows()
	j.ldd, j.lds = j.lds, j.ldd
	j.dst, j.src, j.add = o.x.grad[o.first():], o.y.grad, true
	t.copyRows(j)
}
