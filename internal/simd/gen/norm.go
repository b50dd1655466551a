package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unit is the number of floats of an iteration of a periodic loop: n and the period are multiples
// of it.
const unit = 32

// periodic is a loop over n floats of several operands, with planes of `period` values each that
// repeat every period: the channels' parameters and sums.
type periodic struct {
	level
	data, planes []reg.Register
	at           reg.Register // bytes within the planes
}

// periodic starts a function. params and acc are the numbers of consecutive planes of the
// parameters of these names.
func (l level) periodic(name, signature string, data []string, params, acc int) *periodic {
	f := &periodic{level: l, at: GP64()}
	f.data = l.begin(name, signature, data...).ptrs
	period := load("period")
	SHLQ(U8(2), period)
	for _, of := range []struct {
		name   string
		planes int
	}{{"params", params}, {"acc", acc}} {
		for i := range of.planes {
			plane := GP64()
			if i == 0 {
				Load(Param(of.name), plane)
			} else {
				LEAQ(Mem{Base: f.planes[len(f.planes)-1], Index: period, Scale: 1}, plane)
			}
			f.planes = append(f.planes, plane)
		}
	}
	return f
}

// planes gives a loop's body the planes' values at the current vector.
type planes interface {
	value(i int) Op
	add(v reg.VecVirtual, i int) // adds to plane i
}

// stored are planes in memory.
type stored struct {
	f    *periodic
	disp int
}

func (p stored) mem(i int) Mem {
	return Mem{Base: p.f.planes[i], Index: p.f.at, Scale: 1, Disp: p.disp}
}
func (p stored) value(i int) Op              { return p.mem(i) }
func (p stored) add(v reg.VecVirtual, i int) { p.f.addTo(v, p.mem(i)) }

// held are planes in registers.
type held []reg.VecVirtual

func (p held) value(i int) Op              { return p[i] }
func (p held) add(v reg.VecVirtual, i int) { VADDPS(p[i], v, p[i]) }

// hold runs body for every vector, with the planes of a period of 64 values in registers, and ends
// the function. Planes from the first sum on are written back.
func (f *periodic) hold(firstSum int, body func(data func(i int) Mem, of planes)) {
	n, count := load("n"), 64/f.lanes
	values := make([]held, count)
	for u := range values {
		for _, p := range f.planes {
			values[u] = append(values[u], f.loaded(mem(p, u*f.bytes())))
		}
	}
	Label("turn")
	for u := range count {
		body(func(i int) Mem { return mem(f.data[i], u*f.bytes()) }, values[u])
	}
	for _, p := range f.data {
		ADDQ(U32(4*64), p)
	}
	SUBQ(U32(64), n)
	JNZ(LabelRef("turn"))
	for u := range count {
		for i := firstSum; i < len(f.planes); i++ {
			VMOVUPS(values[u][i], mem(f.planes[i], u*f.bytes()))
		}
	}
	finish()
}

// each runs body for every vector, and ends the function: data returns the
// place of a vector of an operand.
func (f *periodic) each(body func(data func(i int) Mem, of planes)) {
	n, limit, period := load("n"), GP64(), load("period")
	Label("period")
	MOVQ(period, limit)
	CMPQ(n, limit)
	CMOVQLT(n, limit)
	SUBQ(limit, n)
	SHLQ(U8(2), limit)
	XORQ(f.at, f.at)
	Label("turn")
	for u := range unit / f.lanes {
		body(func(i int) Mem { return mem(f.data[i], u*f.bytes()) }, stored{f, u * f.bytes()})
	}
	for _, p := range f.data {
		ADDQ(U32(4*unit), p)
	}
	ADDQ(U32(4*unit), f.at)
	CMPQ(f.at, limit)
	JLT(LabelRef("turn"))
	TESTQ(n, n)
	JNZ(LabelRef("period"))
	finish()
}

func (l level) loaded(from Mem) reg.VecVirtual {
	v := l.vector()
	VMOVUPS(from, v)
	return v
}

// addTo adds v to the memory at m.
func (l level) addTo(v reg.VecVirtual, m Mem) {
	sum := l.vector()
	VADDPS(m, v, sum)
	VMOVUPS(sum, m)
}

// passing emits g = dy where v > floor, and 0 elsewhere.
func (l level) passing(v Op, floor reg.VecVirtual, dy Mem) reg.VecVirtual {
	g := l.vector()
	const less = 17 // floor < v, false for NaN
	if l.masked {
		k := K()
		VCMPPS(U8(less), v, floor, k)
		VMOVUPS_Z(dy, k, g)
	} else {
		VCMPPS(U8(less), v, floor, g)
		VANDPS(dy, g, g)
	}
	return g
}

// Planes of a channel's parameters; sums follow the last one in use.
const mean, scale, offset, shift, slope = 0, 1, 2, 3, 4

