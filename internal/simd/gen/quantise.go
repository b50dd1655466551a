package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Blocks of 8-bit values: a scale of 4 bytes before as many bytes as a block has values.
const (
	quantBlock  = 256
	quantScale  = 4
	quantStored = quantScale + quantBlock
)

// quantiseBlocks stores blocks until a magnitude is infinite or NaN, and returns the number of
// stored blocks. The scale is the largest magnitude divided by 127, cut to the bits of cut; 0 for a
// block with all magnitudes below least.
func (l level) quantiseBlocks() {
	l.function("quantiseBlocks", "func(dst *int8, x *float32, blocks int, least, cut uint32) int")
	dst, x, n, done := load("dst"), load("x"), load("blocks"), GP64()
	least, cut, bits := load32("least"), load32("cut"), GP32()
	abs, divisor, one := l.magnitudes(), XMM(), XMM()
	MOVL(U32(0x42fe0000), bits) // 127
	VMOVD(bits, divisor)
	MOVL(U32(oneBits), bits)
	VMOVD(bits, one)
	XORQ(done, done)
	Label("block")
	most := l.maxOf(x, abs)
	VMOVD(most.AsX(), bits)
	CMPL(bits, U32(0x7f800000))
	JAE(LabelRef("end"))
	factor, scale := l.vector(), XMM()
	VPXOR(factor.AsX(), factor.AsX(), factor.AsX()) // a small block is all 0
	MOVL(U32(0), mem(dst, 0))
	CMPL(bits, least)
	JB(LabelRef("factor"))
	VDIVSS(divisor, most.AsX(), scale)
	VMOVD(scale, bits)
	ANDL(cut, bits)
	MOVL(bits, mem(dst, 0))
	VMOVD(bits, scale)
	VDIVSS(scale, one, factor.AsX())
	Label("factor")
	VBROADCASTSS(factor.AsX(), factor)
	for i := range quantBlock / l.lanes {
		v := l.vector()
		VMULPS(mem(x, i*l.bytes()), factor, v)
		l.toBytes(v, mem(dst, quantScale+i*l.lanes))
	}
	ADDQ(U32(4*quantBlock), x)
	ADDQ(U32(quantStored), dst)
	endBlocks(done, n)
}

// maxOf is the largest of the magnitudes' bits of a block, in the first lane.
func (l level) maxOf(x reg.GPVirtual, abs vec) vec {
	acc := []vec{l.zero(), l.zero()}
	for i := range quantBlock / l.lanes {
		m := l.vector()
		l.and(mem(x, i*l.bytes()), abs, m)
		VPMAXUD(m, acc[i%2], acc[i%2])
	}
	most := acc[0]
	VPMAXUD(acc[1], most, most)
	l.foldLanes(most, VPMAXUD)
	return most
}

// toBytes rounds v, within -127 to 127, to nearest, ties to even.
func (l level) toBytes(v vec, to Mem) {
	VCVTPS2DQ(v, v)
	if l.masked {
		VPMOVSDB(v, to)
		return
	}
	high := XMM()
	VEXTRACTI128(U8(1), v, high)
	VPACKSSDW(high, v.AsX(), high)
	VPACKSSWB(high, high, high)
	VMOVQ(high, to)
}

// dequantiseBlocks is the inverse. It stops at a block with scale bits above most, and returns the
// number of blocks before it.
func (l level) dequantiseBlocks() {
	l.function("dequantiseBlocks", "func(dst *float32, x *int8, blocks int, most uint32) int")
	dst, x, n, done := load("dst"), load("x"), load("blocks"), GP64()
	most := load32("most")
	XORQ(done, done)
	Label("block")
	CMPL(mem(x, 0), most)
	JHI(LabelRef("end"))
	scale := l.broadcast(mem(x, 0))
	for i := range quantBlock / l.lanes {
		v := l.vector()
		VPMOVSXBD(mem(x, quantScale+i*l.lanes), v)
		VCVTDQ2PS(v, v)
		VMULPS(scale, v, v)
		VMOVUPS(v, mem(dst, i*l.bytes()))
	}
	ADDQ(U32(4*quantBlock), dst)
	ADDQ(U32(quantStored), x)
	endBlocks(done, n)
}

// endBlocks ends a function of n blocks that returns the number done.
func endBlocks(done, n reg.Register) {
	INCQ(done)
	CMPQ(done, n)
	JNE(LabelRef("block"))
	Label("end")
	Store(done, ReturnIndex(0))
	finish()
}
