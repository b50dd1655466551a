package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gaps generates kernels to pack ascending indices: differences of neighbours, in 8 lanes. Counts
// are in groups of 8, at least one.
func gaps() {
	gapBits()
	packGaps()
	unpackGaps()
}

// gapReader reads indices and computes their gaps.
type gapReader struct {
	index reg.GPVirtual
	last  vec // previous 8 indices
	one   vec // -1
}

func newGapReader() *gapReader {
	g := &gapReader{index: load("index"), last: YMM(), one: YMM()}
	spread(load32("before"), g.last)
	VPCMPEQD(g.one, g.one, g.one)
	return g
}

// next returns the next 8 gaps: index[i] - index[i-1] - 1.
func (g *gapReader) next() vec {
	here, shifted, gap := YMM(), YMM(), YMM()
	VMOVDQU(mem(g.index, 0), here)
	VPERM2I128(U8(0x21), here, g.last, shifted) // the last 4 before, the first 4 now
	VPALIGNR(U8(12), shifted, here, shifted)
	VPSUBD(shifted, here, gap)
	VMOVDQA(here, g.last)
	VPADDD(g.one, gap, gap)
	ADDQ(U8(32), g.index)
	return gap
}

// gapBits returns all gaps joined by or.
func gapBits() {
	avx2.function("gapBits", "func(index *int32, groups int, before int32) uint32")
	g, n, all := newGapReader(), load("groups"), avx2.zero()
	Label("group")
	VPOR(g.next(), all, all)
	SUBQ(U8(1), n)
	JNZ(LabelRef("group"))
	avx2.foldInts(all, func(x ...Op) { VPOR(x[0], x[1], x[2]) })
}

// packGaps writes gaps of width bits, at most 15, to the front of dst, the first into the lowest
// bits: width bytes for 8. It writes 8 bytes from the middle of the last group on; bytes after the
// last gap are 0.
func packGaps() {
	avx2.function("packGaps", "func(dst *byte, index *int32, groups int, before int32, width int)")
	g, n, dst, width := newGapReader(), load("groups"), load("dst"), load("width")
	once, twice, none := YMM(), YMM(), avx2.zero() // shifts of neighbours
	VMOVQ(width, once.AsX())
	VPBROADCASTQ(once.AsX(), once)
	VPADDQ(once, once, twice)
	// Four gaps end within a byte; left is the number of its bits filled by the next four.
	left, right, middle := GP64(), GP64(), GP64()
	MOVQ(width, right)
	SHLQ(U8(2), right)
	MOVQ(right, left)
	ANDQ(U8(7), left)
	SUBQ(left, right)
	MOVQ(right, middle)
	SHRQ(U8(3), middle)
	Label("group")
	gap, odd, first, second := g.next(), YMM(), GP64(), GP64()
	VPSRLQ(U8(32), gap, odd)
	VPSLLVQ(once, odd, odd)
	VPBLENDD(U8(0xaa), none, gap, gap)
	VPOR(odd, gap, gap) // two in each 64 bits
	VPSRLDQ(U8(8), gap, odd)
	VPSLLVQ(twice, odd, odd)
	VPOR(odd, gap, gap) // four in the lower half of each 128
	VMOVQ(gap.AsX(), first)
	VEXTRACTI128(U8(1), gap, odd.AsX())
	VMOVQ(odd.AsX(), second)
	MOVQ(first, mem(dst, 0))
	SHRXQ(right, first, first)
	SHLXQ(left, second, second)
	ORQ(first, second)
	MOVQ(second, Mem{Base: dst, Index: middle, Scale: 1})
	ADDQ(width, dst)
	SUBQ(U8(1), n)
	JNZ(LabelRef("group"))
	finish()
}

// unpackMost is the widest gap with all bits in four bytes from the byte of its first bit.
const unpackMost = 25

