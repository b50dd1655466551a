package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// format is the memory format of values computed with as float32.
type format uint8

const (
	float format = iota
	half
	brain
)

// cells reads and writes vectors of values of a format.
type cells struct {
	level
	format
	tail       *tail // nil: whole vectors only
	almostHalf vec   // 0x7fff for brain
}

func (l level) cells(f format) *cells {
	c := &cells{level: l, format: f}
	if f == brain {
		c.almostHalf = l.bits(0x7fff)
	}
	return c
}

func (f format) suffix() string { return [...]string{"", "Half", "Brain"}[f] }

// size is of a value, in bytes.
func (f format) size() int { return [...]int{4, 2, 2}[f] }

func (f format) goType() string { return [...]string{"float32", "uint16", "uint16"}[f] }

// bytes is the size of a vector's values.
func (c *cells) bytes() int { return c.size() * c.lanes }

// packed is the part of a register with the 16-bit values of all its lanes.
func (c *cells) packed(v vec) reg.Register {
	if c.masked {
		return v.AsY()
	}
	return v.AsX()
}

// widen converts the packed values of memory or of a register to float32.
func (c *cells) widen(packed Op, v vec) {
	if c.format == half {
		VCVTPH2PS(packed, v)
		return
	}
	VPMOVZXWD(packed, v)
	VPSLLD(U8(16), v, v)
}

// narrow rounds to the nearest even, and packs. NaNs of brain must have a lower half of 0.
func (c *cells) narrow(v vec) {
	switch c.format {
	case half:
		VCVTPS2PH(U8(0), v, c.packed(v))
	case brain:
		c.roundBrain(v)
		c.pack(v)
	}
}

// roundBrain leaves the upper half of each lane in the lower, rounded: a carry
// out of the fraction makes the next power of two, or infinity.
func (c *cells) roundBrain(v vec) {
	odd := c.vector()
	VPSLLD(U8(15), v, odd)
	VPSRLD(U8(31), odd, odd)
	VPADDD(odd, v, v)
	VPADDD(c.almostHalf, v, v)
	VPSRLD(U8(16), v, v)
}

// pack drops the upper half of each lane, which is 0.
func (c *cells) pack(v vec) {
	if c.masked {
		VPMOVDW(v, v.AsY())
		return
	}
	high := XMM()
	VEXTRACTI128(U8(1), v, high)
	VPACKUSDW(high, v.AsX(), v.AsX())
}

// read reads a vector, or the lanes of the tail.
func (c *cells) read(m Mem, tail bool) vec {
	v := c.vector()
	switch {
	case c.format == float && tail:
		return c.tail.read(m)
	case c.format == float:
		VMOVUPS(m, v)
	case tail:
		VMOVDQU16_Z(m, c.tail.mask, c.packed(v))
		c.widen(c.packed(v), v)
	default:
		c.widen(m, v)
	}
	return v
}

// write writes the result of narrow.
func (c *cells) write(v vec, m Mem, tail bool) {
	switch {
	case c.format == float && tail:
		c.tail.write(v, m)
	case c.format == float:
		VMOVUPS(v, m)
	case tail:
		VMOVDQU16(c.packed(v), c.tail.mask, m)
	default:
		VMOVDQU(c.packed(v), m)
	}
}

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
