package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// bagsAhead is the prefetch distance in rows: a cache miss takes about the time of this many
// additions.
const bagsAhead = 12

// bags generates simd.Bags: bag by bag, four vectors of columns at a time, then single and partial
// vectors.
func bags(l level) {
	masks := l.maskTable("bagMasks")
	l.function("bags", "func(dst *float32, gap int, table *float32, ids, offsets *int32, scales *float32, n, dim int)")
	dst, table, offsets, scales, dim := load("dst"), load("table"), load("offsets"), load("scales"), load("dim")
	s := &strip{level: l}
	rest := copied(dim)
	ANDQ(U32(l.lanes-1), rest)
	part := l.first(rest, masks)
	SHLQ(U8(2), dim) // bytes of a row
	all, last := load("ids"), load("n")
	MOVLQSX(Mem{Base: offsets, Index: last, Scale: 4}, last)
	LEAQ(Mem{Base: all, Index: last, Scale: 4, Disp: -4}, last) // last id

	Label("bag")
	lo, hi, begin, end, column, left := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	MOVLQSX(mem(offsets, 0), lo)
	MOVLQSX(mem(offsets, 4), hi)
	Load(Param("ids"), begin)
	LEAQ(Mem{Base: begin, Index: hi, Scale: 4}, end)
	LEAQ(Mem{Base: begin, Index: lo, Scale: 4}, begin)
	MOVQ(table, column)
	MOVQ(dim, left)
	to := copied(dst)
	at, row, ahead := GP64(), GP64(), GP64()
	columns := func(name string, u int) {
		acc := l.zeros(u)
		MOVQ(begin, at)
		CMPQ(at, end)
		JGE(LabelRef(name + "Sum"))
		Label(name + "Row")
		LEAQ(mem(at, 4*bagsAhead), ahead)
		CMPQ(ahead, last)
		CMOVQGT(last, ahead)
		MOVLQSX(mem(ahead, 0), ahead)
		IMULQ(dim, ahead)
		for i := 0; i < u*l.bytes(); i += 64 {
			PREFETCHT0(Mem{Base: column, Index: ahead, Scale: 1, Disp: i})
		}
		MOVLQSX(mem(at, 0), row)
		IMULQ(dim, row)
		ADDQ(column, row)
		s.ptrs = []reg.Register{row, to}
		x := s.load(0, u)
		for i := range acc {
			VADDPS(x[i], acc[i], acc[i])
		}
		ADDQ(U8(4), at)
		CMPQ(at, end)
		JLT(LabelRef(name + "Row"))
		Label(name + "Sum")
		scale := l.broadcast(mem(scales, 0))
		for i := range acc {
			VMULPS(scale, acc[i], acc[i])
		}
		s.store(acc, 1)
	}
	turn := func(name, next string, u int) {
		Label(name)
		CMPQ(left, U32(u*l.bytes()))
		JLT(LabelRef(next))
		columns(name, u)
		ADDQ(U32(u*l.bytes()), column)
		ADDQ(U32(u*l.bytes()), to)
		SUBQ(U32(u*l.bytes()), left)
		JMP(LabelRef(name))
	}
	turn("many", "single", 4)
	turn("single", "partial", 1)
	Label("partial")
	TESTQ(left, left)
	JZ(LabelRef("next"))
	s.tail = part
	columns("partial", 1)
	Label("next")
	ADDQ(U8(4), offsets)
	ADDQ(U8(4), scales)
	gap := GP64()
	Load(Param("gap"), gap)
	LEAQ(Mem{Base: dst, Index: gap, Scale: 4}, dst)
	count := load("n")
	DECQ(count)
	Store(count, Param("n"))
	JNZ(LabelRef("bag"))
	finish()
}