// norms generates the kernels of norm.go.
func norms(l level) {
	ConstraintExpr("amd64")
	normSums(l)
	normApplies(l)

	f := l.periodic("normGrad", "func(dx, dy, x *float32, n int, params *float32, period int, floor float32)", []string{"dx", "dy", "x"}, 5, 0)
	floor := l.scalar("floor")
	f.each(func(data func(int) Mem, of planes) {
		d, v := l.centred(data(2), of)
		g := l.passing(v, floor, data(1))
		VSUBPS(of.value(shift), g, g)
		VMULPS(of.value(scale), g, g)
		VMULPS(of.value(slope), d, d)
		VSUBPS(d, g, g)
		VMOVUPS(g, data(0))
	})

	flush(l)
	layerNorms(l)
}

// centred returns x - mean, and y before the activation.
func (l level) centred(x Mem, of planes) (d, v reg.VecVirtual) {
	d, v = l.loaded(x), l.vector()
	VSUBPS(of.value(mean), d, d)
	VMULPS(of.value(scale), d, v)
	VADDPS(of.value(offset), v, v)
	return d, v
}

func normApplies(l level) {
	for _, name := range []string{"normApply", "normApplyAdd"} {
		operands, signature := []string{"y", "x"}, "func(y, x *float32, n int, params *float32, period int, floor float32)"
		if name == "normApplyAdd" {
			operands, signature = append(operands, "r"), "func(y, x, r *float32, n int, params *float32, period int, floor float32)"
		}
		f := l.periodic(name, signature, operands, 3, 0)
		floor := l.scalar("floor")
		f.each(func(data func(int) Mem, of planes) {
			_, v := l.centred(data(1), of)
			if len(operands) == 3 {
				VADDPS(data(2), v, v)
			}
			VMAXPS(v, floor, v) // v if NaN
			VMOVUPS(v, data(0))
		})
	}
}

// normSums generates the summing passes, each also for AVX-512 and periods of 64 values, with
// planes that fit its registers.
func normSums(l level) {
	for _, k := range []struct {
		name, signature string
		data            []string
		params          int
		body            func(floor reg.VecVirtual) func(data func(int) Mem, of planes)
	}{
		{"normSums", "func(x *float32, n int, params, acc *float32, period int)", []string{"x"}, 1, l.sumsBody},
		{"normGradSums", "func(x, dy *float32, n int, params, acc *float32, period int, floor float32)", []string{"x", "dy"}, 3, l.gradSumsBody},
		{"normGradSumsAdd", "func(x, dy, y *float32, n int, params, acc *float32, period int, floor float32)", []string{"x", "dy", "y"}, 1, l.gradSumsAddBody},
	} {
		for _, period := range []string{"", "64_"} {
			if period != "" && !l.masked {
				continue
			}
			f := l.periodic(k.name+period, k.signature, k.data, k.params, 2)
			var floor reg.VecVirtual
			if k.name != "normSums" {
				floor = l.scalar("floor")
			}
			if period == "" {
				f.each(k.body(floor))
			} else {
				f.hold(k.params, k.body(floor))
			}
		}
	}
}

func (l level) sumsBody(reg.VecVirtual) func(data func(int) Mem, of planes) {
	return func(data func(int) Mem, of planes) {
		d := l.loaded(data(0))
		VSUBPS(of.value(mean), d, d)
		of.add(d, 1)
		VMULPS(d, d, d)
		of.add(d, 2)
	}
}

func (l level) gradSumsBody(floor reg.VecVirtual) func(data func(int) Mem, of planes) {
	return func(data func(int) Mem, of planes) {
		d, v := l.centred(data(0), of)
		g := l.passing(v, floor, data(1))
		of.add(g, 3)
		VMULPS(g, d, d)
		of.add(d, 4)
	}
}

func (l level) gradSumsAddBody(floor reg.VecVirtual) func(data func(int) Mem, of planes) {
	return func(data func(int) Mem, of planes) {
		d, v := l.loaded(data(0)), l.loaded(data(2))
		VSUBPS(of.value(mean), d, d)
		g := l.passing(v, floor, data(1))
		VMOVUPS(g, data(1))
		of.add(g, 1)
		VMULPS(g, d, d)
		of.add(d, 2)
	}
}

// flush moves n sums in float32 to sums in float64.
func flush(l level) {
	f := l.begin("flush", "func(sums *float64, acc *float32, n int)", "sums", "acc")
	n, zero := load("n"), l.zero()
	Label("turn")
	for u := range 16 / l.lanes {
		for half := range 2 {
			wide := l.vector()
			to := mem(f.ptrs[0], (2*u+half)*l.bytes())
			VCVTPS2PD(mem(f.ptrs[1], u*l.bytes()+half*l.bytes()/2), wide)
			VADDPD(to, wide, wide)
			VMOVUPD(wide, to)
		}
		VMOVUPS(zero, mem(f.ptrs[1], u*l.bytes()))
	}
	ADDQ(U32(128), f.ptrs[0])
	ADDQ(U32(64), f.ptrs[1])
	SUBQ(U32(16), n)
	JNZ(LabelRef("turn"))
	finish()
}

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
