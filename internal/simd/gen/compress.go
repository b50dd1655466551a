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
	packed := compressTable("compressTable")
	var order Mem
	if !l.masked {
		order = packedOrder()
	}
	lanes := l.laneTable("compressLanes")
	for _, added := range []bool{false, true} {
		name := "take"
		if added {
			name = "takeAdded"
		}
		l.take(name, added, packed, order)
		l.takeMany(name+"Many", added, packed, lanes)
	}
	l.fromBitmap(packed, lanes)
	if !l.masked { // used by both levels
		gaps()
	}
	l.addRuns()
	l.countAtLeast()
	l.maxMagnitude()
	l.minAtLeast()
	l.below(packed)
	l.separate(packed)
	l.sumMagnitudes()
	l.begin("subtract", "func(x, y *float32, n int)", "x", "y").combine(VSUBPS, 0, 1)
	l.quantise()
	l.dequantise()
	l.quantiseBlocks()
	l.dequantiseBlocks()
	l.toSigns()
	l.fromSigns()
}

// compressTable holds, for each mask of 8 lanes, the selected lanes in order, a byte each.
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

// magnitudes broadcasts the mask that clears the sign.
func (l level) magnitudes() vec { return l.bits(0x7fffffff) }

func (l level) and(a, b Op, to vec) {
	if l.masked {
		VPANDD(a, b, to)
	} else {
		VPAND(a, b, to)
	}
}

// words32 is a table of n 32-bit words.
func words32(name string, n int, word func(i int) uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range n {
		DATA(4*i, U32(word(i)))
	}
	return m
}

// laneTable holds the numbers of the lanes.
func (l level) laneTable(name string) Mem {
	return words32(name, l.lanes, func(i int) uint32 { return uint32(i) })
}

// runFloats is simd.RunFloats.
const runFloats = 16

// addRuns adds runs of two arrays from given indices on, one or more.
func (l level) addRuns() {
	l.function("addRuns", "func(dst, a, b *float32, at *uint32, runs int)")
	dst, a, b, at, runs, place := load("dst"), load("a"), load("b"), load("at"), load("runs"), GP64()
	Label("run")
	MOVL(mem(at, 0), place.As32())
	for lane := 0; lane < runFloats; lane += l.lanes {
		v := l.loaded(Mem{Base: a, Index: place, Scale: 4, Disp: 4 * lane})
		VADDPS(Mem{Base: b, Index: place, Scale: 4, Disp: 4 * lane}, v, v)
		VMOVUPS(v, mem(dst, 4*lane))
	}
	ADDQ(U8(4), at)
	ADDQ(U8(4*runFloats), dst)
	endLoop("run", runs)
}

// countAtLeast counts magnitudes of at least least, in the lanes of two vectors.
func (l level) countAtLeast() {
	f := l.begin("countAtLeast", "func(x *float32, n int, least uint32) uint32", "x")
	abs, bound := l.magnitudes(), l.boundOf("least")
	counts, turn := []vec{l.zero(), l.zero()}, 0
	var one vec
	if l.masked {
		one = l.bits(1)
	}
	f.run(4, func(at func(int) Mem) {
		m, count := l.vector(), counts[turn%2]
		turn++
		l.and(at(0), abs, m)
		if l.masked {
			k := K()
			VPCMPUD(U8(5), bound, m, k)
			VPADDD(one, count, k, count)
			return
		}
		VPCMPGTD(bound, m, m)
		VPSUBD(m, count, count) // true is -1
	})
	VPADDD(counts[1], counts[0], counts[0])
	l.foldInts(counts[0], VPADDD)
}

// maxMagnitude is the largest of the magnitudes' bits.
func (l level) maxMagnitude() {
	f := l.begin("maxMagnitude", "func(x *float32, n int) uint32", "x")
	abs, acc := l.magnitudes(), l.zero()
	f.run(4, func(at func(int) Mem) {
		m := l.loaded(at(0))
		l.and(abs, m, m)
		VPMAXUD(m, acc, acc)
	})
	l.foldInts(acc, VPMAXUD)
}

// foldInts ends a function with the fold of the lanes of acc as its result.
func (l level) foldInts(acc vec, fold func(...Op)) {
	l.foldLanes(acc, fold)
	out := GP32()
	VMOVD(acc.AsX(), out)
	Store(out, ReturnIndex(0))
	finish()
}