// unpackGaps is the inverse of packGaps for widths of at most unpackMost. It returns the largest
// index, unsigned. It reads 16 bytes from the middle of the last group on.
func unpackGaps() {
	table := unpackTable()
	avx2.function("unpackGaps", "func(index *int32, src *byte, groups int, before int32, width int) uint32")
	index, src, n, width := load("index"), load("src"), load("groups"), load("width")
	before, at, middle := GP32(), GP64(), GP64()
	Load(Param("before"), before)
	base, mask, most, one, last := YMM(), YMM(), avx2.zero(), YMM(), avx2.bits(7)
	spread(before, base)
	VPCMPEQD(one, one, one)
	MOVQ(width, at)
	SHLQ(U8(6), at)
	LEAQ(table, middle)
	ADDQ(middle, at)
	bytes, shifts := YMM(), YMM()
	VMOVDQU(mem(at, 0), bytes)
	VMOVDQU(mem(at, 32), shifts)
	VMOVD(width.As32(), mask.AsX())
	VPSLLD(mask.AsX(), one, mask)
	VPANDN(one, mask, mask)
	MOVQ(width, middle)
	SHRQ(U8(1), middle)
	Label("group")
	gap, t := YMM(), YMM()
	VMOVDQU(mem(src, 0), gap.AsX())
	VINSERTI128(U8(1), Mem{Base: src, Index: middle, Scale: 1}, gap, gap)
	VPSHUFB(bytes, gap, gap)
	VPSRLVD(shifts, gap, gap)
	VPAND(mask, gap, gap)
	VPSUBD(one, gap, gap) // + 1
	VPSLLDQ(U8(4), gap, t)
	VPADDD(t, gap, gap)
	VPSLLDQ(U8(8), gap, t)
	VPADDD(t, gap, gap) // sums from the front of each half
	VPSHUFD(U8(0xff), gap, t)
	VPERM2I128(U8(0x08), t, t, t) // the lower half's sum, in the upper
	VPADDD(t, gap, gap)
	VPADDD(base, gap, t)
	VPERMD(gap, last, gap)
	VPADDD(gap, base, base)
	VMOVDQU(t, mem(index, 0))
	VPMAXUD(t, most, most)
	ADDQ(width, src)
	ADDQ(U8(32), index)
	SUBQ(U8(1), n)
	JNZ(LabelRef("group"))
	avx2.foldInts(most, VPMAXUD)
}

// unpackTable holds, for each width, the bytes and shifts of the gaps of a group. Its halves count
// from byte 0 and from the byte with the fifth gap's first bit.
func unpackTable() Mem {
	m := GLOBL("unpackTable", RODATA|NOPTR)
	for width := range unpackMost + 1 {
		bit := func(lane int) int { return lane%4*width + lane/4*(4*width%8) }
		for lane := range 8 {
			DATA(64*width+4*lane, U32(bit(lane)/8*0x01010101+0x03020100))
		}
		for lane := range 8 {
			DATA(64*width+32+4*lane, U32(bit(lane)%8))
		}
	}
	return m
}

// fromBitmap writes the positions of the set bits among n, a multiple of the vector, counted from
// base, to index, and returns their number. It writes whole vectors, never past the position of the
// bits read.
func (l level) fromBitmap(table, numbers Mem) {
	l.function("fromBitmap", "func(index *int32, bits *byte, n int, base int32) int")
	index, bits, n := load("index"), load("bits"), load("n")
	base, at, step := GP32(), l.vector(), l.bits(uint32(l.lanes))
	Load(Param("base"), base)
	spread(base, at)
	var lut reg.GPVirtual
	if l.masked {
		VPADDD(numbers, at, at)
	} else {
		lut = GP64()
		LEAQ(table, lut)
	}
	TESTQ(n, n)
	JZ(LabelRef("end"))
	Label("turn")
	some, places := GP64(), l.vector()
	if l.masked {
		k := K()
		MOVWLZX(mem(bits, 0), some.As32())
		KMOVW(some.As32(), k)
		VPCOMPRESSD_Z(at, k, places)
	} else {
		MOVBLZX(mem(bits, 0), some.As32())
		VPMOVZXBD(Mem{Base: lut, Index: some, Scale: 8}, places)
		VPADDD(at, places, places)
	}
	VMOVUPS(places, mem(index, 0))
	POPCNTL(some.As32(), some.As32())
	LEAQ(Mem{Base: index, Index: some, Scale: 4}, index)
	VPADDD(step, at, at)
	ADDQ(U8(l.lanes/8), bits)
	SUBQ(U32(l.lanes), n)
	JNZ(LabelRef("turn"))
	Label("end")
	returnCount(index, "index")
}
