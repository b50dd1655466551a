package nn

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringo-ml/ringo/internal/simd"
)

const (
	normEpsilon  = 1e-5
	normMomentum = 0.1
	normPart     = 32 << 10 // minimum values of a part
	normParts    = 16       // maximum number of parts
)

// Norm is a normalisation layer: scale and offset, a value per channel each, and for batch
// normalisation the running statistics.
type Norm struct {
	Gamma, Beta *Param
	Mean, Var   *Buffer
}

// Ones sets every value of a parameter to 1.
func Ones(_ *rand.Rand, data []float32) {
	for i := range data {
		data[i] = 1
	}
}

// BatchNorm makes the layer name of a batch normalisation: gamma 1, beta 0,
// running mean 0 and variance 1.
func (ps *Params) BatchNorm(name string, channels int) Norm {
	return Norm{
		Gamma: ps.New(name+".weight", Ones, channels),
		Beta:  ps.New(name+".bias", Zeros, channels),
		Mean:  ps.NewBuffer(name+".running_mean", 0, channels),
		Var:   ps.NewBuffer(name+".running_var", 1, channels),
	}
}

func (l Norm) require(ok bool, op, need string, got ...int) {
	Layer{W: l.Gamma}.want(ok, op, need, got...)
}

type batchNormOp struct {
	x, r *Tensor
	l    Norm
	act  Activation
	output

	mean, inverse []float32 // per channel: the mean and 1/sqrt(variance + epsilon)

	s     *normScratch
	job   passJob[batchNormOp]
	parts int
	dx    []float32
}

// normScratch is the shared memory of a tape's batch normalisations.
type normScratch struct {
	p     simd.NormParams
	parts []float64 // per part: two sums for each place of the period
	sums  []float64 // two per channel
	plane []float32 // a value a channel
}

func (s *normScratch) resize(channels, parts int) {
	if n := 2 * parts * s.p.Period; cap(s.parts) < n {
		s.parts = make([]float64, n)
	}
	if cap(s.sums) < 2*channels {
		s.sums = make([]float64, 2*channels)
	}
	s.sums, s.plane = s.sums[:2*channels], sized(s.plane, channels)
}

// set sets one plane of the parameters, which has a value per channel, to f of each channel.
func (s *normScratch) set(plane int, f func(c int) float32) {
	for c := range s.plane {
		s.plane[c] = f(c)
	}
	s.p.Set(plane, s.plane)
}

func (o *batchNormOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x, o.r}, [4]*Param{o.l.Gamma, o.l.Beta}
}

// BatchNorm is act(gamma·(x - mean)/sqrt(variance + 1e-5) + beta + residual) of x, [..., channels],
// with a mean and a variance for each channel (S. Ioffe, C. Szegedy, 2015). Training uses the
// batch's mean and biased variance, over all of x but its last axis, and moves the running
// statistics by a tenth towards the mean and the unbiased variance. An evaluation uses the running
// statistics. residual, of x's shape, may be nil; act is Identity or ReLU.
//
// Forward reads x twice and writes the result once. Backward reads x and the result's gradient
// twice, and stores x's gradient in the memory of the latter, so that no further memory of x's size
// is needed.
func (t *Tape) BatchNorm(x *Tensor, l Norm, residual *Tensor, act Activation) *Tensor {
	o := record[batchNormOp](t)
	o.x, o.r, o.l, o.act = x, residual, l, act
	o.check()
	y := t.begin(o, x.Shape...)
	o.prepare(t)
	if t.eval {
		o.recall()
	} else {
		o.measure(t)
	}
	o.setParams(act == ReLU)
	o.run(t, batchNormApply)
	return y
}

