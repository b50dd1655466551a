package nn

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

type groupNormOp struct {
	output
	x      *Tensor
	l      Norm
	groups int

	stats []float32 // mean and 1/sqrt(variance + epsilon), by sample and group
	sums  []float64 // backward, by sample: channels' gradients of beta, then of gamma
	job   passJob[groupNormOp]
}

// groupScratch is a thread's working memory for a sample.
type groupScratch struct {
	p        simd.NormParams
	sums     []float64 // two for each place of the period
	channels []float32
}

// resize makes space for a number of channels.
func (g *groupScratch) resize(channels int) {
	g.p.Resize(channels)
	g.room(2*g.p.Period, channels)
}

// match makes g's memory as large as o's, so that a later step needs no allocation.
func (g *groupScratch) match(o *groupScratch) {
	if cap(g.p.Values) < cap(o.p.Values) {
		g.p.Values = make([]float32, cap(o.p.Values))
	}
	g.room(cap(o.sums), cap(o.channels))
}

// room allocates exactly this much, because threads that match each other's memory would otherwise
// grow it again and again.
func (g *groupScratch) room(sums, channels int) {
	if cap(g.sums) < sums {
		g.sums = make([]float64, sums)
	}
	g.sums, g.channels = g.sums[:sums], sized(g.channels, channels)
}

// set fills one plane, a value per channel, with f of each channel.
func (g *groupScratch) set(plane int, f func(c int) float32) {
	for c := range g.channels {
		g.channels[c] = f(c)
	}
	g.p.Set(plane, g.channels)
}

// fold adds up the places of the period: the first and the second sum of each channel.
func (g *groupScratch) fold() (first, second []float64) {
	c, n := len(g.channels), g.p.Period
	first, second = g.sums[:c], g.sums[n:n+c]
	for at := c; at < n; at += c {
		for i := range c {
			first[i] += g.sums[at+i]
			second[i] += g.sums[n+at+i]
		}
	}
	return first, second
}

func (o *groupNormOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x}, [4]*Param{o.l.Gamma, o.l.Beta}
}

// GroupNorm is gamma·(x - mean)/sqrt(variance + 1e-5) + beta of x, [n, ..., channels], with the
// mean and biased variance of a group of adjacent channels of one sample, over all its places (Y.
// Wu, K. He 2018). It is equal in training and evaluation, for any batch. Params.LayerNorm creates
// its layers. Threads divide the work by sample. Backward stores x's gradient in the memory of the
// result's gradient.
func (t *Tape) GroupNorm(x *Tensor, l Norm, groups int) *Tensor {
	const name = "group norm"
	c := len(l.Gamma.Data)
	l.require(len(l.Beta.Data) == c, name, "as many values of each kind", c)
	if groups < 1 || c%groups != 0 {
		panic(&ShapeError{Op: name + " " + l.Gamma.Name, Required: fmt.Sprintf("a number of groups that divides %d channels", c), Got: []int{groups}})
	}
	l.require(len(x.Shape) > 1 && x.Shape[len(x.Shape)-1] == c && len(x.Data) > 0, name, "an input [n, ..., channels] of the layer's channels", x.Shape...)
	o := record[groupNormOp](t)
	o.x, o.l, o.groups = x, l, groups
	y := t.begin(o, x.Shape...)
	o.stats = sized(o.stats, 2*x.Shape[0]*groups)
	o.job.each(t, o, groupNormForward, x.Shape[0], 1)
	return y
}

// width is the number of channels of a group.
func (o *groupNormOp) width() int { return len(o.l.Gamma.Data) / o.groups }

func (o *groupNormOp) sample(data []float32, s int) []float32 { return sampleOf(data, o.x, s) }
func (o *groupNormOp) count() float64 {
	return float64(len(o.x.Data) / o.x.Shape[0] / o.groups)
}

// of returns the statistics of sample s's groups.
func (o *groupNormOp) of(s int) []float32 { return o.stats[2*s*o.groups : 2*(s+1)*o.groups] }

// measure computes, for each group of sample s, the sum and the sum of squares of x minus the
// present mean.
func (o *groupNormOp) measure(w *worker, s int, f func(group int, sum, squares float64)) {
	g := &w.group
	clear(g.sums)
	w.k.NormSums(g.sums, w.floats(0, 2*g.p.Period), o.sample(o.x.Data, s), &g.p)
	first, second := g.fold()
	width := o.width()
	for i := range o.groups {
		sum, squares := 0.0, 0.0
		for c := i * width; c < (i+1)*width; c++ {
			sum += first[c]
			squares += second[c]
		}
		f(i, sum, squares)
	}
}

