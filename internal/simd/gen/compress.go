package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// compression generates the kernels of gradient compression. Counts are
// multiples of the vector. Magnitudes are compared as integers: without the
// sign, floats order as their bits do, and NaN is above infinity.
func compression(l level) {
	ConstraintExpr("amd64")
	var packed Mem
	if !l.masked {
		packed = compressTable("compressTable")
	}
	lanes := l.laneTable("compressLanes")
	l.take("takeAdded", true, packed, lanes)
	l.take("take", false, packed, lanes)
	l.countAtLeast()
	l.maxMagnitude()
	l.sumMagnitudes()
	l.subtract()
	l.quantise()
	l.dequantise()
	l.toSigns()
	l.fromSigns()
}

// compressTable holds for each mask of 8 lanes which lanes it selects, in
// order, a byte each.
func compressTable(name string) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for mask := range 256 {
		at, word := 0, uint64(0)
		for lane := range 8 {
			if mask>>lane&1 == 1 {
				word |= uint64(lane) << (8 * at)
				at++
			}
		}
		DATA(8*mask, U64(word))
	}
	return m
}

// magnitudes broadcasts the mask that takes the sign away.
func (l level) magnitudes() vec { return l.bits(0x7fffffff) }

func (l level) and(a, b, to vec) {
	if l.masked {
		VPANDD(a, b, to)
	} else {
		VPAND(a, b, to)
	}
}

// laneTable holds the numbers of the lanes.
func (l level) laneTable(name string) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range l.lanes {
		DATA(4*i, U32(i))
	}
	return m
}

// countingFrom is base, base+1, ... and step the vector of lanes.
func (l level) countingFrom(base reg.GPVirtual, m Mem) (at, step vec) {
	at, step = l.vector(), l.bits(uint32(l.lanes))
	VMOVD(base.As32(), at.AsX())
	VPBROADCASTD(at.AsX(), at)
	VPADDD(m, at, at)
	return at, step
}

// takeAhead is how many bytes before its use a value is fetched: a turn has too
// many instructions for the processor to look far ahead itself.
const takeAhead = 1024