// foldLanes leaves the fold of the lanes of acc in the first one.
func (l level) foldLanes(acc vec, fold func(...Op)) {
	y, x, t := acc.AsY(), acc.AsX(), YMM()
	if l.masked {
		VEXTRACTI64X4(U8(1), acc.AsZ(), t)
		fold(t, y, y)
	}
	VEXTRACTI128(U8(1), y, t.AsX())
	fold(t.AsX(), x, x)
	for _, swap := range []uint8{0x4e, 0xb1} {
		VPSHUFD(U8(swap), x, t.AsX())
		fold(t.AsX(), x, x)
	}
}

// sumMagnitudes adds magnitudes to 16 lanes of float64, 16 floats a turn.
func (l level) sumMagnitudes() {
	f := l.begin("sumMagnitudes", "func(lanes *[16]float64, x *float32, n int)", "x")
	lanes, abs := load("lanes"), l.vector()
	bits := GP64()
	MOVQ(U64(1<<63-1), bits)
	VMOVQ(bits, abs.AsX())
	VPBROADCASTQ(abs.AsX(), abs)
	f.doubles(lanes, func(x, acc vec) {
		l.and(abs, x, x)
		VADDPD(x, acc, acc)
	})
}

// perVector runs body for each vector of n values, and ends the function.
func (l level) perVector(n reg.Register, body func()) {
	TESTQ(n, n)
	JZ(LabelRef("end"))
	Label("turn")
	body()
	SUBQ(U8(l.lanes), n)
	JNZ(LabelRef("turn"))
	Label("end")
	finish()
}

// quantise rounds x*factor, within -127 to 127, to nearest, ties to even.
func (l level) quantise() {
	l.function("quantise", "func(dst *int8, x *float32, n int, factor float32)")
	dst, x, n, factor := load("dst"), load("x"), load("n"), l.scalar("factor")
	l.perVector(n, func() {
		v := l.vector()
		VMULPS(mem(x, 0), factor, v)
		l.toBytes(v, mem(dst, 0))
		ADDQ(U8(l.lanes), dst)
		ADDQ(U8(l.bytes()), x)
	})
}

func (l level) dequantise() {
	l.function("dequantise", "func(dst *float32, x *int8, n int, scale float32)")
	dst, x, n, scale := load("dst"), load("x"), load("n"), l.scalar("scale")
	l.perVector(n, func() {
		v := l.vector()
		VPMOVSXBD(mem(x, 0), v)
		VCVTDQ2PS(v, v)
		VMULPS(scale, v, v)
		VMOVUPS(v, mem(dst, 0))
		ADDQ(U8(l.bytes()), dst)
		ADDQ(U8(l.lanes), x)
	})
}

// toSigns packs the sign bits, the first into the lowest bit of the first byte.
func (l level) toSigns() {
	l.function("toSigns", "func(dst *byte, x *float32, n int)")
	dst, x, n := load("dst"), load("x"), load("n")
	l.perVector(n, func() {
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
	})
}

// fromSigns writes scale, or -scale where the bit is set.
func (l level) fromSigns() {
	var lanes Mem
	if !l.masked {
		lanes = words32("signLanes", 8, func(i int) uint32 { return uint32(31 - i) }) // shifts bit i to the sign
	}
	l.function("fromSigns", "func(dst *float32, x *byte, n int, scale float32)")
	dst, x, n, scale, sign := load("dst"), load("x"), load("n"), l.scalar("scale"), l.bits(1<<31)
	var negative, shift vec
	if l.masked {
		negative = l.vector()
		VPXORD(sign, scale, negative)
	} else {
		shift = l.vector()
		VMOVDQU(lanes, shift)
	}
	l.perVector(n, func() {
		v, bits := l.vector(), GP32()
		if l.masked {
			k := K()
			MOVWLZX(mem(x, 0), bits)
			KMOVW(bits, k)
			VBLENDMPS(negative, scale, k, v)
		} else {
			MOVBLZX(mem(x, 0), bits)
			spread(bits, v)
			VPSLLVD(shift, v, v)
			VPAND(sign, v, v)
			VPXOR(scale, v, v)
		}
		VMOVUPS(v, mem(dst, 0))
		ADDQ(U8(l.bytes()), dst)
		ADDQ(U8(l.lanes/8), x)
	})
}
