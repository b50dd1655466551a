package simd

import (
	"fmt"
	"math"
)

// optimLevel holds the update rules of optimizers. Dense rules take counts that are multiples of
// vectorLevel.width; rules for rows take any count, with at least one row. nil: portable.
type optimLevel struct {
	sgd      func(p, g *float32, n int, lr, decay, scale float32)
	momentum func(p, v, g *float32, n int, lr, momentum, decay, scale float32)
	adagrad  func(p, s, g *float32, n int, lr, decay, scale, eps float32)
	adamW    func(p, m, v, g *float32, n int, scale, keep, beta1, comp1, beta2, comp2, rate, unbias, eps float32)
	ftrl     func(p, z, s, g *float32, n int, scale, lr, beta, l1, l2 float32)

	// sgdRows and the next fields are rules for the rows ids of p and the state, dim values each;
	// row i of g is for ids[i]. The first dim mod width words of mask are negative.
	sgdRows        func(p *float32, ids *int32, g *float32, n, dim int, mask *int32, lr, scale float32)
	momentumRows   func(p, v *float32, ids *int32, g *float32, n, dim int, mask *int32, lr, momentum, scale float32)
	adagradRows    func(p, s *float32, ids *int32, g *float32, n, dim int, mask *int32, lr, scale, eps float32)
	adamRows       func(p, m, v *float32, ids *int32, g *float32, n, dim int, mask *int32, scale, keep, beta1, comp1, beta2, comp2, rate, unbias, eps float32)
	adamOwnRows    func(p, m, v, w *float32, ids *int32, g *float32, n, dim int, mask *int32, scale, keep, beta1, comp1, beta2, comp2, lr, eps float32)
	rowWiseAdagrad func(p, s *float32, ids *int32, g, scales *float32, scaleStep, n, dim int, mask *int32, lr, initial, width, scale float32)
	ftrlRows       func(p, z, s *float32, ids *int32, g *float32, n, dim int, mask *int32, scale, lr, beta, l1, l2 float32)
	clampRows      func(p *float32, ids *int32, n, dim int, mask *int32, lo, hi float32)
}

// AdamFactors are the scalars of one step of Adam.
type AdamFactors struct {
	Scale        float32 // factor of the gradient
	Keep         float32 // 1 - lr*decay: factor of a parameter by decay
	Beta1, Comp1 float32 // decay of the first moment, and 1 - Beta1
	Beta2, Comp2 float32 // decay of the second moment, and 1 - Beta2
	Rate         float32 // lr / (1 - Beta1^step)
	Unbias       float32 // 1 / sqrt(1 - Beta2^step)
	Eps          float32
}

// SGDPlain is one step of gradient descent with weight decay and without momentum, in one pass,
// with every operation rounded:
//
//	p = p - lr*(g*scale + decay*p)
//
// g is not changed.
func (k *Kernels) SGDPlain(p, g []float32, lr, decay, scale float32) {
	if len(p) != len(g) {
		sameLength("SGDPlain", len(p), len(g))
	}
	for n := k.bulk(len(p)); n > 0; n = k.bulk(len(p)) {
		k.opt.sgd(&p[0], &g[0], n, lr, decay, scale)
		p, g = p[n:], g[n:]
	}
	for i, d := range g {
		d = float32(d*scale) + float32(decay*p[i])
		p[i] -= float32(lr * d)
	}
}

// Momentum is one step of gradient descent with momentum and weight decay, in one pass, with every
// operation rounded:
//
//	v = momentum*v + (g*scale + decay*p);  p = p - lr*v
//
// g does not change. A subnormal v becomes 0: arithmetic with subnormal numbers is ten times as
// slow, and rounding keeps 0.9 times one from ever reaching 0.
func (k *Kernels) Momentum(p, v, g []float32, lr, momentum, decay, scale float32) {
	if len(p) != len(g) || len(p) != len(v) {
		sameLength("Momentum", len(p), len(v), len(g))
	}
	for n := k.bulk(len(p)); n > 0; n = k.bulk(len(p)) {
		k.opt.momentum(&p[0], &v[0], &g[0], n, lr, momentum, decay, scale)
		p, v, g = p[n:], v[n:], g[n:]
	}
	for i, d := range g {
		d = float32(d*scale) + float32(decay*p[i])
		v[i] = flushed(float32(momentum*v[i]) + d)
		p[i] -= float32(lr * v[i])
	}
}

// flushed is x, or 0 where x is subnormal.
func flushed(x float32) float32 {
	if math.Float32bits(x)&0x7f800000 == 0 {
		return 0
	}
	return x
}

