package nn

import (
	"fmt"
	"slices"
)

// MatMul selects the operands of a product that are transposed.
type MatMul struct {
	// TransposeA: a is [..., k, m] and not [..., m, k].
	TransposeA bool
	// TransposeB: b is [..., n, k] and not [..., k, n].
	TransposeB bool
}

type matMulOp struct {
	binary
	cfg MatMul

	batch, m, n, k int
	job            productJob
}

// MatMul is the product of two activations, or of their transposes: [..., m, k] times [..., k, n]
// is [..., m, n]. The axes before the last two are a batch, equal in both or missing in one, which
// is then a factor of every product. Cost: 2·batch·m·n·k operations forward, and for each gradient.
func (t *Tape) MatMul(a, b *Tensor, cfg MatMul) *Tensor {
	o := record[matMulOp](t)
	o.a, o.b, o.cfg = a, b, cfg
	shape, rank := o.fit()
	y := t.begin(o, shape[:rank]...)
	o.job = productJob{a: o.factor(o.a), b: o.factor(o.b), m: o.m, n: o.n, k: o.k}
	o.job.a.transposed, o.job.b.transposed = cfg.TransposeA, cfg.TransposeB
	o.multiply(t, y.Data, o.batch, 1)
	return y
}

// fit returns the shape of the result, or panics if the operands do not fit.
func (o *matMulOp) fit() (shape [maxAxes]int, rank int) {
	a, b := o.a.Shape, o.b.Shape
	if len(a) < 2 || len(b) < 2 || len(a) > maxAxes || len(b) > maxAxes {
		o.refuse("two matrices or batches of them, of 2 to 8 axes, beside")
	}
	m, k := matrixOf(a, o.cfg.TransposeA)
	k2, n := matrixOf(b, o.cfg.TransposeB)
	if k != k2 || m*n*k == 0 {
		o.refuse("a second factor with as many rows as the first has columns, one at least, of")
	}
	batch := a[:len(a)-2]
	switch {
	case len(a) == 2:
		batch = b[:len(b)-2]
	case len(b) > 2 && !slices.Equal(batch, b[:len(b)-2]):
		o.refuse("a batch as of")
	}
	o.batch, o.m, o.n, o.k = volume(batch), m, n, k
	if len(b) == 2 && !o.cfg.TransposeA { // a single product of many rows
		o.batch, o.m = 1, o.batch*m
	}
	rank = copy(shape[:], batch) + 2
	shape[rank-2], shape[rank-1] = m, n
	return shape, rank
}

func (o *matMulOp) refuse(need string) {
	panic(&ShapeError{
		Op:       "matmul",
		Required: fmt.Sprintf("%s %v (transposed: %v and %v)", need, o.a.Shape, o.cfg.TransposeA, o.cfg.TransposeB),
		Got:      slices.Clone(o.b.Shape),
	})
}

// matrixOf returns the rows and columns of a factor, from the last two axes of its shape.
func matrixOf(shape []int, transposed bool) (rows, columns int) {
	rows, columns = shape[len(shape)-2], shape[len(shape)-1]
	if transposed {
		return columns, rows
	}
	return rows, columns
}

// factor is an operand of products: matrices at a distance of step values, 0 for a single matrix.
type factor struct {
	data       []float32
	step       int
	transposed bool
}

func (o *matMulOp) factor(x *Tensor) factor {
	f := factor{data: x.Data}
	if len(x.Data) != 0 && o.batch > 1 && len(x.Shape) > 2 {
		f.step = len(x.Data) / o.batch
	}
	return f
}

// productJob computes matrices of dst, each the sum of products of m by k and k by n. With fewer
// matrices than threads need, rows are cut at multiples of 16: every value is the same sum in the
// same order for any cut.
type productJob struct {
	dst     []float32
	a, b    factor
	m, n, k int
	terms   int // products added in each matrix
	splits  int
}

// multiply computes matrices of dst, each with terms terms.
func (o *matMulOp) multiply(t *Tape, dst []float32, matrices, terms int) {
	j := &o.job
	j.dst, j.terms, j.splits = dst, terms, 1
	if threads := t.pool.threads(); matrices < 4*threads {
		j.splits = max(1, min(threads, (j.m+lineValues-1)/lineValues))
	}
	t.pool.run(j, matrices*j.splits)
	*j = productJob{}
}

func (j *productJob) part(w *worker, i int) {
	matrix, split := i/j.splits, i%j.splits
	lines := (j.m + lineValues - 1) / lineValues
	lo, hi := lines*split/j.splits*lineValues, min(j.m, lines*(split+1)/j.splits*lineValues)
	lda, at := j.k, lo*j.k
	if j.a.transposed {
		lda, at = j.m, lo
	}
	ldb := j.n
	if j.b.transposed {
		ldb = j.k
	}
	c := j.dst[(matrix*j.m+lo)*j.n:]
	for term := range j.terms {
		p := matrix*j.terms + term
		w.k.Gemm(&w.gemm, j.a.transposed, j.b.transposed, hi-lo, j.n, j.k, j.a.data[p*j.a.step+at:], lda, j.b.data[p*j.b.step:], ldb, term > 0, c, j.n)
	}
}

func (o *matMulOp) backward(t *Tape) {
	dy := factor{data: o.y.grad, step: o.m * o.n}
	a, b := o.factor(o.a), o.factor(o.b)
	if o.a.needs {
		if b.transposed = !o.cfg.TransposeB; !o.cfg.TransposeA { // dy · bᵀ
			o.job = productJob{a: dy, b: b, m: o.m, n: o.k, k: o.n}
		} else { // b · dyᵀ
			b.transposed = o.cfg.TransposeB
			o.job = productJob{a: b, b: dy.transpose(), m: o.k, n: o.m, k: o.n}
		}
		o.gradient(t, o.a)
	}
	if o.b.needs {
		if a.transposed = !o.cfg.TransposeA; !o.cfg.TransposeB { // aᵀ · dy
			o.job = productJob{a: a, b: dy, m: o.k, n: o.n, k: o.m}
		} else { // dyᵀ · a
			a.transposed = o.cfg.TransposeA
			o.job = productJob{a: dy.transpose(), b: a, m: o.n, n: o.k, k: o.m}
		}
		o.gradient(t, o.b)
	}
}

func (f factor) transpose() factor {
	f.transposed = !f.transposed
	return f
}

// gradient adds the job's products to x's gradient: one product per matrix, or their sum if x is a
// single matrix.
func (o *matMulOp) gradient(t *Tape, x *Tensor) {
	matrices, terms := o.batch, 1
	if len(x.Shape) == 2 {
		matrices, terms = 1, o.batch
	}
	dx := t.into(x)
	o.multiply(t, dx, matrices, terms)
	t.merge(x, dx)
}
