package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lanesAt accesses one vector of each array of an update rule: the whole vector, or its first lanes
// at the end of a row. keep clears the other lanes.
type lanesAt struct {
	load  func(array int) reg.VecVirtual
	store func(v reg.VecVirtual, array int)
	keep  func(v reg.VecVirtual)
}

// rule is the arithmetic of an optimizer on one vector of each array. Its factors are parameters of
// the kernel by name, broadcast. Arrays are numbered: parameters 0, gradients 1, state from 2.
type rule struct {
	name    string
	state   []string // state arrays
	factors []string
	uses    []string // constants: "exponent" (state that can become subnormal: see flush), "sign"
	body    func(l level, f map[string]reg.VecVirtual, at lanesAt)
}

var fading, signed = []string{"exponent"}, []string{"sign"}

var rules = []rule{
	{"sgdPlain", nil, []string{"lr", "decay", "scale"}, nil, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		p, g := at.load(0), decayed(l, f, at)
		l.descend(p, g, f["lr"], at)
	}},
	{"momentum", []string{"v"}, []string{"lr", "momentum", "decay", "scale"}, fading, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		momentumRule(l, f, decayed(l, f, at), at.load(2), at)
	}},
	{"adagrad", []string{"s"}, []string{"lr", "decay", "scale", "eps"}, nil, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		g := decayed(l, f, at)
		adagradRule(l, f, g, at)
	}},
	{"adamW", []string{"m", "v"}, adamFactors, fading, adamRule},
	{"ftrl", []string{"z", "s"}, ftrlFactors, signed, ftrlRule},
}

// decayed is the gradient, scaled, and decay times the parameter added.
func decayed(l level, f map[string]reg.VecVirtual, at lanesAt) reg.VecVirtual {
	g, d := at.load(1), at.load(0)
	VMULPS(f["scale"], g, g)
	VMULPS(f["decay"], d, d)
	VADDPS(d, g, g)
	return g
}

// descend stores p - lr*g.
func (l level) descend(p, g, lr reg.VecVirtual, at lanesAt) {
	VMULPS(lr, g, g)
	VSUBPS(g, p, p)
	at.store(p, 0)
}

func momentumRule(l level, f map[string]reg.VecVirtual, g, v reg.VecVirtual, at lanesAt) {
	VMULPS(f["momentum"], v, v)
	VADDPS(g, v, v)
	l.flush(v, f)
	at.store(v, 2)
	l.descend(at.load(0), v, f["lr"], at)
}

func adagradRule(l level, f map[string]reg.VecVirtual, g reg.VecVirtual, at lanesAt) {
	s, t := at.load(2), l.vector()
	VMULPS(g, g, t)
	VADDPS(t, s, s)
	at.store(s, 2)
	VSQRTPS(s, s)
	VADDPS(f["eps"], s, s)
	VMULPS(f["lr"], g, g)
	VDIVPS(s, g, g)
	p := at.load(0)
	VSUBPS(g, p, p)
	at.store(p, 0)
}

var adamFactors = []string{"scale", "keep", "beta1", "comp1", "beta2", "comp2", "rate", "unbias", "eps"}

func adamRule(l level, f map[string]reg.VecVirtual, at lanesAt) {
	g, m, v, t := at.load(1), at.load(2), at.load(3), l.vector()
	VMULPS(f["scale"], g, g)
	VMULPS(f["beta1"], m, m)
	VMULPS(f["comp1"], g, t)
	VADDPS(t, m, m)
	l.flush(m, f)
	at.store(m, 2)
	VMULPS(f["beta2"], v, v)
	VMULPS(f["comp2"], g, t)
	VMULPS(g, t, t)
	VADDPS(t, v, v)
	l.flush(v, f)
	at.store(v, 3)
	VSQRTPS(v, v)
	VMULPS(f["unbias"], v, v)
	VADDPS(f["eps"], v, v)
	VMULPS(f["rate"], m, m)
	VDIVPS(v, m, m)
	p := at.load(0)
	VMULPS(f["keep"], p, p)
	VSUBPS(m, p, p)
	at.store(p, 0)
}

var ftrlFactors = []string{"scale", "lr", "beta", "l1", "l2"}