// Adagrad is one step of Adagrad (Duchi et al. 2011) with weight decay, in one pass, with every
// operation rounded. s is the sum of squares:
//
//	g' = g*scale + decay*p;  s = s + g'*g';  p = p - (lr*g') / (sqrt(s) + eps)
//
// g is not changed.
func (k *Kernels) Adagrad(p, s, g []float32, lr, decay, scale, eps float32) {
	if len(p) != len(g) || len(p) != len(s) {
		sameLength("Adagrad", len(p), len(s), len(g))
	}
	for n := k.bulk(len(p)); n > 0; n = k.bulk(len(p)) {
		k.opt.adagrad(&p[0], &s[0], &g[0], n, lr, decay, scale, eps)
		p, s, g = p[n:], s[n:], g[n:]
	}
	for i, d := range g {
		d = float32(d*scale) + float32(decay*p[i])
		adagradGo(&p[i], &s[i], d, lr, eps)
	}
}

// AdamW is one step of Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter
// 2019), in one pass, with every operation rounded. m and v are the moments:
//
//	g' = g*Scale;  m = Beta1*m + Comp1*g';  v = Beta2*v + (Comp2*g')*g'
//	p = Keep*p - (Rate*m) / (Unbias*sqrt(v) + Eps)
//
// g is not changed. Subnormal moments are 0, as in [Kernels.Momentum].
func (k *Kernels) AdamW(p, m, v, g []float32, f AdamFactors) {
	if len(p) != len(g) || len(p) != len(m) || len(p) != len(v) {
		sameLength("AdamW", len(p), len(m), len(v), len(g))
	}
	for n := k.bulk(len(p)); n > 0; n = k.bulk(len(p)) {
		k.opt.adamW(&p[0], &m[0], &v[0], &g[0], n, f.Scale, f.Keep, f.Beta1, f.Comp1, f.Beta2, f.Comp2, f.Rate, f.Unbias, f.Eps)
		p, m, v, g = p[n:], m[n:], v[n:], g[n:]
	}
	for i, d := range g {
		adamGo(&p[i], &m[i], &v[i], d, &f)
	}
}

// SGDRows is [Kernels.SGDPlain] without decay on rows of dim values: row ids[i] of p with row i of
// g. It panics if an id has no row in p. Other rows are not touched; the cost is proportional to
// len(ids).
func (k *Kernels) SGDRows(p []float32, ids []int32, g []float32, dim int, lr, scale float32) {
	checkRows("SGDRows", ids, g, dim, len(p), len(p))
	if k.opt.sgdRows == nil {
		for i, id := range ids {
			row := p[int(id)*dim:][:dim]
			for j, d := range g[i*dim:][:dim] {
				row[j] -= float32(lr * float32(d*scale))
			}
		}
		return
	}
	runs(len(ids), rowsOfCall(dim), func(at, n int) {
		k.opt.sgdRows(&p[0], &ids[at], &g[at*dim], n, dim, k.rowMask(dim), lr, scale)
	})
}

// AdagradRows is [Kernels.Adagrad] without decay on rows of dim values: rows
// ids[i] of p and s with row i of g, as [Kernels.SGDRows].
func (k *Kernels) AdagradRows(p, s []float32, ids []int32, g []float32, dim int, lr, scale, eps float32) {
	checkRows("AdagradRows", ids, g, dim, len(p), len(s))
	if k.opt.adagradRows == nil {
		for i, id := range ids {
			at := int(id) * dim
			for j, d := range g[i*dim:][:dim] {
				adagradGo(&p[at+j], &s[at+j], float32(d*scale), lr, eps)
			}
		}
		return
	}
	runs(len(ids), rowsOfCall(dim), func(at, n int) {
		k.opt.adagradRows(&p[0], &s[0], &ids[at], &g[at*dim], n, dim, k.rowMask(dim), lr, scale, eps)
	})
}

// AdamRows is [Kernels.AdamW] on rows of dim values: rows ids[i] of p, m and v
// with row i of g, as [Kernels.SGDRows].
func (k *Kernels) AdamRows(p, m, v []float32, ids []int32, g []float32, dim int, f AdamFactors) {
	checkRows("AdamRows", ids, g, dim, len(p), min(len(m), len(v)))
	if k.opt.adamRows == nil {
		for i, id := range ids {
			at := int(id) * dim
			for j, d := range g[i*dim:][:dim] {
				adamGo(&p[at+j], &m[at+j], &v[at+j], d, &f)
			}
		}
		return
	}
	runs(len(ids), rowsOfCall(dim), func(at, n int) {
		k.opt.adamRows(&p[0], &m[0], &v[0], &ids[at], &g[at*dim], n, dim, k.rowMask(dim),
			f.Scale, f.Keep, f.Beta1, f.Comp1, f.Beta2, f.Comp2, f.Rate, f.Unbias, f.Eps)
	})
}

// callRows limits the rows of an assembly call, because each may miss the caches.
const callRows = 256

func rowsOfCall(dim int) int { return min(callRows, max(1, callFloats/dim)) }

// rowMasks is 16 negative words and 16 zeros: a window of it selects the first lanes of a vector.
var rowMasks = [32]int32{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1} // never written

func (k *Kernels) rowMask(dim int) *int32 { return &rowMasks[16-dim%k.vec.width] }

