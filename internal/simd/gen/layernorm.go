package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowLoop emits a loop over the n bytes of a row, 16 floats per iteration: body gets the number of
// the vector and its address in an operand.
func (l level) rowLoop(label string, n reg.Register, body func(i int, at func(base reg.Register) Mem)) {
	c := GP64()
	XORQ(c, c)
	Label(label)
	for i := range 16 / l.lanes {
		body(i, func(base reg.Register) Mem { return Mem{Base: base, Index: c, Scale: 1, Disp: i * l.bytes()} })
	}
	ADDQ(U8(64), c)
	CMPQ(c, n)
	JLT(LabelRef(label))
}

// total adds up 16 lanes and divides by count, in every lane of the result.
func (l level) total(acc vectors, count reg.VecVirtual) reg.VecVirtual {
	v := l.fold16(acc, func(x, dst reg.VecVirtual) { VADDPS(x, dst, dst) })
	VDIVSS(count.AsX(), v.AsX(), v.AsX())
	VBROADCASTSS(v.AsX(), v)
	return v
}

// layerNorms generates the kernels of layernorm.go: rows of d floats, a multiple of 16, and for
// each row its mean and 1/sqrt(variance + epsilon).
func layerNorms(l level) {
	one := newNumbers(l, "unit", []namedNumber{number("one", 1)})
	layerNorm(l, one)
	layerNormGrad(l)
}

func layerNorm(l level, one *numbers) {
	f := l.begin("layerNorm", "func(y, x, gamma, beta, stats *float32, rows, d int, count, epsilon float32)", "y", "x", "gamma", "beta", "stats")
	y, x, gamma, beta, stats := f.ptrs[0], f.ptrs[1], f.ptrs[2], f.ptrs[3], f.ptrs[4]
	rows, d := load("rows"), load("d")
	SHLQ(U8(2), d)
	count, epsilon := l.scalar("count"), l.scalar("epsilon")

	Label("row")
	acc := l.zeros(16 / l.lanes)
	l.rowLoop("sum", d, func(i int, at func(reg.Register) Mem) { VADDPS(at(x), acc[i], acc[i]) })
	mean := l.total(acc, count)
	VMOVSS(mean.AsX(), mem(stats, 0))
	acc = l.zeros(16 / l.lanes)
	l.rowLoop("squares", d, func(i int, at func(reg.Register) Mem) {
		v := l.loaded(at(x))
		VSUBPS(mean, v, v)
		VMULPS(v, v, v)
		VADDPS(v, acc[i], acc[i])
	})
	variance, inverse := l.total(acc, count), l.vector()
	VADDSS(epsilon.AsX(), variance.AsX(), variance.AsX())
	VSQRTSS(variance.AsX(), variance.AsX(), variance.AsX())
	VMOVSS(one.mem("one"), inverse.AsX())
	VDIVSS(variance.AsX(), inverse.AsX(), inverse.AsX())
	VMOVSS(inverse.AsX(), mem(stats, 4))
	VBROADCASTSS(inverse.AsX(), inverse)
	l.rowLoop("apply", d, func(_ int, at func(reg.Register) Mem) {
		v := l.loaded(at(x))
		VSUBPS(mean, v, v)
		VMULPS(inverse, v, v)
		VMULPS(at(gamma), v, v)
		VADDPS(at(beta), v, v)
		VMOVUPS(v, at(y))
	})
	ADDQ(d, x)
	ADDQ(d, y)
	ADDQ(U8(8), stats)
	endLoop("row", rows)
}

func layerNormGrad(l level) {
	f := l.begin("layerNormGrad", "func(dx, dy, x, gamma, stats, dgamma, dbeta *float32, rows, d int, count float32)", "dx", "dy", "x", "gamma", "stats", "dgamma", "dbeta")
	dx, dy, x, gamma, stats, dgamma, dbeta := f.ptrs[0], f.ptrs[1], f.ptrs[2], f.ptrs[3], f.ptrs[4], f.ptrs[5], f.ptrs[6]
	rows, d := load("rows"), load("d")
	SHLQ(U8(2), d)
	count, mean, inverse := l.scalar("count"), l.vector(), l.vector()

	Label("row")
	VBROADCASTSS(mem(stats, 0), mean)
	VBROADCASTSS(mem(stats, 4), inverse)
	sums, products := l.zeros(16/l.lanes), l.zeros(16/l.lanes)
	l.rowLoop("sums", d, func(i int, at func(reg.Register) Mem) {
		v, g := l.loaded(at(x)), l.loaded(at(dy))
		VSUBPS(mean, v, v)
		VMULPS(inverse, v, v)
		l.addTo(g, at(dbeta))
		p := l.vector()
		VMULPS(v, g, p)
		l.addTo(p, at(dgamma))
		VMULPS(at(gamma), g, g)
		VADDPS(g, sums[i], sums[i])
		VMULPS(v, g, g)
		VADDPS(g, products[i], products[i])
	})
	shift, slope := l.total(sums, count), l.total(products, count)
	l.rowLoop("apply", d, func(_ int, at func(reg.Register) Mem) {
		v, g := l.loaded(at(x)), l.loaded(at(dy))
		VSUBPS(mean, v, v)
		VMULPS(inverse, v, v)
		VMULPS(at(gamma), g, g)
		VSUBPS(shift, g, g)
		VMULPS(slope, v, v)
		VSUBPS(v, g, g)
		VMULPS(inverse, g, g)
		VMOVUPS(g, at(dx))
	})
	ADDQ(d, x)
	ADDQ(d, dy)
	ADDQ(d, dx)
	ADDQ(U8(8), stats)
	endLoop("row", rows)
}