func (o *batchNormOp) check() {
	const name = "batch norm"
	l, x := o.l, o.x
	c := len(l.Gamma.Data)
	l.require(len(l.Beta.Data) == c && len(l.Mean.Data) == c && len(l.Var.Data) == c, name, "as many values of each kind", c)
	l.require(len(x.Shape) > 0 && x.Shape[len(x.Shape)-1] == c && len(x.Data) > 0, name, "an input whose last axis is the layer's channels", x.Shape...)
	l.require(o.act == Identity || o.act == ReLU, name, "Identity or ReLU", int(o.act))
	if o.r != nil {
		l.require(slices.Equal(o.r.Shape, x.Shape), name, "a residual of the input's shape", o.r.Shape...)
	}
}

func (o *batchNormOp) channels() int { return len(o.l.Gamma.Data) }
func (o *batchNormOp) rows() int     { return len(o.x.Data) / o.channels() }

func (o *batchNormOp) prepare(t *Tape) {
	o.s = &t.norm
	o.mean, o.inverse = sized(o.mean, o.channels()), sized(o.inverse, o.channels())
	o.s.p.Resize(o.channels())
	o.parts = max(1, min(normParts, len(o.x.Data)/normPart, (len(o.x.Data)+o.s.p.Period-1)/o.s.p.Period))
	o.s.resize(o.channels(), o.parts)
}

// run calls pass for parts of x. The number of parts depends only on the shape, so that sums have
// the same bits for any number of threads.
func (o *batchNormOp) run(t *Tape, pass func(o *batchNormOp, w *worker, part, lo, hi int)) {
	o.job.run(t, o, pass, o.parts, len(o.x.Data), o.s.p.Period)
}

// partSums returns the sums of a part of the batch, cleared, and scratch memory of the worker.
func (o *batchNormOp) partSums(w *worker, part int) (sums []float64, acc []float32) {
	n := 2 * o.s.p.Period
	sums = o.s.parts[part*n : (part+1)*n]
	clear(sums)
	return sums, w.floats(0, n)
}

// fold adds up the sums of all parts: for each channel the first and the second sum.
func (o *batchNormOp) fold() (first, second []float64) {
	c, n := o.channels(), o.s.p.Period
	clear(o.s.sums)
	first, second = o.s.sums[:c], o.s.sums[c:]
	for part := range o.parts {
		of := o.s.parts[2*part*n : 2*(part+1)*n]
		for at := 0; at < n; at += c {
			for i := range c {
				first[i] += of[at+i]
				second[i] += of[n+at+i]
			}
		}
	}
	return first, second
}

// recall uses the running statistics instead of the batch's.
func (o *batchNormOp) recall() {
	copy(o.mean, o.l.Mean.Data)
	for c, v := range o.l.Var.Data {
		o.inverse[c] = float32(1 / math.Sqrt(float64(v)+normEpsilon))
	}
}

// measure computes the batch's statistics in one pass over x: sums of the distances from a guess of
// the mean, and of their squares. The variance is the mean square minus the square of the mean; if
// the guess is close, both differ enough for a precise result.
func (o *batchNormOp) measure(t *Tape) {
	guess := o.guess(t)
	o.s.p.Set(simd.NormMean, guess)
	o.run(t, batchNormSums)
	sums, squares := o.fold()
	n := float64(o.rows())
	for c, g := range guess {
		mean := sums[c] / n
		variance := max(0, squares[c]/n-float64(mean*mean))
		o.inverse[c] = float32(1 / math.Sqrt(variance+normEpsilon))
		o.mean[c] = float32(float64(g) + mean)
		if !t.pool.dry {
			moveRunning(&o.l.Mean.Data[c], float64(g)+mean)
			if n > 1 { // a single value has no variance
				moveRunning(&o.l.Var.Data[c], variance*n/(n-1))
			}
		}
	}
}

// moveRunning moves a running statistic a tenth of the way to the batch's value.
func moveRunning(of *float32, to float64) {
	*of = float32(float64((1-normMomentum)*float64(*of)) + float64(normMomentum*to))
}

// guess is the mean of sixteen rows from all over x.
func (o *batchNormOp) guess(t *Tape) []float32 {
	c, rows := o.channels(), o.rows()
	mean, n := o.s.plane, min(rows, 16)
	clear(mean)
	for i := range n {
		at := rows * i / n * c
		t.k.Add(mean, o.x.Data[at:at+c])
	}
	t.k.Scale(mean, 1/float32(n))
	return mean
}

