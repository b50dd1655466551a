package nn

type layerNormOp struct {
	x *Tensor
	l Norm
	y Tensor

	stats []float32 // per row: the mean and 1/sqrt(variance + epsilon)
	pass  func(o *layerNormOp, w *worker, part, lo, hi int)
	parts int
	sums  []float32 // per part: gradients of gamma, then of beta
}

func (o *layerNormOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x}, [4]*Param{o.l.Gamma, o.l.Beta}
}
func (o *layerNormOp) result() *Tensor { return &o.y }

// LayerNorm makes the layer name of a layer normalisation: gamma 1, beta 0. It has no running
// statistics.
func (ps *Params) LayerNorm(name string, dim int) Norm {
	return Norm{Gamma: ps.New(name+".weight", Ones, dim), Beta: ps.New(name+".bias", Zeros, dim)}
}

// LayerNorm is gamma·(x - mean)/sqrt(variance + 1e-5) + beta of each row of x, [..., dim], with the
// row's mean and biased variance (J. Ba and others, 2016). Backward overwrites the result's
// gradient with x's. Rows of a multiple of 16 values use vectors.
func (t *Tape) LayerNorm(x *Tensor, l Norm) *Tensor {
	const name = "layer norm"
	d := len(l.Gamma.Data)
	l.require(len(l.Beta.Data) == d, name, "as many values of each kind", d)
	l.require(len(x.Shape) > 0 && x.Shape[len(x.Shape)-1] == d && len(x.Data) > 0, name, "an input whose last axis is the layer's", x.Shape...)
	o := record[layerNormOp](t)
	o.x, o.l = x, l
	y := t.begin(o, x.Shape...)
	rows := len(x.Data) / d
	o.stats = sized(o.stats, 2*rows)
	o.run(t, min(rows, t.pool.cutValues(len(x.Data))), func(o *layerNormOp, w *worker, _, lo, hi int) {
		w.k.LayerNorm(o.rows(o.y.Data, lo, hi), o.rows(o.x.Data, lo, hi), o.l.Gamma.Data, o.l.Beta.Data, o.stats[2*lo:2*hi], normEpsilon)
	})
	return y
}

func (o *layerNormOp) rows(data []float32, lo, hi int) []float32 {
	d := len(o.l.Gamma.Data)
	return data[lo*d : hi*d]
}

// run cuts the rows into parts.
func (o *layerNormOp) run(t *Tape, parts int, pass func(o *layerNormOp, w *worker, part, lo, hi int)) {
	o.pass, o.parts = pass, parts
	t.pool.run(o, o.parts)
}

func (o *layerNormOp) part(w *worker, i int) {
	rows := len(o.stats) / 2
	o.pass(o, w, i, rows*i/o.parts, rows*(i+1)/o.parts)
}

func (o *layerNormOp) backward(t *Tape) {
	d := len(o.l.Gamma.Data)
	parts := max(1, min(normParts, len(o.x.Data)/normPart, len(o.stats)/2)) // parts of sums depend on the shape only
	o.sums = t.grads.take(2 * d * parts)
	clear(o.sums)
	o.run(t, parts, func(o *layerNormOp, w *worker, part, lo, hi int) {
		d := len(o.l.Gamma.Data)
		sums, dy := o.sums[2*d*part:2*d*(part+1)], o.rows(o.y.grad, lo, hi)
		w.k.LayerNormGrad(dy, sums[:d], sums[d:], dy, o.rows(o.x.Data, lo, hi), o.l.Gamma.Data, o.stats[2*lo:2*hi])
	})
	for i := range parts {
		sums := o.sums[2*d*i : 2*d*(i+1)]
		addPart(t, o.l.Gamma, sums[:d], i)
		addPart(t, o.l.Beta, sums[d:], i)
	}
	t.grads.give(&o.sums)
	if o.x.needs {
		t.handOver(o.x, &o.y)
	}
}