// ftrlRule stores z in units of the learning rate. A z of 0 with a nonzero weight means the z that
// would have produced the weight.
func ftrlRule(l level, f map[string]reg.VecVirtual, at lanesAt) {
	w, z, n := at.load(0), at.load(2), at.load(3)
	root, divisor, shift := l.vector(), l.vector(), l.vector()
	VSQRTPS(n, root)
	VADDPS(f["beta"], root, divisor)
	VADDPS(f["l2"], divisor, divisor)
	VMULPS(w, divisor, divisor)
	l.and(f["sign"], w, shift)
	l.or(f["l1"], shift, shift)
	VADDPS(shift, divisor, divisor)
	l.xor(f["sign"], divisor, divisor)
	l.adopt(z, w, divisor)

	g := at.load(1)
	VMULPS(f["scale"], g, g)
	VMULPS(g, g, divisor)
	VADDPS(divisor, n, n)
	at.store(n, 3)
	VMULPS(f["lr"], g, g)
	VADDPS(g, z, z)
	VSQRTPS(n, divisor)
	VSUBPS(root, divisor, root)
	VMULPS(w, root, root)
	VSUBPS(root, z, z)
	at.store(z, 2)

	VADDPS(f["beta"], divisor, divisor)
	VADDPS(f["l2"], divisor, divisor)
	l.and(f["sign"], z, shift)
	l.xor(shift, z, w) // the magnitude
	l.or(f["l1"], shift, shift)
	VSUBPS(shift, z, z)
	VDIVPS(divisor, z, z)
	l.xor(f["sign"], z, z)
	const notLessOrEqual = 6 // also where NaN
	if l.masked {
		k := K()
		VCMPPS(U8(notLessOrEqual), f["l1"], w, k)
		VMOVAPS_Z(z, k, z)
	} else {
		VCMPPS(U8(notLessOrEqual), f["l1"], w, w)
		VANDPS(w, z, z)
	}
	at.store(z, 0)
}

// adopt makes z the other where z is 0 and w is not.
func (l level) adopt(z, w, other reg.VecVirtual) {
	const equal, notEqual = 0, 4 // the second also where NaN
	zero := l.zero()
	if l.masked {
		k := K()
		VCMPPS(U8(equal), zero, z, k)
		VCMPPS(U8(notEqual), zero, w, k, k)
		VMOVAPS(other, k, z)
		return
	}
	some := l.vector()
	VCMPPS(U8(equal), zero, z, some)
	VCMPPS(U8(notEqual), zero, w, zero)
	VPAND(zero, some, some)
	VBLENDVPS(some, other, z, z)
}

func (l level) or(a, b, to reg.VecVirtual) {
	if l.masked {
		VPORD(a, b, to)
	} else {
		VPOR(a, b, to)
	}
}

// flush sets subnormal numbers to 0: fading state would stay subnormal forever, because rounding
// keeps k times 0.9 the same k, and arithmetic with such numbers is ten times as slow.
func (l level) flush(x reg.VecVirtual, f map[string]reg.VecVirtual) {
	if l.masked {
		k := K()
		VPTESTMD(f["exponent"], x, k)
		VMOVAPS_Z(x, k, x)
		return
	}
	t := l.vector()
	VPSLLD(U8(1), x, t)
	VPSRLD(U8(1), t, t)
	VPCMPGTD(f["exponent"], t, t)
	VPAND(t, x, x)
}

// exponent is the constant of flush: the exponent's bits, or the largest subnormal number to
// compare magnitudes with.
func (l level) exponent() reg.VecVirtual {
	if l.masked {
		return l.bits(0x7f800000)
	}
	return l.bits(0x007fffff)
}

// optimizers generates the update kernels of a level.
func optimizers(l level) {
	ConstraintExpr("amd64")
	for _, r := range rules {
		r.dense(l)
	}
	for _, r := range rowRules {
		r.rows(l)
	}
}

func (r rule) parameters(arrays, counts string) string {
	s := "func(p"
	for _, name := range r.state {
		s += ", " + name
	}
	s += arrays + counts
	for i, name := range r.factors {
		if i > 0 {
			s += ", "
		}
		s += name
	}
	return s + " float32)"
}

func (r rule) broadcast(l level) map[string]reg.VecVirtual {
	f := map[string]reg.VecVirtual{}
	for _, name := range r.factors {
		f[name] = l.scalar(name)
	}
	for _, name := range r.uses {
		switch name {
		case "exponent":
			f[name] = l.exponent()
		case "sign":
			f[name] = l.bits(1 << 31)
		}
	}
	return f
}

// dense is the rule over n values of each array, a multiple of the vector.
func (r rule) dense(l level) {
	f := l.begin(r.name, r.parameters(", grad *float32", ", n int, "), append([]string{"p", "grad"}, r.state...)...)
	factors := r.broadcast(l)
	f.each(func(at func(int) Mem) { r.body(l, factors, l.whole(at)) })
}

// whole accesses whole vectors of arrays.
func (l level) whole(at func(array int) Mem) lanesAt {
	return lanesAt{
		load:  func(array int) reg.VecVirtual { return l.loaded(at(array)) },
		store: func(v reg.VecVirtual, array int) { VMOVUPS(v, at(array)) },
		keep:  func(reg.VecVirtual) {},
	}
}
