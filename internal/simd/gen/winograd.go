package main

import (
	"fmt"
	"math"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vec abbreviates the type of vector registers.
type vec = reg.VecVirtual

// constants are broadcast once per function.
type constants struct {
	l  level
	of map[float32]vec
}

// get returns a vector of the constant, named at the start of the function.
func (c *constants) get(x float32) vec {
	v, ok := c.of[x]
	if !ok {
		panic(fmt.Sprintf("constant %v is not loaded", x))
	}
	return v
}

func (l level) constants(name string, xs ...float32) *constants {
	c := &constants{l: l, of: map[float32]vec{}}
	for i, x := range xs {
		m := GLOBL(fmt.Sprintf("%s_%d_%s", name, i, l.suffix), RODATA|NOPTR)
		DATA(0, U32(math.Float32bits(x)))
		c.of[x] = l.broadcast(m)
	}
	return c
}

func (l level) add(a, b vec) vec { v := l.vector(); VADDPS(b, a, v); return v }
func (l level) sub(a, b vec) vec { v := l.vector(); VSUBPS(b, a, v); return v } // a-b

// mad is a + f*x, msub is a - f*x, each rounded once.
func (c *constants) mad(a vec, f float32, x vec) vec  { return c.fused(VFMADD231PS, a, f, x) }
func (c *constants) msub(a vec, f float32, x vec) vec { return c.fused(VFNMADD231PS, a, f, x) }

func (c *constants) fused(op func(...Op), a vec, f float32, x vec) vec {
	v := c.l.vector()
	VMOVAPS(a, v)
	op(c.get(f), x, v)
	return v
}

func (c *constants) mul(f float32, x vec) vec {
	v := c.l.vector()
	VMULPS(c.get(f), x, v)
	return v
}

// winogradTransform is a one-dimensional transform of a values to b, for the columns and then the
// rows of a tile.
type winogradTransform struct {
	name      string
	a, b      int
	constants []float32
	f         func(c *constants, d []vec) []vec
	bias      bool // add a bias, and take the maximum with a floor
	ahead     int  // prefetch distance of the source in tiles; 0: none
}

// winogradTransforms are the matrices of Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks" (2016), for 3x3 windows: F(2x2) and F(4x4). The transforms of the gradients are their
// transposes.
var winogradTransforms = []winogradTransform{
	{name: "winogradInput4", a: 6, b: 6, constants: []float32{2, 4, 5}, f: func(c *constants, d []vec) []vec {
		l := c.l
		p, q := c.msub(d[4], 4, d[2]), c.msub(d[3], 4, d[1])
		r, s := l.sub(d[4], d[2]), l.sub(d[3], d[1])
		return []vec{
			c.mad(c.msub(d[4], 5, d[2]), 4, d[0]),
			l.add(p, q), l.sub(p, q),
			c.mad(r, 2, s), c.msub(r, 2, s),
			c.mad(c.msub(d[5], 5, d[3]), 4, d[1]),
		}
	}},
	{name: "winogradOutput4", a: 6, b: 4, constants: []float32{2, 4, 8}, bias: true, f: func(c *constants, m []vec) []vec {
		l := c.l
		p, q := l.add(m[1], m[2]), l.sub(m[1], m[2])
		r, s := l.add(m[3], m[4]), l.sub(m[3], m[4])
		return []vec{
			l.add(l.add(m[0], p), r),
			c.mad(q, 2, s),
			c.mad(p, 4, r),
			l.add(c.mad(q, 8, s), m[5]),
		}
	}},
	{name: "winogradOutputGrad4", a: 4, b: 6, constants: []float32{2, 4}, f: func(c *constants, y []vec) []vec {
		l := c.l
		p, q := l.add(y[0], y[2]), l.add(y[1], y[3])
		r, s := c.mad(y[0], 4, y[2]), c.mad(y[1], 4, y[3])
		return []vec{y[0], l.add(p, q), l.sub(p, q), c.mad(r, 2, s), c.msub(r, 2, s), y[3]}
	}},
	{name: "winogradWeights4", a: 3, b: 6, ahead: 8, constants: []float32{1. / 4, 1. / 6, 1. / 12, 1. / 24}, f: func(c *constants, g []vec) []vec {
		l := c.l
		p, q := c.mul(1./6, l.add(g[0], g[2])), c.mul(1./6, g[1])
		r, s := c.mad(c.mul(1./6, g[2]), 1./24, g[0]), c.mul(1./12, g[1])
		n := l.zero()
		n = l.sub(n, p)
		return []vec{c.mul(1./4, g[0]), l.sub(n, q), l.add(n, q), l.add(r, s), l.sub(r, s), g[2]}
	}},
	{name: "winogradWeightsGrad4", a: 6, b: 3, constants: []float32{1. / 4, 1. / 6, 1. / 12, 1. / 24}, f: func(c *constants, u []vec) []vec {
		l := c.l
		p, q := l.add(u[1], u[2]), l.sub(u[2], u[1])
		r, s := l.add(u[3], u[4]), l.sub(u[3], u[4])
		return []vec{
			c.msub(c.mad(c.mul(1./4, u[0]), 1./24, r), 1./6, p),
			c.mad(c.mul(1./6, q), 1./12, s),
			c.msub(c.mad(u[5], 1./6, r), 1./6, p),
		}
	}},
	{name: "winogradInput2", a: 4, b: 4, f: func(c *constants, d []vec) []vec {
		l := c.l
		return []vec{l.sub(d[0], d[2]), l.add(d[1], d[2]), l.sub(d[2], d[1]), l.sub(d[1], d[3])}
	}},
	{name: "winogradOutput2", a: 4, b: 2, bias: true, f: func(c *constants, m []vec) []vec {
		l := c.l
		return []vec{l.add(l.add(m[0], m[1]), m[2]), l.sub(l.sub(m[1], m[2]), m[3])}
	}},
	{name: "winogradOutputGrad2", a: 2, b: 4, f: func(c *constants, y []vec) []vec {
		l := c.l
		return []vec{y[0], l.add(y[0], y[1]), l.sub(y[0], y[1]), l.sub(l.zero(), y[1])}
	}},
	{name: "winogradWeights2", a: 3, b: 4, ahead: 8, constants: []float32{0.5}, f: func(c *constants, g []vec) []vec {
		l := c.l
		p, q := c.mul(0.5, l.add(g[0], g[2])), c.mul(0.5, g[1])
		return []vec{g[0], l.add(p, q), l.sub(p, q), g[2]}
	}},
	{name: "winogradWeightsGrad2", a: 4, b: 3, constants: []float32{0.5}, f: func(c *constants, u []vec) []vec {
		l := c.l
		p, q := l.add(u[1], u[2]), l.sub(u[1], u[2])
		return []vec{c.mad(u[0], 0.5, p), c.mul(0.5, q), c.mad(u[3], 0.5, p)}
	}},
}

// winogradBrain are the transforms of F(4x4) with the points 0, ±3/4, ±3/2 and infinity: products of
// bfloat16 points have half the error of those at 0, ±1, ±2 and infinity.
var winogradBrain = func() []winogradTransform {
	const a, b = 3. / 4, 3. / 2
	const aa, bb = a * a, b * b
	// The weights' values at ±a and ±b are divided by these.
	const na, nb = 2 * aa * (aa - bb), 2 * bb * (bb - aa)
	return []winogradTransform{
		{name: "winogradBrainInput", a: 6, b: 6, constants: []float32{a, b, aa, bb, aa + bb, aa * bb}, f: func(c *constants, d []vec) []vec {
			p, q := c.msub(d[4], bb, d[2]), c.msub(d[3], bb, d[1])
			r, s := c.msub(d[4], aa, d[2]), c.msub(d[3], aa, d[1])
			return []vec{
				c.mad(c.msub(d[4], aa+bb, d[2]), aa*bb, d[0]),
				c.mad(p, a, q), c.msub(p, a, q),
				c.mad(r, b, s), c.msub(r, b, s),
				c.mad(c.msub(d[5], aa+bb, d[3]), aa*bb, d[1]),
			}
		}},
		{name: "winogradBrainOutput", a: 6, b: 4, constants: []float32{a, b, aa, bb, a * aa, b * bb}, bias: true, f: func(c *constants, m []vec) []vec {
			l := c.l
			p, q := l.add(m[1], m[2]), l.sub(m[1], m[2])
			r, s := l.add(m[3], m[4]), l.sub(m[3], m[4])
			return []vec{
				l.add(l.add(m[0], p), r),
				c.mad(c.mul(a, q), b, s),
				c.mad(c.mul(aa, p), bb, r),
				c.mad(c.mad(m[5], a*aa, q), b*bb, s),
			}
		}},
		{name: "winogradBrainOutputGrad", a: 4, b: 6, constants: []float32{a, b, aa, bb}, f: func(c *constants, y []vec) []vec {
			p, q := c.mad(y[0], aa, y[2]), c.mul(a, c.mad(y[1], aa, y[3]))
			r, s := c.mad(y[0], bb, y[2]), c.mul(b, c.mad(y[1], bb, y[3]))
			l := c.l
			return []vec{y[0], l.add(p, q), l.sub(p, q), l.add(r, s), l.sub(r, s), y[3]}
		}},
		{name: "winogradBrainWeights", a: 3, b: 6, ahead: 8, constants: []float32{1 / (aa * bb), 1 / na, a / na, aa / na, 1 / nb, b / nb, bb / nb}, f: func(c *constants, g []vec) []vec {
			l := c.l
			p, q := c.mad(c.mul(1/na, g[0]), aa/na, g[2]), c.mul(a/na, g[1])
			r, s := c.mad(c.mul(1/nb, g[0]), bb/nb, g[2]), c.mul(b/nb, g[1])
			return []vec{c.mul(1/(aa*bb), g[0]), l.add(p, q), l.sub(p, q), l.add(r, s), l.sub(r, s), g[2]}
		}},
		{name: "winogradBrainWeightsGrad", a: 6, b: 3, constants: []float32{1 / (aa * bb), 1 / na, a / na, aa / na, 1 / nb, b / nb, bb / nb}, f: func(c *constants, u []vec) []vec {
			l := c.l
			p, q := l.add(u[1], u[2]), l.sub(u[1], u[2])
			r, s := l.add(u[3], u[4]), l.sub(u[3], u[4])
			return []vec{
				c.mad(c.mad(c.mul(1/(aa*bb), u[0]), 1/na, p), 1/nb, r),
				c.mad(c.mul(a/na, q), b/nb, s),
				c.mad(c.mad(u[5], aa/na, p), bb/nb, r),
			}
		}},
	}
}()

func winograd(l level) {
	ConstraintExpr("amd64")
	for _, t := range winogradTransforms {
		t.generate(l)
	}
	if l.name == avx512.name {
		for _, t := range winogradBrain {
			t.generate(l)
		}
	}
}

// strides holds a stride and its multiples, enough to address up to 6.
type strides struct{ one, three, five reg.GPVirtual }

func loadStride(name string, n int) strides {
	s := strides{one: load(name)}
	if n > 3 {
		s.three = GP64()
		LEAQ(Mem{Base: s.one, Index: s.one, Scale: 2}, s.three)
	}
	if n > 5 {
		s.five = GP64()
		LEAQ(Mem{Base: s.one, Index: s.one, Scale: 4}, s.five)
	}
	return s
}

func (s strides) at(base reg.Register, i int) Mem {
	switch i {
	case 0:
		return Mem{Base: base}
	case 3:
		return Mem{Base: base, Index: s.three, Scale: 1}
	case 5:
		return Mem{Base: base, Index: s.five, Scale: 1}
	}
	return Mem{Base: base, Index: s.one, Scale: uint8(i)}
}

// generate writes the two-dimensional transform of tiles of vectors: columns
// first, by way of tmp, then rows. Strides are in bytes.
func (t winogradTransform) generate(l level) {
	signature := "func(dst *float32, dstRow, dstCol, dstNext int, src *float32, srcRow, srcCol, srcNext int, tmp *float32, vectors, tiles int"
	if t.bias {
		signature += ", bias *float32, biasStep int, floor float32"
	}
	l.function(t.name, signature+")")
	c := l.constants(t.name, t.constants...)
	dst, src, tmp := load("dst"), load("src"), load("tmp")
	var bias reg.GPVirtual
	var floor vec
	if t.bias {
		floor = l.scalar("floor")
		bias = GP64()
	}
	tiles := address(Param("tiles"))
	vectors := GP64()
	Label("tile")
	Load(Param("vectors"), vectors)
	if t.bias {
		Load(Param("bias"), bias)
	}
	Label("vector")
	t.columns(l, c, src, tmp)
	t.rows(l, c, dst, tmp, bias, floor)
	ADDQ(U32(l.bytes()), src)
	ADDQ(U32(l.bytes()), dst)
	if t.bias {
		ADDQ(load("biasStep"), bias)
	}
	again("vector", vectors)
	ADDQ(load("srcNext"), src)
	ADDQ(load("dstNext"), dst)
	endLoop("tile", tiles)
}

func (t winogradTransform) columns(l level, c *constants, src, tmp reg.Register) {
	row, col := loadStride("srcRow", t.a), load("srcCol")
	at := copied(src)
	next := GP64()
	if t.ahead > 0 {
		Load(Param("vectors"), next)
		SHLQ(U8(bits.TrailingZeros(uint(l.bytes()))), next)
		ADDQ(load("srcNext"), next)
		SHLQ(U8(bits.TrailingZeros(uint(t.ahead))), next)
		ADDQ(src, next)
	}
	for j := range t.a {
		d := make([]vec, t.a)
		for i := range d {
			d[i] = l.loaded(row.at(at, i))
			if t.ahead > 0 {
				PREFETCHT0(row.at(next, i))
			}
		}
		for i, v := range t.f(c, d) {
			VMOVUPS(v, mem(tmp, (i*t.a+j)*l.bytes()))
		}
		if j < t.a-1 {
			ADDQ(col, at)
			if t.ahead > 0 {
				ADDQ(col, next)
			}
		}
	}
}

func (t winogradTransform) rows(l level, c *constants, dst, tmp, bias reg.Register, floor vec) {
	row, col := load("dstRow"), loadStride("dstCol", t.b)
	at := copied(dst)
	for i := range t.b {
		d := make([]vec, t.a)
		for j := range d {
			d[j] = l.loaded(mem(tmp, (i*t.a+j)*l.bytes()))
		}
		for j, v := range t.f(c, d) {
			if t.bias {
				w := l.vector()
				VADDPS(Mem{Base: bias}, v, w)
				VMAXPS(w, floor, w) // of floor and w, w where they are unordered
				v = w
			}
			VMOVUPS(v, col.at(at, j))
		}
		if i < t.b-1 {
			ADDQ(row, at)
		}
	}
}
