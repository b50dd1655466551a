package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// conversions generates conversions between float32 and 16-bit values: n values, a multiple of the
// vector and at least one.
func conversions(l level) {
	for _, f := range []format{half, brain} {
		l.function("from"+f.suffix(), "func(dst *float32, src *uint16, n int)")
		l.convert(f, 4, 2, func(c *cells, dst, src Mem) {
			VMOVUPS(c.read(src, false), dst)
		})
	}
	l.function("toHalf", "func(dst *uint16, src *float32, n int)")
	l.convert(half, 2, 4, func(c *cells, dst, src Mem) {
		v := l.vector()
		VMOVUPS(src, v)
		c.narrow(v)
		c.write(v, dst, false)
	})
	l.function("toBrain", "func(dst *uint16, src *float32, n int)")
	quiet := l.bits(0x40)
	l.convert(brain, 2, 4, func(c *cells, dst, src Mem) {
		v, cut := l.vector(), l.vector()
		VMOVUPS(src, v)
		VPSRLD(U8(16), v, cut) // quieted NaN
		if l.masked {
			k := K()
			VCMPPS(U8(unordered), v, v, k)
			c.roundBrain(v)
			VPORD(quiet, cut, k, v)
		} else {
			nan := l.vector()
			VCMPPS(U8(unordered), v, v, nan)
			c.roundBrain(v)
			VPOR(quiet, cut, cut)
			VBLENDVPS(nan, cut, v, v)
		}
		c.pack(v)
		c.write(v, dst, false)
	})
}

// convert loops over values of these sizes in bytes.
func (l level) convert(f format, dstSize, srcSize uint8, body func(c *cells, dst, src Mem)) {
	c := l.cells(f)
	dst, src, n, at := load("dst"), load("src"), load("n"), GP64()
	XORQ(at, at)
	Label("vector")
	body(c, Mem{Base: dst, Index: at, Scale: dstSize}, Mem{Base: src, Index: at, Scale: srcSize})
	ADDQ(U8(l.lanes), at)
	CMPQ(at, n)
	JLT(LabelRef("vector"))
	finish()
}
