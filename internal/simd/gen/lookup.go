package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// lookup generates simd.Lookup: rows of dim floats, with whole or partial vectors.
func lookup(l level) {
	masks := l.maskTable("lookupMasks")
	l.function("lookup", "func(dst, table *float32, ids *int32, n, dim int)")
	dst, table, ids, rows, dim := load("dst"), load("table"), load("ids"), load("n"), load("dim")
	whole, tail := GP64(), GP64()
	MOVQ(dim, whole)
	ANDQ(I32(-l.lanes), whole) // floats in whole vectors
	MOVQ(dim, tail)
	SUBQ(whole, tail)
	SHLQ(U8(2), dim)
	at := copied(tail)
	part := l.first(at, masks)

	Label("row")
	from, left := GP64(), GP64()
	MOVLQSX(mem(ids, 0), from)
	IMULQ(dim, from)
	ADDQ(table, from)
	MOVQ(whole, left)
	Label("vector")
	TESTQ(left, left)
	JZ(LabelRef("partial"))
	x := l.loaded(mem(from, 0))
	VMOVUPS(x, mem(dst, 0))
	ADDQ(U32(l.bytes()), from)
	ADDQ(U32(l.bytes()), dst)
	SUBQ(U32(l.lanes), left)
	JMP(LabelRef("vector"))
	Label("partial")
	part.write(part.read(mem(from, 0)), mem(dst, 0))
	LEAQ(Mem{Base: dst, Index: tail, Scale: 4}, dst)
	ADDQ(U8(4), ids)
	endLoop("row", rows)
}
