package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// numbers is a table in memory of vectors with a single repeated value, for operands without a
// register: a whole vector on AVX2, a broadcast of its first value on AVX-512.
type numbers struct {
	level
	table Mem
	at    map[string]int
}

// namedNumber is a named bit pattern.
type namedNumber struct {
	name string
	bits uint32
}

func number(name string, v float64) namedNumber {
	return namedNumber{name, math.Float32bits(float32(v))}
}

// newNumbers writes the table; call it once per name and output file, before functions with its
// constants.
func newNumbers(l level, name string, values []namedNumber) *numbers {
	c := &numbers{level: l, table: GLOBL(name, RODATA|NOPTR), at: map[string]int{}}
	for i, v := range values {
		c.at[v.name] = 32 * i
		for j := range 8 {
			DATA(32*i+4*j, U32(v.bits))
		}
	}
	return c
}

func (c *numbers) mem(name string) Mem {
	at, ok := c.at[name]
	if !ok {
		panic("no constant " + name)
	}
	return c.table.Offset(at)
}

// get returns the constant in a register.
func (c *numbers) get(name string) reg.VecVirtual { return c.broadcast(c.mem(name)) }

// The macros below process several vectors in place, interleaving one instruction for each: a
// single chain of dependent operations would leave the processor mostly idle. Four vectors on
// AVX-512 and two on AVX2 fit its registers and fill its pipes.

// interleaved is the number of vectors for a macro in a loop.
func (l level) interleaved() int {
	if l.masked {
		return 4
	}
	return 2
}

type vectors []reg.VecVirtual

func (l level) vectors(n int) vectors {
	v := make(vectors, n)
	for i := range v {
		v[i] = l.vector()
	}
	return v
}

// with emits out = x op constant.
func (c *numbers) with(name string, x, out vectors, op, broadcast func(...Op)) {
	for i := range x {
		if c.masked {
			broadcast(c.mem(name), x[i], out[i])
		} else {
			op(c.mem(name), x[i], out[i])
		}
	}
}

func (c *numbers) mul(name string, x, out vectors) { c.with(name, x, out, VMULPS, VMULPS_BCST) }
func (c *numbers) add(name string, x, out vectors) { c.with(name, x, out, VADDPS, VADDPS_BCST) }
func (c *numbers) sub(name string, x, out vectors) { c.with(name, x, out, VSUBPS, VSUBPS_BCST) }
func (c *numbers) and(name string, x, out vectors) { c.with(name, x, out, VANDPS, VANDPS_BCST) }
func (c *numbers) xor(name string, x, out vectors) { c.with(name, x, out, VXORPS, VXORPS_BCST) }

// zip emits out = a op b, op being VADDPS, VSUBPS and so on.
func zip(op func(...Op), a, b, out vectors) {
	for i := range out {
		op(b[i], a[i], out[i])
	}
}

// by emits out = a op b with a single register for all a's: 1/x, or 1-x.
func by(op func(...Op), a reg.VecVirtual, b, out vectors) {
	for i := range out {
		op(b[i], a, out[i])
	}
}

// expNumbers are the constants of exp, sigmoid and tanh; exp.go of package simd explains the
// method.
func expNumbers(l level, name string, more ...namedNumber) *numbers {
	return newNumbers(l, name, append([]namedNumber{
		number("one", 1), number("two", 2),
		number("inf", math.Inf(1)),
		number("log2e", 1.44269504088896341),
		number("round", 3<<22), number("round127", 3<<22+127),
		number("ln2hi", 0.693359375), number("ln2lo", -2.12194440e-4),
		number("low", -87.33654), number("high", 88.72283),
		number("p0", 1.9875691500e-4), number("p1", 1.3981999507e-3), number("p2", 8.3334519073e-3),
		number("p3", 4.1665795894e-2), number("p4", 1.6666665459e-1), number("p5", 5.0000001201e-1),
		number("tanhMax", 10),
		{"sign", 1 << 31}, {"magnitude", 1<<31 - 1},
	}, more...))
}

// reduce returns, for x = n·ln 2 + r, n + magic, with the low bits of n, and expm1(r). It does not
// change x.
func (c *numbers) reduce(x vectors, magic string) (t, q vectors) {
	t = c.vectors(len(x))
	r, a, b := c.vectors(len(x)), c.vectors(len(x)), c.vectors(len(x))
	c.mul("log2e", x, t)
	c.add(magic, t, t)
	c.sub(magic, t, a)
	c.mul("ln2hi", a, b)
	zip(VSUBPS, x, b, r)
	c.mul("ln2lo", a, b)
	zip(VSUBPS, r, b, r)

	c.mul("p0", r, a)
	c.add("p1", a, a)
	c.mul("p2", r, b)
	c.add("p3", b, b)
	square := c.vectors(len(x))
	zip(VMULPS, r, r, square)
	zip(VMULPS, a, square, a)
	zip(VADDPS, a, b, a)
	zip(VMULPS, a, square, a)
	c.mul("p4", r, b)
	c.add("p5", b, b)
	zip(VADDPS, a, b, a)
	zip(VMULPS, a, square, a)
	zip(VADDPS, a, r, a)
	return t, a
}

// exp emits x = exp(x), 30 instructions a vector at most, bit for bit simd.exp:
// 0 below -87.33654, +Inf above 88.72283, NaN for NaN.
func (c *numbers) exp(x vectors) {
	t, q := c.reduce(x, "round")
	c.add("one", q, q)
	for i := range x {
		VPSLLD(U8(23), t[i], t[i])
	}
	const greaterOrEqual, notLessOrEqual = 29, 6 // the second also where NaN
	for i, x := range x {
		if c.masked {
			some, over := K(), K()
			VCMPPS_BCST(U8(greaterOrEqual), c.mem("low"), x, some)
			VCMPPS_BCST(U8(notLessOrEqual), c.mem("high"), x, over)
			VPADDD_Z(t[i], q[i], some, q[i])
			VADDPS_BCST(c.mem("inf"), x, over, q[i])
			VMOVAPS(q[i], x)
			continue
		}
		over := c.vector()
		VPADDD(t[i], q[i], q[i])
		VCMPPS(U8(greaterOrEqual), c.mem("low"), x, t[i])
		VANDPS(t[i], q[i], q[i])
		VCMPPS(U8(notLessOrEqual), c.mem("high"), x, over)
		VADDPS(c.mem("inf"), x, t[i])
		VBLENDVPS(over, t[i], q[i], x)
	}
}

// sigmoid emits x = 1/(1+exp(-x)).
func (c *numbers) sigmoid(x vectors) {
	c.xor("sign", x, x)
	c.exp(x)
	c.add("one", x, x)
	by(VDIVPS, c.get("one"), x, x)
}

// tanh emits x = tanh(x), bit for bit simd.tanh.
func (c *numbers) tanh(x vectors) {
	z := c.vectors(len(x))
	c.and("magnitude", x, z)
	c.and("sign", x, x)
	most := c.get("tanhMax")
	for i := range z {
		VMINPS(z[i], most, z[i]) // NaN stays
	}
	zip(VADDPS, z, z, z)
	t, q := c.reduce(z, "round127")
	for i := range t {
		VPSLLD(U8(23), t[i], t[i]) // 2ⁿ
	}
	zip(VMULPS, q, t, q)
	c.sub("one", t, t)
	zip(VADDPS, q, t, q) // expm1(2|x|)
	c.add("two", q, t)
	zip(VDIVPS, q, t, q)
	for i := range x {
		VORPS(x[i], q[i], x[i])
	}
}
