package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// avx512Brain has the tiles of AVX-512 for products of bfloat16 values. Two adjacent values of k, a
// pair, take the place of a float32.
var avx512Brain = func() level {
	l := avx512
	l.name, l.suffix, l.pairs = "AVX512-BF16", "Brain512", true
	return l
}()

// Instructions of AVX512-BF16, which neither avo nor Go's assembler has.
const (
	prefixF3, prefixF2 = 2, 3

	dotOpcode   = 0x52 // VDPBF16PS, with prefix F3
	roundOpcode = 0x72 // VCVTNE2PS2BF16, with prefix F2
)

// evex writes a 512-bit instruction of opcode map 0F38 with register operands: dst = f(v, rm).
func evex(prefix, opcode uint32, rm, v, dst reg.VecPhysical) {
	m, n, d := uint32(rm.PhysicalIndex()), uint32(v.PhysicalIndex()), uint32(dst.PhysicalIndex())
	not := func(r uint32, bit int) uint32 { return ^r >> bit & 1 }
	p0 := 2 | not(d, 3)<<7 | not(m, 4)<<6 | not(m, 3)<<5 | not(d, 4)<<4
	p1 := (^n&15)<<3 | 1<<2 | prefix
	p2 := 0x40 | not(n, 4)<<3
	Instruction(&ir.Instruction{Opcode: "LONG", Operands: []Op{U32(0x62 | p0<<8 | p1<<16 | p2<<24)}})
	Instruction(&ir.Instruction{Opcode: "WORD", Operands: []Op{U16(opcode | (0xc0|d&7<<3|m&7)<<8)}})
}

// dot adds the products of pairs of x and y to acc: of the second values, then of the first.
func dot(x, y, acc reg.VecPhysical) { evex(prefixF3, dotOpcode, x, y, acc) }

// roundTwo rounds low and high to the halves of dst.
func roundTwo(low, high, dst reg.VecPhysical) { evex(prefixF2, roundOpcode, low, high, dst) }

// z returns vector register i.
func z(i int) reg.VecPhysical { return avx512.regs[i] }

// halves sets two masks to the low and the high 16 of the first n (at most 32) bits.
func halves(n reg.Register, low, high reg.OpmaskPhysical) {
	m := GP64()
	MOVQ(I32(-1), m)
	BZHIQ(n, m, m)
	KMOVW(m.As32(), low)
	SHRQ(U8(16), m)
	KMOVW(m.As32(), high)
}

const pairRowsSignature = "func(dst *float32, ldd int, src *float32, lds, columns, n int)"

// pairRows rounds n rows of columns floats to rows of pairs: adjacent values, and 0 after the last
// of an odd number.
func pairRows() {
	TEXT("pairRows", NOSPLIT, pairRowsSignature)
	Pragma("noescape")
	dst, ldd, src, lds := load("dst"), load("ldd"), load("src"), load("lds")
	columns, n := load("columns"), load("n")
	SHLQ(U8(2), ldd)
	SHLQ(U8(2), lds)
	rest, pairs := copied(columns), GP64()
	ANDQ(U8(31), rest)
	SHRQ(U8(5), columns)
	halves(rest, reg.K1, reg.K2)
	LEAQ(mem(rest, 1), pairs)
	SHRQ(U8(1), pairs)
	halves(pairs, reg.K3, reg.K4)
	Label("row")
	from, to, left := GP64(), GP64(), GP64()
	MOVQ(src, from)
	MOVQ(dst, to)
	MOVQ(columns, left)
	TESTQ(left, left)
	JZ(LabelRef("rest"))
	Label("whole")
	VMOVUPS(mem(from, 0), z(0))
	VMOVUPS(mem(from, 64), z(1))
	roundTwo(z(0), z(1), z(2))
	VMOVUPS(z(2), mem(to, 0))
	ADDQ(U32(128), from)
	ADDQ(U8(64), to)
	again("whole", left)
	Label("rest")
	TESTQ(rest, rest)
	JZ(LabelRef("next"))
	VMOVUPS_Z(mem(from, 0), reg.K1, z(0))
	VMOVUPS_Z(mem(from, 64), reg.K2, z(1))
	roundTwo(z(0), z(1), z(2))
	VMOVUPS(z(2), reg.K3, mem(to, 0))
	Label("next")
	ADDQ(lds, src)
	ADDQ(ldd, dst)
	endLoop("row", n)
}

