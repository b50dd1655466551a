package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unit is what a turn of a periodic loop works on, in floats: n and the period
// are multiples of it.
const unit = 32

// periodic is a loop over n floats of some operands, beside planes of `period`
// values each that begin anew every period: the channels' parameters and sums.
type periodic struct {
	level
	data, planes []reg.Register
	at           reg.Register // bytes within the planes
}

// periodic starts a function. params and acc are parameters that point to so
// many planes, one after the other.
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

// each runs body for every vector, and ends the function: data returns the
// place of a vector of an operand, plane that of a plane.
func (f *periodic) each(body func(data, plane func(i int) Mem)) {
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
		body(func(i int) Mem { return mem(f.data[i], u*f.bytes()) },
			func(i int) Mem { return Mem{Base: f.planes[i], Index: f.at, Scale: 1, Disp: u * f.bytes()} })
	}
	for _, p := range f.data {
		ADDQ(U32(4*unit), p)
	}
	ADDQ(U32(4*unit), f.at)
	CMPQ(f.at, limit)
	JLT(LabelRef("turn"))
	TESTQ(n, n)
	JNZ(LabelRef("period"))
	VZEROUPPER()
	RET()
}

func (l level) loaded(from Mem) reg.VecVirtual {
	v := l.vector()
	VMOVUPS(from, v)
	return v
}

// addTo adds v to what is at m.
func (l level) addTo(v reg.VecVirtual, m Mem) {
	sum := l.vector()
	VADDPS(m, v, sum)
	VMOVUPS(sum, m)
}

// passing emits g = dy where v > floor, and 0 elsewhere.
func (l level) passing(v, floor reg.VecVirtual, dy Mem) reg.VecVirtual {
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

// norms generates the kernels of norm.go: of a channel's planes, mean is 0,
// scale 1 and offset 2.
func norms(l level) {
	ConstraintExpr("amd64")
	const mean, scale, offset = 0, 1, 2

	f := l.periodic("normSums", "func(x *float32, n int, params, acc *float32, period int)", []string{"x"}, 1, 2)
	f.each(func(data, plane func(int) Mem) {
		d := l.loaded(data(0))
		VSUBPS(plane(mean), d, d)
		l.addTo(d, plane(1))
		VMULPS(d, d, d)
		l.addTo(d, plane(2))
	})

	// centred returns x - mean, and y before the activation.
	centred := func(x Mem, plane func(int) Mem) (d, v reg.VecVirtual) {
		d, v = l.loaded(x), l.vector()
		VSUBPS(plane(mean), d, d)
		VMULPS(plane(scale), d, v)
		VADDPS(plane(offset), v, v)
		return d, v
	}
	for _, name := range []string{"normApply", "normApplyAdd"} {
		operands, signature := []string{"y", "x"}, "func(y, x *float32, n int, params *float32, period int, floor float32)"
		if name == "normApplyAdd" {
			operands, signature = append(operands, "r"), "func(y, x, r *float32, n int, params *float32, period int, floor float32)"
		}
		f = l.periodic(name, signature, operands, 3, 0)
		floor := l.scalar("floor")
		f.each(func(data, plane func(int) Mem) {
			_, v := centred(data(1), plane)
			if len(operands) == 3 {
				VADDPS(data(2), v, v)
			}
			VMAXPS(v, floor, v) // v where it is NaN
			VMOVUPS(v, data(0))
		})
	}

	f = l.periodic("normGradSums", "func(x, dy *float32, n int, params, acc *float32, period int, floor float32)", []string{"x", "dy"}, 3, 2)
	floor := l.scalar("floor")
	f.each(func(data, plane func(int) Mem) {
		d, v := centred(data(0), plane)
		g := l.passing(v, floor, data(1))
		l.addTo(g, plane(3))
		VMULPS(g, d, d)
		l.addTo(d, plane(4))
	})

	f = l.periodic("normGradSumsAdd", "func(x, dy, y *float32, n int, params, acc *float32, period int, floor float32)", []string{"x", "dy", "y"}, 1, 2)
	floor = l.scalar("floor")
	f.each(func(data, plane func(int) Mem) {
		d, v := l.loaded(data(0)), l.loaded(data(2))
		VSUBPS(plane(mean), d, d)
		g := l.passing(v, floor, data(1))
		VMOVUPS(g, data(1))
		l.addTo(g, plane(1))
		VMULPS(g, d, d)
		l.addTo(d, plane(2))
	})

	f = l.periodic("normGrad", "func(dx, dy, x *float32, n int, params *float32, period int, floor float32)", []string{"dx", "dy", "x"}, 5, 0)
	floor = l.scalar("floor")
	f.each(func(data, plane func(int) Mem) {
		d, v := centred(data(2), plane)
		g := l.passing(v, floor, data(1))
		VSUBPS(plane(3), g, g)
		VMULPS(plane(scale), g, g)
		VMULPS(plane(4), d, d)
		VSUBPS(d, g, g)
		VMOVUPS(g, data(0))
	})

	flush(l)
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
	VZEROUPPER()
	RET()
}
