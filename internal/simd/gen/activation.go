package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// GELU as in GPT-2: x·sigmoid(2·sqrt(2/pi)·(x + 0.044715 x³)).
const (
	geluLinear = 2 * 0.797884560802865355879892119868763737
	geluCubic  = geluLinear * 0.044715
)

// activations generates the kernels of activation.go and softmax.go.
func activations(l level) {
	ConstraintExpr("amd64")
	c := expNumbers(l, "numbers", number("gelu1", geluLinear), number("gelu3", geluCubic), number("gelu2", 3*geluCubic),
		number("minusInf", math.Inf(-1)))
	for _, f := range []struct {
		name string
		emit func(x vectors)
	}{{"exp", c.exp}, {"sigmoid", c.sigmoid}, {"tanh", c.tanh}, {"gelu", c.gelu}} {
		l.begin(f.name, "func(dst, x *float32, n int)", "dst", "x").groups(l.interleaved(), func(u int, at func(ptr, i int) Mem) {
			x := l.loads(u, func(i int) Mem { return at(1, i) })
			f.emit(x)
			stores(x, func(i int) Mem { return at(0, i) })
		})
	}
	for _, f := range []struct {
		name string
		emit func(y vectors)
	}{{"sigmoidGrad", c.sigmoidSlope}, {"tanhGrad", c.tanhSlope}, {"geluGrad", c.geluSlope}} {
		l.begin(f.name, "func(dx, dy, y *float32, n int)", "dx", "dy", "y").groups(2, func(u int, at func(ptr, i int) Mem) {
			y := l.loads(u, func(i int) Mem { return at(2, i) })
			f.emit(y)
			for i := range y {
				VMULPS(at(1, i), y[i], y[i])
			}
			stores(y, func(i int) Mem { return at(0, i) })
		})
	}
	softmax(c)
}

// groups is run with a body for several vectors together, and ends the function.
func (f *loop) groups(unroll int, body func(n int, at func(ptr, i int) Mem)) {
	f.together(unroll, body)
	finish()
}

func (l level) loads(n int, from func(i int) Mem) vectors {
	x := l.vectors(n)
	for i := range x {
		VMOVUPS(from(i), x[i])
	}
	return x
}

func stores(x vectors, to func(i int) Mem) {
	for i := range x {
		VMOVUPS(x[i], to(i))
	}
}

// gelu emits x = x/(1+exp(-u)), u = x(gelu1 + gelu3 x²).
func (c *numbers) gelu(x vectors) {
	e := c.geluExp(x)
	c.add("one", e, e)
	zip(VDIVPS, x, e, x)
}

// geluExp returns exp(-u).
func (c *numbers) geluExp(x vectors) vectors {
	e := c.vectors(len(x))
	zip(VMULPS, x, x, e)
	c.mul("gelu3", e, e)
	c.add("gelu1", e, e)
	zip(VMULPS, e, x, e)
	c.xor("sign", e, e)
	c.exp(e)
	return e
}

// geluSlope emits x = s + x·s(1-s)·du/dx, s = 1/(1+exp(-u)).
func (c *numbers) geluSlope(x vectors) {
	s := c.geluExp(x)
	c.add("one", s, s)
	one := c.get("one")
	by(VDIVPS, one, s, s)
	d := c.vectors(len(x))
	zip(VMULPS, x, x, d)
	c.mul("gelu2", d, d)
	c.add("gelu1", d, d)
	zip(VMULPS, d, x, d)
	by(VSUBPS, one, s, x)
	zip(VMULPS, x, s, x)
	zip(VMULPS, x, d, x)
	zip(VADDPS, x, s, x)
}

func (c *numbers) sigmoidSlope(y vectors) {
	d := c.vectors(len(y))
	by(VSUBPS, c.get("one"), y, d)
	zip(VMULPS, y, d, y)
}

func (c *numbers) tanhSlope(y vectors) {
	zip(VMULPS, y, y, y)
	by(VSUBPS, c.get("one"), y, y)
}