// setParams sets the parameters of NormApply.
func (o *batchNormOp) setParams(relu bool) {
	s := o.s
	s.p.ReLU = relu
	s.p.Set(simd.NormMean, o.mean)
	s.set(simd.NormScale, func(c int) float32 { return o.l.Gamma.Data[c] * o.inverse[c] })
	s.p.Set(simd.NormOffset, o.l.Beta.Data)
}

func batchNormSums(o *batchNormOp, w *worker, part, lo, hi int) {
	sums, acc := o.partSums(w, part)
	w.k.NormSums(sums, acc, o.x.Data[lo:hi], &o.s.p)
}

func batchNormApply(o *batchNormOp, w *worker, _, lo, hi int) {
	var r []float32
	if o.r != nil {
		r = o.r.Data[lo:hi]
	}
	w.k.NormApply(o.y.Data[lo:hi], o.x.Data[lo:hi], r, &o.s.p)
}

func (o *batchNormOp) backward(t *Tape) {
	o.prepare(t)
	o.setParams(o.act == ReLU)
	o.run(t, batchNormGradSums)
	g, gd := o.fold()
	o.paramGrads(g, gd)
	if o.x.needs {
		o.inputGrad(t, g, gd)
	}
	if o.r != nil && o.r.needs {
		t.handOver(o.r, &o.y)
	}
}

// batchNormGradSums sums the gradient before the activation, and its products with x - mean. With a
// residual, the gradient is the residual's, and overwrites the result's.
func batchNormGradSums(o *batchNormOp, w *worker, part, lo, hi int) {
	sums, acc := o.partSums(w, part)
	var y []float32
	if o.r != nil && o.act == ReLU {
		y = o.y.Data[lo:hi]
	}
	w.k.NormGradSums(sums, acc, o.x.Data[lo:hi], o.y.grad[lo:hi], y, &o.s.p)
}

func (o *batchNormOp) paramGrads(g, gd []float64) {
	for _, p := range [2]*Param{o.l.Gamma, o.l.Beta} {
		if !p.touched {
			clear(p.Grad)
		}
	}
	for c := range g {
		o.l.Gamma.Grad[c] += float32(gd[c] * float64(o.inverse[c]))
		o.l.Beta.Grad[c] += float32(g[c])
	}
}

// inputGrad computes dx = scale·(g - mean of g - x̂·mean of g·x̂). It stores dx in the memory of
// the result's gradient, unless the residual needs that gradient.
func (o *batchNormOp) inputGrad(t *Tape, g, gd []float64) {
	n := float64(o.rows())
	o.s.set(simd.NormShift, func(c int) float32 { return float32(g[c] / n) })
	o.s.set(simd.NormSlope, func(c int) float32 {
		inverse := float64(o.inverse[c])
		return float32(float64(o.l.Gamma.Data[c]) * inverse * inverse * inverse * (gd[c] / n))
	})
	o.s.p.ReLU = o.act == ReLU && o.r == nil
	o.dx = o.y.grad
	if o.r != nil && o.r.needs {
		o.dx = t.into(o.x)
		o.run(t, batchNormGrad)
		t.merge(o.x, o.dx)
		return
	}
	o.run(t, batchNormGrad)
	t.handOver(o.x, &o.y)
}

func batchNormGrad(o *batchNormOp, w *worker, _, lo, hi int) {
	w.k.NormGrad(o.dx[lo:hi], o.y.grad[lo:hi], o.x.Data[lo:hi], &o.s.p)
}

// handOver adds y's gradient to x's. If x has no gradient yet, x gets the memory of y's.
func (t *Tape) handOver(x, y *Tensor) {
	if x.has {
		t.elementwise(addTo, x.grad, x.grad, y.grad)
		return
	}
	t.grads.give(&x.grad)
	x.grad, y.grad, x.has = y.grad, nil, true
}
