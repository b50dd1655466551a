package nn

type gatherOp struct {
	x    *Tensor
	ids  []int32
	dim  int
	y    Tensor
	dx   []float32
	pass func(o *gatherOp, w *worker, i int)
}

func (o *gatherOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }
func (o *gatherOp) result() *Tensor                   { return &o.y }

// Gather returns the entries ids of x's first axis: x is [rows, ...], the result [len(ids), ...].
// An id may occur repeatedly; its gradients are added in order. The caller must not change ids
// before Backward ends. It panics with an *IndexError if an id is not a row. To take one value of
// each row of [rows, cols], reshape it to [rows*cols, 1] and gather row*cols + col.
func (t *Tape) Gather(x *Tensor, ids []int32) *Tensor {
	const name = "gather"
	require(len(x.Shape) > 0 && len(x.Shape) <= maxAxes, name, "rows, [rows, ...], of at most 8 axes", x.Shape...)
	require(len(ids) > 0, name, "at least one id", len(ids))
	checkIDs(name, ids, x.Shape[0])
	var shape [maxAxes]int
	rank := copy(shape[:], x.Shape)
	shape[0] = len(ids)
	o := record[gatherOp](t)
	o.x, o.ids, o.dim = x, ids, len(x.Data)/x.Shape[0]
	y := t.begin(o, shape[:rank]...)
	o.pass = (*gatherOp).lookUp
	t.pool.run(o, (len(ids)+gatherRows-1)/gatherRows)
	return y
}

func (o *gatherOp) part(w *worker, i int) { o.pass(o, w, i) }

func (o *gatherOp) lookUp(w *worker, i int) {
	lo, hi := i*gatherRows, min((i+1)*gatherRows, len(o.ids))
	w.k.Lookup(o.y.Data[lo*o.dim:hi*o.dim], o.x.Data, o.ids[lo:hi], o.dim)
}

func (o *gatherOp) backward(t *Tape) {
	if !o.x.has {
		dx := t.into(o.x)
		clear(dx)
		t.merge(o.x, dx)
	}
	o.dx, o.pass = o.x.grad, (*gatherOp).scatter
	t.pool.run(o, (o.dim+scatterColumns-1)/scatterColumns)
}

// scatter adds columns, in the order of rows.
func (o *gatherOp) scatter(w *worker, i int) {
	lo, hi := i*scatterColumns, min((i+1)*scatterColumns, o.dim)
	for r, id := range o.ids {
		w.k.Add(o.dx[int(id)*o.dim+lo:int(id)*o.dim+hi], o.y.grad[r*o.dim+lo:r*o.dim+hi])
	}
}

type transposeOp struct {
	x       *Tensor
	y       Tensor
	from    [maxAxes]int
	target  nest // over the result, with x alongside
	andBack nest // over x, with the result alongside
}

func (o *transposeOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }
func (o *transposeOp) result() *Tensor                   { return &o.y }

// Transpose returns x with permuted axes: axis i of the result is axis axes[i] of x. Without axes
// the order is reversed. x has at most 8 axes.
func (t *Tape) Transpose(x *Tensor, axes ...int) *Tensor {
	rank := len(x.Shape)
	require(rank <= maxAxes, "transpose", "at most 8 axes", x.Shape...)
	var from, shape [maxAxes]int
	var seen [maxAxes]bool
	for i := range rank {
		from[i] = rank - 1 - i
	}
	if len(axes) > 0 {
		fits := len(axes) == rank
		for i := 0; fits && i < rank; i++ {
			a := axes[i]
			fits = a >= 0 && a < rank && !seen[a]
			if fits {
				from[i], seen[a] = a, true
			}
		}
		if !fits {
			panic(&ShapeError{Op: "transpose", Required: shapeText("all axes, each once, of", x.Shape), Got: append([]int(nil), axes...)})
		}
	}
	for i, a := range from[:rank] {
		shape[i] = x.Shape[a]
	}
	var inX, inY strides
	sx, sy := alongside(x.Shape, rank), alongside(shape[:rank], rank)
	for i, a := range from[:rank] {
		inX[i], inY[a] = sx[a], sy[i]
	}
	o := record[transposeOp](t)
	o.from = from
	o.x = x
	o.target, o.andBack = makeNest(shape[:rank], inX, strides{}), makeNest(x.Shape, inY, strides{})
	y := t.begin(o, shape[:rank]...)
	t.spread(copyStretch, &o.target, y.Data, x.Data, &o.target.a, nil, &o.target.b)
	return y
}

func (o *transposeOp) backward(t *Tape) {
	dx := t.into(o.x)
	t.spread(copyStretch, &o.andBack, dx, o.y.grad, &o.andBack.a, nil, &o.andBack.b)
	t.merge(o.x, dx)
}