// lanes16 returns 16 lanes of a value, in one or two vectors.
func (c *numbers) lanes16(name string) (acc []reg.VecVirtual) {
	for range 16 / c.lanes {
		acc = append(acc, c.get(name))
	}
	return acc
}

// fold16 combines 16 lanes pairwise, in halves, and returns the register with the result in the
// first lane. op is dst = op(dst, other).
func (l level) fold16(acc []reg.VecVirtual, op func(other, dst reg.VecVirtual)) reg.VecVirtual {
	if l.masked {
		hi := ZMM()
		VEXTRACTF64X4(U8(1), acc[0], hi.AsY())
		op(reg.VecVirtual(hi), acc[0])
	} else {
		op(acc[1], acc[0])
	}
	x, y := acc[0], l.vector()
	if l.masked {
		VEXTRACTF32X4(U8(1), x.AsY(), y.AsX())
	} else {
		VEXTRACTF128(U8(1), x.AsY(), y.AsX())
	}
	op(y, x)
	VPERMILPD(U8(1), x.AsX(), y.AsX())
	op(y, x)
	VPERMILPS(U8(1), x.AsX(), y.AsX())
	op(y, x)
	return x
}

// floats16 is a view of f with counts in units of 16 lanes.
func (f *loop) floats16() *loop {
	return &loop{level: level{lanes: 16, masked: f.masked, suffix: f.suffix}, ptrs: f.ptrs}
}

// returns ends a function with the first lane of v as its result.
func returns(v reg.VecVirtual) {
	VMOVSS(v.AsX(), address(ReturnIndex(0)))
	finish()
}

// softmax generates the passes over a row of logits.
func softmax(c *numbers) {
	maximum(c)
	expSum(c)
	l := c.level
	f := l.begin("expScale", "func(dst, x *float32, n int, shift, scale float32)", "dst", "x")
	shift, scale := l.scalar("shift"), l.scalar("scale")
	f.groups(l.interleaved(), func(u int, at func(ptr, i int) Mem) {
		x := l.loads(u, func(i int) Mem { return at(1, i) })
		for i := range x {
			VSUBPS(shift, x[i], x[i])
		}
		c.exp(x)
		for i := range x {
			VMULPS(scale, x[i], x[i])
		}
		stores(x, func(i int) Mem { return at(0, i) })
	})
}

func maximum(c *numbers) {
	l, per := c.level, 16/c.lanes // vectors of 16 lanes
	f := l.begin("maximum", "func(x *float32, n int) float32", "x")
	larger := func(x, dst reg.VecVirtual) { VMAXPS(dst, x, dst) } // dst if either is NaN
	const chains = 2
	acc := append(c.lanes16("minusInf"), c.lanes16("minusInf")...)
	f.floats16().together(chains, func(u int, at func(ptr, i int) Mem) {
		x := l.loads(u*per, func(i int) Mem { return at(0, i/per).Offset(i % per * l.bytes()) })
		for i := range x {
			larger(x[i], acc[i])
		}
	})
	for i := range per {
		larger(acc[per+i], acc[i])
	}
	returns(l.fold16(acc[:per], larger))
}

func expSum(c *numbers) {
	l, per := c.level, 16/c.lanes
	f := l.begin("expSum", "func(x *float32, n int, shift float32) float32", "x")
	shift := l.scalar("shift")
	acc := l.zeros(per)
	f.floats16().together(max(1, l.interleaved()/per), func(u int, at func(ptr, i int) Mem) {
		x := l.loads(u*per, func(i int) Mem { return at(0, i/per).Offset(i % per * l.bytes()) })
		for i := range x {
			VSUBPS(shift, x[i], x[i])
		}
		c.exp(x)
		for i := range x { // fixed order of lanes
			VADDPS(x[i], acc[i%per], acc[i%per])
		}
	})
	returns(l.fold16(acc, func(x, dst reg.VecVirtual) { VADDPS(x, dst, dst) }))
}