// checkRows panics for a row outside, because assembly does not check.
func checkRows(op string, ids []int32, g []float32, dim, params, state int) {
	if dim < 1 || len(g) != len(ids)*dim || params%dim != 0 || state < params {
		panic(fmt.Sprintf("simd: %s: %d ids with gradients of %d values for rows of %d in a table of %d values with state of %d",
			op, len(ids), len(g), dim, params, state))
	}
	checkIDs(op, ids, dim, params)
}

func checkIDs(op string, ids []int32, dim, params int) {
	rows := uint32(params / dim)
	for i, id := range ids {
		if uint32(id) >= rows {
			panic(fmt.Sprintf("simd: %s: id %d (number %d) is not a row of %d", op, id, i, rows))
		}
	}
}

// adagradGo is the rule for a single value with the complete gradient d. Conversions round
// products, so that no compiler fuses them; a square root computed in float64 and rounded equals
// the correctly rounded float32 root.
func adagradGo(p, s *float32, d, lr, eps float32) {
	*s += float32(d * d)
	*p -= float32(lr*d) / (float32(math.Sqrt(float64(*s))) + eps)
}

func adamGo(p, m, v *float32, d float32, f *AdamFactors) {
	d = float32(d * f.Scale)
	*m = flushed(float32(f.Beta1**m) + float32(f.Comp1*d))
	*v = flushed(float32(f.Beta2**v) + float32(float32(f.Comp2*d)*d))
	std := float32(f.Unbias*float32(math.Sqrt(float64(*v)))) + f.Eps
	*p = float32(f.Keep**p) - float32(f.Rate**m)/std
}

// FTRLFactors are the scalars of FTRL-Proximal.
type FTRLFactors struct {
	Scale  float32 // factor of the gradient
	LR     float32 // the learning rate, alpha
	Beta   float32 // initial divisor of the rate, positive
	L1, L2 float32 // the penalties, times LR
}

// FTRL is one step of FTRL-Proximal (McMahan et al. 2013) in one pass, with every operation
// rounded. s is the sum of squares, z the paper's in units of the learning rate:
//
//	g' = g*Scale;  s' = s + g'*g';  z = (z + LR*g') - (sqrt(s') - sqrt(s))*p
//	p = 0 where |z| <= L1, else -((z - sign(z)*L1) / ((Beta + sqrt(s')) + L2))
//
// If z is 0 and p is not, which no step produces, z is first set to the value that would have
// produced p: -(p*((Beta + sqrt(s)) + L2) + sign(p)*L1). g does not change.
func (k *Kernels) FTRL(p, z, s, g []float32, f FTRLFactors) {
	if len(p) != len(g) || len(p) != len(z) || len(p) != len(s) {
		sameLength("FTRL", len(p), len(z), len(s), len(g))
	}
	for n := k.bulk(len(p)); n > 0; n = k.bulk(len(p)) {
		k.opt.ftrl(&p[0], &z[0], &s[0], &g[0], n, f.Scale, f.LR, f.Beta, f.L1, f.L2)
		p, z, s, g = p[n:], z[n:], s[n:], g[n:]
	}
	for i, d := range g {
		ftrlGo(&p[i], &z[i], &s[i], d, &f)
	}
}

// FTRLRows is [Kernels.FTRL] on rows of dim values: rows ids[i] of p, z and s
// with row i of g, as [Kernels.SGDRows].
func (k *Kernels) FTRLRows(p, z, s []float32, ids []int32, g []float32, dim int, f FTRLFactors) {
	checkRows("FTRLRows", ids, g, dim, len(p), min(len(z), len(s)))
	if k.opt.ftrlRows == nil {
		for i, id := range ids {
			at := int(id) * dim
			for j, d := range g[i*dim:][:dim] {
				ftrlGo(&p[at+j], &z[at+j], &s[at+j], d, &f)
			}
		}
		return
	}
	runs(len(ids), rowsOfCall(dim), func(at, n int) {
		k.opt.ftrlRows(&p[0], &z[0], &s[0], &ids[at], &g[at*dim], n, dim, k.rowMask(dim), f.Scale, f.LR, f.Beta, f.L1, f.L2)
	})
}

func ftrlGo(p, z, s *float32, d float32, f *FTRLFactors) {
	w, to, root := *p, *z, root32(*s)
	if to == 0 && w != 0 {
		to = -(float32(w*((root+f.Beta)+f.L2)) + copysign(f.L1, w))
	}
	d = float32(d * f.Scale)
	*s += float32(d * d)
	next := root32(*s)
	to = (to + float32(d*f.LR)) - float32((next-root)*w)
	*z = to
	if *p = 0; !(magnitude(to) <= f.L1) { // NaN stays NaN
		*p = -((to - copysign(f.L1, to)) / ((next + f.Beta) + f.L2))
	}
}

// root32 is the square root, rounded once: float64 has more than twice as many digits.
func root32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func magnitude(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// copysign is x, not negative, with the sign of sign.
func copysign(x, sign float32) float32 {
	return math.Float32frombits(math.Float32bits(x) | math.Float32bits(sign)&(1<<31))
}
