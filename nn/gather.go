package nn

import "fmt"

type gatherOp struct {
	unary
	ids []int32
	dim int
	dx  []float32
	job passJob[gatherOp]
}

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
	o.job.each(t, o, (*gatherOp).lookUp, len(ids), gatherRows)
	return y
}

func (o *gatherOp) lookUp(w *worker, _, lo, hi int) {
	w.k.Lookup(o.y.Data[lo*o.dim:hi*o.dim], o.x.Data, o.ids[lo:hi], o.dim)
}

func (o *gatherOp) backward(t *Tape) {
	if !o.x.has {
		dx := t.into(o.x)
		clear(dx)
		t.merge(o.x, dx)
	}
	o.dx = o.x.grad
	o.job.each(t, o, (*gatherOp).scatter, o.dim, scatterColumns)
}

// scatter adds columns, in the order of rows.
func (o *gatherOp) scatter(w *worker, _, lo, hi int) {
	for r, id := range o.ids {
		w.k.Add(o.dx[int(id)*o.dim+lo:int(id)*o.dim+hi], o.y.grad[r*o.dim+lo:r*o.dim+hi])
	}
}

type transposeOp struct {
	unary
	from    [maxAxes]int
	target  nest // over the result, with x alongside
	andBack nest // over x, with the result alongside
}

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
		requireOf(fits, "transpose", "all axes, each once, of", x.Shape, axes...)
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

// IndexError reports an id that is not a row of an embedding, or of Gather's operand.
type IndexError struct {
	Name string // the embedding's parameter, or "gather"
	At   int    // index of the id in the argument
	ID   int32
	Rows int
}

// Error returns a single line.
func (e *IndexError) Error() string {
	return fmt.Sprintf("nn: %s: id %d of the batch is %d: want 0 to %d", e.Name, e.At, e.ID, e.Rows-1)
}

func checkIDs(name string, ids []int32, rows int) {
	for i, id := range ids {
		if id < 0 || int(id) >= rows {
			panic(&IndexError{Name: name, At: i, ID: id, Rows: rows})
		}
	}
}

// embeddingOp looks up rows of a dense parameter.
type embeddingOp struct {
	output
	ids []int32
	p   *Param
	job passJob[embeddingOp]
}

func (o *embeddingOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{}, [4]*Param{o.p} }

// Embedding returns the rows ids of p, [rows, dim]: the result is [len(ids), dim]. The caller must
// not change ids before Backward ends. The gradient is dense: clearing it costs O(rows·dim) a step.
// It panics with an *IndexError if an id is not a row.
func (t *Tape) Embedding(ids []int32, p *Param) *Tensor {
	Layer{W: p}.want(len(p.Shape) == 2, "embedding", "a parameter [rows, dim]", p.Shape...)
	Layer{W: p}.want(len(ids) > 0, "embedding", "at least one id", len(ids))
	checkIDs(p.Name, ids, p.Shape[0])
	o := record[embeddingOp](t)
	o.ids, o.p = ids, p
	y := t.begin(o, len(ids), p.Shape[1])
	o.job.each(t, o, (*embeddingOp).gather, len(ids), gatherRows)
	return y
}

// gatherRows is the number of ids in a part.
const gatherRows = 64

func (o *embeddingOp) gather(w *worker, _, lo, hi int) {
	dim := o.p.Shape[1]
	w.k.Lookup(o.y.Data[lo*dim:hi*dim], o.p.Data, o.ids[lo:hi], dim)
}

// scatterColumns is the number of columns in a part of backward. All rows of a column are in one
// part, so that they are added in order.
const scatterColumns = 128

func (o *embeddingOp) backward(t *Tape) {
	if !o.p.touched {
		t.elementwise(zeros, o.p.Grad, o.p.Grad, o.p.Grad)
	}
	o.job.each(t, o, (*embeddingOp).scatter, o.p.Shape[1], scatterColumns)
}

func (o *embeddingOp) scatter(w *worker, _, lo, hi int) {
	dim := o.p.Shape[1]
	for r, id := range o.ids {
		w.k.Add(o.p.Grad[int(id)*dim+lo:int(id)*dim+hi], o.y.grad[r*dim+lo:r*dim+hi])
	}
}
