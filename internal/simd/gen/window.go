package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// window is the loops of all pooling kernels: over the pixels of a run of outputs, the vectors of a
// pixel's channels, and the taps of its window. A tap is its position in the image, in bytes, and
// its number, 8 bytes each.
type window struct {
	level
	x, y, arg     reg.Register // the pixel's input, output and positions
	taps, n       reg.Register
	pixels, bytes reg.Register
	xstep, ystep  reg.Register
	c             reg.Register // bytes within the pixel
	offset        reg.Register // position of the current tap
	tap           reg.Register
	count         reg.Register
}

const windowRest = "taps *int64, n, pixels, bytes, xstep, ystep int"

func (l level) window(name, signature string, arg bool) *window {
	l.function(name, signature)
	w := &window{
		level: l, x: load("x"), y: load("y"), taps: load("taps"), n: load("n"), pixels: load("pixels"),
		bytes: load("bytes"), xstep: load("xstep"), ystep: load("ystep"),
		c: GP64(), offset: GP64(), tap: GP64(), count: GP64(),
	}
	if arg {
		w.arg = load("arg")
	}
	return w
}

// input is the vector of the current tap.
func (w *window) input() Mem { return Mem{Base: w.offset, Index: w.c, Scale: 1} }

// output is the vector of the current pixel.
func (w *window) output() Mem { return Mem{Base: w.y, Index: w.c, Scale: 1} }

func (w *window) number() Mem { return mem(w.tap, 8) }

// each emits the loops and ends the function. positions is the place of the vector's bytes.
func (w *window) each(begin, tap func(), end func(), positions reg.Register) {
	Label("pixel")
	XORQ(w.c, w.c)
	Label("vector")
	if positions != nil {
		MOVQ(w.c, positions)
		SHRQ(U8(2), positions)
		ADDQ(w.arg, positions)
	}
	begin()
	MOVQ(w.taps, w.tap)
	MOVQ(w.n, w.count)
	Label("tap")
	MOVQ(mem(w.tap, 0), w.offset)
	ADDQ(w.x, w.offset)
	tap()
	ADDQ(U8(16), w.tap)
	again("tap", w.count)
	end()
	ADDQ(U32(w.level.bytes()), w.c)
	CMPQ(w.c, w.bytes)
	JLT(LabelRef("vector"))
	ADDQ(w.xstep, w.x)
	ADDQ(w.ystep, w.y)
	if positions != nil {
		MOVQ(w.ystep, positions)
		SHRQ(U8(2), positions)
		ADDQ(positions, w.arg)
	}
	endLoop("pixel", w.pixels)
}

// windows generates the kernels of window.go.
func windows(l level) {
	ConstraintExpr("amd64")
	maxWindow(l)
	maxWindowGrad(l, true)
	maxWindowGrad(l, false)
	avgWindow(l)
	avgWindowGrad(l)
}

func maxWindow(l level) {
	none := newNumbers(l, "lowest", []namedNumber{{"minusInf", 0xff800000}})
	w := l.window("maxWindow", "func(y *float32, arg *uint8, x *float32, "+windowRest+")", true)
	best, at, positions := l.vector(), l.vector(), GP64()
	const notLessOrEqual, ordered, equal = 6, 7, 0
	w.each(func() {
		VBROADCASTSS(none.mem("minusInf"), best)
		VPBROADCASTD(mem(w.taps, 8), at) // the first, should none be greater
	}, func() { // taken where v > best or v is NaN, and best is a number
		v := l.loaded(w.input())
		if l.masked {
			k := K()
			VCMPPS(U8(notLessOrEqual), best, v, k)
			VCMPPS(U8(ordered), best, best, k, k)
			VMOVAPS(v, k, best)
			VPBROADCASTD(w.number(), k, at)
			return
		}
		take, number := l.vector(), l.vector()
		VCMPPS(U8(notLessOrEqual), best, v, take)
		VCMPPS(U8(ordered), best, best, number)
		VANDPS(number, take, take)
		VBLENDVPS(take, v, best, best)
		VPBROADCASTD(w.number(), number)
		VBLENDVPS(take, number, at, at)
	}, func() {
		VMOVUPS(best, w.output())
		if l.masked {
			VPMOVDB(at, mem(positions, 0))
			return
		}
		high := XMM()
		VEXTRACTI128(U8(1), at, high)
		VPACKUSDW(high, at.AsX(), high)
		VPACKUSWB(high, high, high)
		VMOVQ(high, mem(positions, 0))
	}, positions)
}

// maxWindowGrad adds to the input's gradient, or overwrites it if windows cover every pixel once.
func maxWindowGrad(l level, adds bool) {
	name := "maxWindowAdd"
	if !adds {
		name = "maxWindowPut"
	}
	w := l.window(name, "func(x, y *float32, arg *uint8, "+windowRest+")", true)
	at, dy, positions := l.vector(), l.vector(), GP64()
	w.each(func() {
		VPMOVZXBD(mem(positions, 0), at)
		VMOVUPS(w.output(), dy)
	}, func() {
		v := l.vector()
		if l.masked {
			k := K()
			VPCMPEQD_BCST(w.number(), at, k)
			VMOVAPS_Z(dy, k, v)
		} else {
			VPBROADCASTD(w.number(), v)
			VPCMPEQD(v, at, v)
			VANDPS(dy, v, v)
		}
		if adds {
			VADDPS(w.input(), v, v)
		}
		VMOVUPS(v, w.input())
	}, func() {}, positions)
}

func avgWindow(l level) {
	w := l.window("avgWindow", "func(y, x *float32, "+windowRest+", scale float32)", false)
	sum, scale := l.vector(), l.scalar("scale")
	w.each(func() {
		l.clear(sum)
	}, func() {
		VADDPS(w.input(), sum, sum)
	}, func() {
		VMULPS(scale, sum, sum)
		VMOVUPS(sum, w.output())
	}, nil)
}

func avgWindowGrad(l level) {
	w := l.window("avgWindowAdd", "func(x, y *float32, "+windowRest+", scale float32)", false)
	dy, scale := l.vector(), l.scalar("scale")
	w.each(func() {
		VMULPS(w.output(), scale, dy)
	}, func() {
		v := l.vector()
		VADDPS(w.input(), dy, v)
		VMOVUPS(v, w.input())
	}, func() {}, nil)
}