const pairBetweenSignature = "func(dst *float32, ldd int, src *float32, lds, columns, width, n int)"

// pairBetween rounds 2n rows of columns floats (at most 32) to n rows of pairs: the values of two
// rows. Pairs after the columns, up to width, are 0.
func pairBetween() {
	order := GLOBL("pairOrder", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(i|(16+i)<<16))
	}
	TEXT("pairBetween", NOSPLIT, pairBetweenSignature)
	Pragma("noescape")
	dst, ldd, src, lds := load("dst"), load("ldd"), load("src"), load("lds")
	columns, width, n := load("columns"), load("width"), load("n")
	SHLQ(U8(2), ldd)
	SHLQ(U8(2), lds)
	halves(columns, reg.K1, reg.K2)
	halves(width, reg.K3, reg.K4)
	VMOVUPS(order, z(31))
	Label("row")
	for v, k := range []reg.OpmaskPhysical{reg.K1, reg.K2} {
		low, high, pairs := z(3*v), z(3*v+1), z(3*v+2)
		PREFETCHT0(Mem{Base: src, Index: lds, Scale: 8, Disp: 64 * v})
		VMOVUPS_Z(mem(src, 64*v), k, low)
		VMOVUPS_Z(Mem{Base: src, Index: lds, Scale: 1, Disp: 64 * v}, k, high)
		roundTwo(low, high, pairs)
		VPERMW(pairs, z(31), pairs)
	}
	VMOVUPS(z(2), reg.K3, mem(dst, 0))
	VMOVUPS(z(5), reg.K4, mem(dst, 64))
	LEAQ(Mem{Base: src, Index: lds, Scale: 2}, src)
	ADDQ(ldd, dst)
	endLoop("row", n)
}

const pairColumnsSignature = "func(dst *float32, src *float32, lds, n int)"

// pairColumns rounds 16 rows of 32*n floats to pairs of adjacent values, and writes the transposed
// pairs to a panel with row distance ldd in bytes.
func pairColumns(ldd int) {
	TEXT("pairColumns", NOSPLIT, pairColumnsSignature)
	Pragma("noescape")
	dst, src, lds, n := load("dst"), load("src"), load("lds"), load("n")
	SHLQ(U8(2), lds)
	Label("block")
	from := copied(src)
	for i := range 16 {
		VMOVUPS(mem(from, 0), z(30))
		VMOVUPS(mem(from, 64), z(31))
		roundTwo(z(30), z(31), z(i))
		ADDQ(lds, from)
	}
	for i := 0; i < 16; i += 2 {
		VUNPCKLPS(z(i+1), z(i), z(16+i))
		VUNPCKHPS(z(i+1), z(i), z(17+i))
	}
	for g := 0; g < 16; g += 4 { // in quarter q of z(g+c): column 4q+c of rows g to g+3
		for c, a := range []int{0, 0, 1, 1} {
			VSHUFPS(U8([]int{0x44, 0xee}[c%2]), z(16+g+a+2), z(16+g+a), z(g+c))
		}
	}
	for c := range 4 {
		for half, order := range []int{0x44, 0xee} {
			VSHUFF32X4(U8(order), z(4+c), z(c), z(16+2*half))
			VSHUFF32X4(U8(order), z(12+c), z(8+c), z(17+2*half))
		}
		for q := range 4 {
			VSHUFF32X4(U8([]int{0x88, 0xdd}[q%2]), z(17+q/2*2), z(16+q/2*2), z(20+q))
			VMOVUPS(z(20+q), mem(dst, (4*q+c)*ldd))
		}
	}
	ADDQ(U32(128), src)
	ADDQ(U32(16*ldd), dst)
	endLoop("block", n)
}
