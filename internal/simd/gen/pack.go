package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose8 transposes 8 rows of 8*n floats, 8x8 at a time: rows i and i+4 share a register from
// the load on, which leaves 16 shuffles.
func transpose8() {
	TEXT("transpose8", NOSPLIT, "func(dst *float32, ldd int, src *float32, lds int, n int)")
	Pragma("noescape")
	dst, ldd := load("dst"), load("ldd")
	src, lds := load("src"), load("lds")
	n := load("n")
	SHLQ(U8(2), ldd)
	SHLQ(U8(2), lds)
	lds3, ldd3 := GP64(), GP64()
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, lds3)
	LEAQ(Mem{Base: ldd, Index: ldd, Scale: 2}, ldd3)
	src4, dst4 := GP64(), GP64()
	LEAQ(Mem{Base: src, Index: lds, Scale: 4}, src4)

	Label("block")
	LEAQ(Mem{Base: dst, Index: ldd, Scale: 4}, dst4)
	for half := range 2 { // columns 0-3, then 4-7
		var r [4]reg.VecVirtual
		for i := range r {
			r[i] = YMM()
			VMOVUPS(row(src, lds, lds3, i, 16*half), r[i].AsX())
			VINSERTF128(U8(1), row(src4, lds, lds3, i, 16*half), r[i], r[i])
		}
		base := dst
		if half == 1 {
			base = dst4
		}
		avx2.transpose4(r, func(i int) Mem { return row(base, ldd, ldd3, i, 0) })
	}
	ADDQ(U8(32), src)
	ADDQ(U8(32), src4)
	LEAQ(Mem{Base: dst, Index: ldd, Scale: 8}, dst)
	endLoop("block", n)
}

// transpose4 transposes 4x4 floats in each quarter, or half, of four registers, and stores rows.
func (l level) transpose4(r [4]reg.VecVirtual, to func(row int) Mem) {
	lo01, hi01, lo23, hi23 := l.vector(), l.vector(), l.vector(), l.vector()
	VUNPCKLPS(r[1], r[0], lo01)
	VUNPCKHPS(r[1], r[0], hi01)
	VUNPCKLPS(r[3], r[2], lo23)
	VUNPCKHPS(r[3], r[2], hi23)
	for i, pair := range [][2]reg.VecVirtual{{lo01, lo23}, {lo01, lo23}, {hi01, hi23}, {hi01, hi23}} {
		out := l.vector()
		VSHUFPS(U8([]int{0x44, 0xee}[i%2]), pair[1], pair[0], out)
		VMOVUPS(out, to(i))
	}
}

// row is the address of row i (0..3) at the given displacement.
func row(base, stride, stride3 reg.Register, i, disp int) Mem {
	switch i {
	case 0:
		return Mem{Base: base, Disp: disp}
	case 3:
		return Mem{Base: base, Index: stride3, Scale: 1, Disp: disp}
	}
	return Mem{Base: base, Index: stride, Scale: uint8(i), Disp: disp}
}

// copyTiles copies, for each of n rows, tiles adjacent runs of width floats (at most 16, or 8), to
// destinations at a distance of tileStep; rows of a destination are at a distance of ldd.
func copyTiles(l level) {
	var ones Mem
	if !l.masked { // masks are windows of ones and zeros
		ones = l.maskTable("front")
	}
	l.function("copyTiles", copySignature)
	dst, tileStep, ldd := load("dst"), load("tileStep"), load("ldd")
	src, lds := load("src"), load("lds")
	width, tiles, n := load("width"), load("tiles"), load("n")
	lanes := copied(width)
	part := l.first(lanes, ones)
	for _, r := range []reg.Register{tileStep, ldd, lds, width} {
		SHLQ(U8(2), r)
	}
	Label("row")
	from, to, left := GP64(), GP64(), GP64()
	MOVQ(src, from)
	MOVQ(dst, to)
	MOVQ(tiles, left)
	Label("tile")
	PREFETCHT0(Mem{Base: from, Index: lds, Scale: 4})
	part.write(part.read(mem(from, 0)), mem(to, 0))
	ADDQ(width, from)
	ADDQ(tileStep, to)
	again("tile", left)
	ADDQ(lds, src)
	ADDQ(ldd, dst)
	endLoop("row", n)
}

const copySignature = "func(dst *float32, tileStep, ldd int, src *float32, lds, width, tiles, n int)"

const transposeSignature = "func(dst *float32, src *float32, lds, n int)"

// transpose16 transposes 16 rows of 16*n floats into a panel with row distance ldd in bytes. A
// register gathers the same four columns of every fourth row, so that within each of its quarters
// 4x4 floats remain to transpose.
func transpose16(ldd int) {
	TEXT("transpose16", NOSPLIT, transposeSignature)
	Pragma("noescape")
	dst, n := load("dst"), load("n")
	from, lds := []reg.Register{load("src")}, load("lds")
	SHLQ(U8(2), lds)
	lds3 := GP64()
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, lds3)
	for i := range 3 { // every fourth row
		r := GP64()
		LEAQ(Mem{Base: from[i], Index: lds, Scale: 4}, r)
		from = append(from, r)
	}
	Label("block")
	for quarter := range 4 {
		var r [4]reg.VecVirtual
		for i := range r {
			r[i] = ZMM()
			VMOVUPS(row(from[0], lds, lds3, i, 16*quarter), r[i].AsX())
			for lane := 1; lane < 4; lane++ {
				VINSERTF32X4(U8(lane), row(from[lane], lds, lds3, i, 16*quarter), r[i], r[i])
			}
		}
		avx512.transpose4(r, func(i int) Mem { return mem(dst, (4*quarter+i)*ldd) })
	}
	for _, r := range from {
		ADDQ(U8(64), r)
	}
	ADDQ(U32(16*ldd), dst)
	endLoop("block", n)
}
