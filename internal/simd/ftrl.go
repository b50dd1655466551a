package simd

import "math"

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
