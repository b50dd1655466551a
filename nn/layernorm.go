package nn

type layerNormOp struct {
	output
	x *Tensor
	l Norm

	stats []float32 // per row: the mean and 1/sqrt(variance + epsilon)
	job   passJob[layerNormOp]
	sums  []float32 // per part: gradients of gamma, then of beta
}

func (o *layerNormOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x}, [4]*Param{o.l.Gamma, o.l.Beta}
}

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
	o.job.run(t, o, func(o *layerNormOp, w *worker, _, lo, hi int) {
		w.k.LayerNorm(o.rows(o.y.Data, lo, hi), o.rows(o.x.Data, lo, hi), o.l.Gamma.Data, o.l.Beta.Data, o.stats[2*lo:2*hi], normEpsilon)
	}, t.pool.cutValues(len(x.Data)), rows, 1)
	return y
}

func (o *layerNormOp) rows(data []float32, lo, hi int) []float32 {
	d := len(o.l.Gamma.Data)
	return data[lo*d : hi*d]
}

func (o *layerNormOp) backward(t *Tape) {
	d, rows := len(o.l.Gamma.Data), len(o.stats)/2
	parts := max(1, min(normParts, len(o.x.Data)/normPart, rows)) // parts of sums depend on the shape only
	o.sums = t.grads.take(2 * d * parts)
	clear(o.sums)
	o.job.run(t, o, func(o *layerNormOp, w *worker, part, lo, hi int) {
		d := len(o.l.Gamma.Data)
		sums, dy := o.sums[2*d*part:2*d*(part+1)], o.rows(o.y.grad, lo, hi)
		w.k.LayerNormGrad(dy, sums[:d], sums[d:], dy, o.rows(o.x.Data, lo, hi), o.l.Gamma.Data, o.stats[2*lo:2*hi])
	}, parts, rows, 1)
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