// groupNormForward reads a sample three times, mostly from the caches: for the means, for the
// variances about the means, and to apply both.
func groupNormForward(o *groupNormOp, w *worker, s, _, _ int) {
	g, stats, n := &w.group, o.of(s), o.count()
	g.resize(len(o.l.Gamma.Data))
	g.set(simd.NormMean, func(int) float32 { return 0 })
	o.measure(w, s, func(i int, sum, _ float64) { stats[2*i] = float32(sum / n) })
	o.setMean(g, stats)
	o.measure(w, s, func(i int, sum, squares float64) {
		off := sum / n // error of the rounded mean
		stats[2*i+1] = float32(1 / math.Sqrt(max(0, squares/n-float64(off*off))+normEpsilon))
	})
	o.setAffine(g, stats)
	w.k.NormApply(o.sample(o.y.Data, s), o.sample(o.x.Data, s), nil, &g.p)
}

func (o *groupNormOp) setMean(g *groupScratch, stats []float32) {
	g.set(simd.NormMean, func(c int) float32 { return stats[2*(c/o.width())] })
}

func (o *groupNormOp) setAffine(g *groupScratch, stats []float32) {
	g.set(simd.NormScale, func(c int) float32 { return o.l.Gamma.Data[c] * stats[2*(c/o.width())+1] })
	g.p.Set(simd.NormOffset, o.l.Beta.Data)
}

func (o *groupNormOp) backward(t *Tape) {
	c, n := len(o.l.Gamma.Data), o.x.Shape[0]
	o.sums = bytesview.Sized(o.sums, 2*c*n)
	o.job.each(t, o, groupNormBackward, n, 1)
	for i, p := range [2]*Param{o.l.Beta, o.l.Gamma} {
		if !p.touched {
			clear(p.Grad)
		}
		for j := range p.Grad {
			sum := 0.0
			for s := range n {
				sum += o.sums[(2*s+i)*c+j]
			}
			p.Grad[j] += float32(sum)
		}
	}
	if o.x.needs {
		t.handOver(o.x, &o.y)
	}
}

// groupNormBackward sums the gradients of a sample's channels, and computes the input's gradient,
// with means over the group:
//
//	dx = (gamma·dy - mean of gamma·dy - x̂·mean of gamma·dy·x̂)/deviation
func groupNormBackward(o *groupNormOp, w *worker, s, _, _ int) {
	g, stats, width := &w.group, o.of(s), o.width()
	g.resize(len(o.l.Gamma.Data))
	o.setMean(g, stats)
	o.setAffine(g, stats)
	x, dy := o.sample(o.x.Data, s), o.sample(o.y.grad, s)
	clear(g.sums)
	w.k.NormGradSums(g.sums, w.floats(0, 2*g.p.Period), x, dy, nil, &g.p)
	first, second := g.fold()
	c := len(first)
	beta, gamma := o.sums[2*s*c:(2*s+1)*c], o.sums[(2*s+1)*c:(2*s+2)*c]
	for i := range c {
		beta[i], gamma[i] = first[i], second[i]*float64(stats[2*(i/width)+1])
	}
	if !o.x.needs {
		return
	}
	mean := func(of []float64, group int) (sum float64) {
		for i := group * width; i < (group+1)*width; i++ {
			sum += of[i] * float64(o.l.Gamma.Data[i])
		}
		return sum / o.count()
	}
	g.set(simd.NormMean, func(int) float32 { return 0 })
	g.set(simd.NormOffset, func(int) float32 { return 0 })
	w.k.NormApply(dy, dy, nil, &g.p) // gamma·dy/deviation
	o.setMean(g, stats)
	g.set(simd.NormScale, func(i int) float32 {
		inverse := float64(stats[2*(i/width)+1])
		return float32(-inverse * inverse * mean(gamma, i/width))
	})
	g.set(simd.NormOffset, func(i int) float32 { return float32(-float64(stats[2*(i/width)+1]) * mean(beta, i/width)) })
	w.k.NormApply(dy, x, dy, &g.p)
}

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