// take moves values whose magnitude's bits are at least least, and their
// places from base on, to value and index; it zeroes them in x and returns how
// many there are. added: x += grad first. It writes whole vectors, the first at
// the front of value and index, each at most at the place of the values read.
func (l level) take(name string, added bool, table, numbers Mem) {
	signature := "func(index *int32, value, x *float32, n int, least uint32, base int32) int"
	if added {
		signature = "func(index *int32, value, x, grad *float32, n int, least uint32, base int32) int"
	}
	TEXT(name+l.suffix, NOSPLIT, signature)
	Pragma("noescape")
	index, value, x, n := load("index"), load("value"), load("x"), load("n")
	var grad reg.GPVirtual
	if added {
		grad = load("grad")
	}
	base, least := GP32(), GP32()
	Load(Param("base"), base)
	Load(Param("least"), least)
	at, step := l.countingFrom(base.As64().(reg.GPVirtual), numbers)
	abs, bound, from := l.magnitudes(), l.vector(), GP64()
	if !l.masked {
		DECL(least) // the comparison is greater, signed: magnitudes are not negative
	}
	VMOVD(least, bound.AsX())
	VPBROADCASTD(bound.AsX(), bound)
	lanes := GP64()
	if !l.masked {
		LEAQ(table, lanes)
	}
	MOVQ(value, from)
	TESTQ(n, n)
	JZ(LabelRef("end"))
	Label("turn")
	g, m, taken := l.vector(), l.vector(), GP64()
	VMOVUPS(mem(x, 0), g)
	if added {
		VADDPS(mem(grad, 0), g, g)
	}
	PREFETCHT0(mem(x, takeAhead))
	if added {
		PREFETCHT0(mem(grad, takeAhead))
	}
	l.and(abs, g, m)
	if l.masked {
		l.takeMasked(g, m, bound, at, x, index, value, taken)
	} else {
		l.takeTable(g, m, bound, at, x, index, value, taken, lanes)
	}
	VPADDD(step, at, at)
	ADDQ(U32(l.bytes()), x)
	if added {
		ADDQ(U32(l.bytes()), grad)
	}
	SUBQ(U32(l.lanes), n)
	JNZ(LabelRef("turn"))
	Label("end")
	SUBQ(from, value)
	SHRQ(U8(2), value)
	Store(value, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func (l level) takeMasked(g, m, bound, at vec, x, index, value, taken reg.GPVirtual) {
	some, rest := K(), K()
	const notLess = 5
	VPCMPUD(U8(notLess), bound, m, some)
	KNOTW(some, rest)
	kept, values, places := l.vector(), l.vector(), l.vector()
	VMOVAPS_Z(g, rest, kept)
	VMOVUPS(kept, mem(x, 0))
	KMOVW(some, taken.As32())
	VCOMPRESSPS_Z(g, some, values)
	VPCOMPRESSD_Z(at, some, places)
	POPCNTQ(taken, taken)
	VMOVUPS(values.AsY(), mem(value, 0))
	VMOVUPS(places.AsY(), mem(index, 0))
	CMPQ(taken, U8(8)) // rarely more: half a vector crosses half as many lines
	JLE(LabelRef("none"))
	VMOVUPS(values, mem(value, 0))
	VMOVUPS(places, mem(index, 0))
	Label("none")
	LEAQ(Mem{Base: index, Index: taken, Scale: 4}, index)
	LEAQ(Mem{Base: value, Index: taken, Scale: 4}, value)
}

func (l level) takeTable(g, m, bound, at vec, x, index, value, taken, table reg.GPVirtual) {
	order, kept := l.vector(), l.vector()
	VPCMPGTD(bound, m, m)
	VMOVMSKPS(m, taken.As32())
	VPANDN(g, m, kept)
	VMOVUPS(kept, mem(x, 0))
	TESTL(taken.As32(), taken.As32())
	JZ(LabelRef("none"))
	VPMOVZXBD(Mem{Base: table, Index: taken, Scale: 8}, order)
	VPERMPS(g, order, kept)
	VMOVUPS(kept, mem(value, 0))
	VPERMD(at, order, order)
	VMOVDQU(order, mem(index, 0))
	POPCNTQ(taken, taken)
	LEAQ(Mem{Base: index, Index: taken, Scale: 4}, index)
	LEAQ(Mem{Base: value, Index: taken, Scale: 4}, value)
	Label("none")
}

// countAtLeast counts magnitudes of at least least.
func (l level) countAtLeast() {
	f := l.begin("countAtLeast", "func(x *float32, n int, least uint32) int", "x")
	abs, bound, least, count := l.magnitudes(), l.vector(), GP32(), GP64()
	Load(Param("least"), least)
	if !l.masked {
		DECL(least)
	}
	VMOVD(least, bound.AsX())
	VPBROADCASTD(bound.AsX(), bound)
	XORQ(count, count)
	f.run(4, func(at func(int) Mem) {
		m, taken := l.vector(), GP64()
		VMOVUPS(at(0), m)
		l.and(abs, m, m)
		if l.masked {
			k := K()
			VPCMPUD(U8(5), bound, m, k)
			KMOVW(k, taken.As32())
		} else {
			VPCMPGTD(bound, m, m)
			VMOVMSKPS(m, taken.As32())
		}
		POPCNTQ(taken, taken)
		ADDQ(taken, count)
	})
	Store(count, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// maxMagnitude is the largest of the magnitudes' bits.
func (l level) maxMagnitude() {
	f := l.begin("maxMagnitude", "func(x *float32, n int) uint32", "x")
	abs, acc := l.magnitudes(), l.zero()
	f.run(4, func(at func(int) Mem) {
		m := l.vector()
		VMOVUPS(at(0), m)
		l.and(abs, m, m)
		VPMAXUD(m, acc, acc)
	})
	y, x, t := acc.AsY(), acc.AsX(), YMM()
	if l.masked {
		VEXTRACTI64X4(U8(1), acc.AsZ(), t)
		VPMAXUD(t, y, y)
	}
	VEXTRACTI128(U8(1), y, t.AsX())
	VPMAXUD(t.AsX(), x, x)
	for _, swap := range []uint8{0x4e, 0xb1} {
		VPSHUFD(U8(swap), x, t.AsX())
		VPMAXUD(t.AsX(), x, x)
	}
	out := GP32()
	VMOVD(x, out)
	Store(out, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// sumMagnitudes adds magnitudes to 16 lanes of float64, 16 floats a turn.
func (l level) sumMagnitudes() {
	f := l.begin("sumMagnitudes", "func(lanes *[16]float64, x *float32, n int)", "x")
	lanes, abs := load("lanes"), l.vector()
	bits := GP64()
	MOVQ(U64(1<<63-1), bits)
	VMOVQ(bits, abs.AsX())
	VPBROADCASTQ(abs.AsX(), abs)
	acc := make([]vec, 2*16/l.lanes)
	for i := range acc {
		acc[i] = l.vector()
		VMOVUPD(mem(lanes, i*l.bytes()), acc[i])
	}
	f.level = level{lanes: 16, masked: l.masked, suffix: l.suffix}
	f.run(2, func(at func(int) Mem) {
		for i, a := range acc {
			x, m := l.vector(), at(0)
			m.Disp += i * l.bytes() / 2
			VCVTPS2PD(m, x)
			l.and(abs, x, x)
			VADDPD(x, a, a)
		}
	})
	for i, a := range acc {
		VMOVUPD(a, mem(lanes, i*l.bytes()))
	}
	VZEROUPPER()
	RET()
}

func (l level) subtract() {
	f := l.begin("subtract", "func(x, y *float32, n int)", "x", "y")
	f.each(func(at func(int) Mem) {
		v := l.vector()
		VMOVUPS(at(0), v)
		VSUBPS(at(1), v, v)
		VMOVUPS(v, at(0))
	})
}

// quantise rounds x*factor, which is within -127 to 127, to the nearest, ties to even.
func (l level) quantise() {
	TEXT("quantise"+l.suffix, NOSPLIT, "func(dst *int8, x *float32, n int, factor float32)")
	Pragma("noescape")
	dst, x, n, factor := load("dst"), load("x"), load("n"), l.scalar("factor")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	Label("turn")
	v := l.vector()
	VMULPS(mem(x, 0), factor, v)
	VCVTPS2DQ(v, v)
	if l.masked {
		VPMOVSDB(v, mem(dst, 0))
	} else {
		high := XMM()
		VEXTRACTI128(U8(1), v, high)
		VPACKSSDW(high, v.AsX(), high)
		VPACKSSWB(high, high, high)
		VMOVQ(high, mem(dst, 0))
	}
	ADDQ(U8(l.lanes), dst)
	ADDQ(U8(l.bytes()), x)
	SUBQ(U8(l.lanes), n)
	JNZ(LabelRef("turn"))
	Label("end")
	VZEROUPPER()
	RET()
}

func (l level) dequantise() {
	TEXT("dequantise"+l.suffix, NOSPLIT, "func(dst *float32, x *int8, n int, scale float32)")
	Pragma("noescape")
	dst, x, n, scale := load("dst"), load("x"), load("n"), l.scalar("scale")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	Label("turn")
	v := l.vector()
	VPMOVSXBD(mem(x, 0), v)
	VCVTDQ2PS(v, v)
	VMULPS(scale, v, v)
	VMOVUPS(v, mem(dst, 0))
	ADDQ(U8(l.bytes()), dst)
	ADDQ(U8(l.lanes), x)
	SUBQ(U8(l.lanes), n)
	JNZ(LabelRef("turn"))
	Label("end")
	VZEROUPPER()
	RET()
}

// toSigns packs the sign bits, the first into the lowest bit of the first byte.
func (l level) toSigns() {
	TEXT("toSigns"+l.suffix, NOSPLIT, "func(dst *byte, x *float32, n int)")
	Pragma("noescape")
	dst, x, n := load("dst"), load("x"), load("n")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	Label("turn")
	v, bits := l.vector(), GP32()
	VMOVUPS(mem(x, 0), v)
	if l.masked {
		k := K()
		VPMOVD2M(v, k)
		KMOVW(k, bits)
		MOVW(bits.As16(), mem(dst, 0))
	} else {
		VMOVMSKPS(v, bits)
		MOVB(bits.As8(), mem(dst, 0))
	}
	ADDQ(U8(l.lanes/8), dst)
	ADDQ(U8(l.bytes()), x)
	SUBQ(U8(l.lanes), n)
	JNZ(LabelRef("turn"))
	Label("end")
	VZEROUPPER()
	RET()
}

// fromSigns writes scale, or -scale where the bit is set.
func (l level) fromSigns() {
	var lanes Mem
	if !l.masked {
		lanes = GLOBL("signLanes", RODATA|NOPTR)
		for i := range 8 {
			DATA(4*i, U32(31-i)) // shifts bit i to the sign
		}
	}
	TEXT("fromSigns"+l.suffix, NOSPLIT, "func(dst *float32, x *byte, n int, scale float32)")
	Pragma("noescape")
	dst, x, n, scale, sign := load("dst"), load("x"), load("n"), l.scalar("scale"), l.bits(1<<31)
	var negative, shift vec
	if l.masked {
		negative = l.vector()
		VPXORD(sign, scale, negative)
	} else {
		shift = l.vector()
		VMOVDQU(lanes, shift)
	}
	TESTQ(n, n)
	JZ(LabelRef("end"))
	Label("turn")
	v, bits := l.vector(), GP32()
	if l.masked {
		k := K()
		MOVWLZX(mem(x, 0), bits)
		KMOVW(bits, k)
		VBLENDMPS(negative, scale, k, v)
	} else {
		MOVBLZX(mem(x, 0), bits)
		VMOVD(bits, v.AsX())
		VPBROADCASTD(v.AsX(), v)
		VPSLLVD(shift, v, v)
		VPAND(sign, v, v)
		VPXOR(scale, v, v)
	}
	VMOVUPS(v, mem(dst, 0))
	ADDQ(U8(l.bytes()), dst)
	ADDQ(U8(l.lanes/8), x)
	SUBQ(U8(l.lanes), n)
	JNZ(LabelRef("turn"))
	Label("end")
	VZEROUPPER()
	RET()
}
