package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// permutation is a constant vector of 16 indices.
func permutation(name string, f func(i int) int) reg.VecVirtual {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(f(i)))
	}
	z := ZMM()
	VMOVDQU32(m, z)
	return z
}

// poolArgs are the registers that both pooling kernels share: the pointers of
// one row, their strides, and the masks of the input's and output's lanes.
type poolArgs struct {
	x, y, arg        reg.Register // row pair of the input, row of the output
	width, pair, out reg.Register // bytes: a row, two rows; floats: a row of the output
	in0, in1, lanes  reg.OpmaskVirtual
	rows             reg.Register
}

func loadPool() *poolArgs {
	a := &poolArgs{
		x: load("x"), y: load("y"), arg: load("arg"),
		rows: load("rows"), width: load("w"), out: load("ow"),
		pair: GP64(), in0: K(), in1: K(), lanes: K(),
	}
	SHLQ(U8(2), a.width)
	LEAQ(Mem{Base: a.width, Index: a.width, Scale: 1}, a.pair)
	n, bits := load("lanes"), GP64()
	XORQ(bits, bits)
	BTSQ(n, bits)
	DECQ(bits)
	KMOVW(bits.As32(), a.lanes)
	ADDQ(n, n)
	XORQ(bits, bits)
	BTSQ(n, bits)
	DECQ(bits)
	KMOVW(bits.As32(), a.in0)
	SHRQ(U8(16), bits)
	KMOVW(bits.As32(), a.in1)
	return a
}

func (a *poolArgs) next() {
	ADDQ(a.pair, a.x)
	LEAQ(Mem{Base: a.y, Index: a.out, Scale: 4}, a.y)
	ADDQ(a.out, a.arg)
	DECQ(a.rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

func (a *poolArgs) input(r, half int) Mem {
	m := mem(a.x, 64*half)
	if r == 1 {
		m.Index, m.Scale = a.width, 1
	}
	return m
}

func pool512() {
	TEXT("pool512", NOSPLIT, "func(y *float32, arg *uint8, x *float32, rows, w, ow, lanes, relu int)")
	Pragma("noescape")
	a := loadPool()
	relu := load("relu")
	even := permutation("even", func(i int) int { return 2 * i })
	odd := permutation("odd", func(i int) int { return 2*i + 1 })
	zero := ZMM()
	VPXORD(zero, zero, zero)
	var code [5]reg.VecVirtual
	for i := 1; i <= 4; i++ {
		code[i] = ZMM()
		r := GP32()
		MOVL(U32(i), r)
		VPBROADCASTD(r, code[i])
	}

	Label("row")
	var v [4]reg.VecVirtual
	for r := range 2 {
		lo, hi, odds := ZMM(), ZMM(), ZMM()
		VMOVUPS_Z(a.input(r, 0), a.in0, lo)
		VMOVUPS_Z(a.input(r, 1), a.in1, hi)
		VMOVAPS(lo, odds)
		VPERMT2PS(hi, even, lo)
		VPERMT2PS(hi, odd, odds)
		v[2*r], v[2*r+1] = lo, odds
	}
	best, at := v[0], ZMM()
	VPXORD(at, at, at)
	for i := 1; i < 4; i++ { // taken where v > best or v is NaN, and best is a number
		k := K()
		VCMPPS(U8(6), best, v[i], k)    // not v <= best
		VCMPPS(U8(7), best, best, k, k) // ordered
		VMOVAPS(v[i], k, best)
		VMOVDQA32(code[i], k, at)
	}
	TESTQ(relu, relu)
	JZ(LabelRef("store"))
	none := K()
	VCMPPS(U8(30), zero, best, none) // positive, false for NaN
	KNOTW(none, none)
	VMOVDQA32(code[4], none, at)
	VMAXPS(best, zero, best)
	Label("store")
	VMOVUPS(best, a.lanes, mem(a.y, 0))
	VPMOVDB(at, a.lanes, mem(a.arg, 0))
	a.next()

	poolGrad512()
}

func poolGrad512() {
	TEXT("poolGrad512", NOSPLIT, "func(x, y *float32, arg *uint8, rows, w, ow, lanes int)")
	Pragma("noescape")
	a := loadPool()
	low := permutation("low", func(i int) int { return i/2 + i%2*16 })
	high := permutation("high", func(i int) int { return 8 + i/2 + i%2*16 })
	var code [4]reg.VecVirtual
	for i := range code {
		code[i] = ZMM()
		r := GP32()
		MOVL(U32(i), r)
		VPBROADCASTD(r, code[i])
	}
	Label("row")
	dy, at := ZMM(), ZMM()
	VMOVUPS_Z(mem(a.y, 0), a.lanes, dy)
	VPMOVZXBD_Z(mem(a.arg, 0), a.lanes, at)
	for r := range 2 {
		lo, hi, odds := ZMM(), ZMM(), ZMM()
		k0, k1 := K(), K()
		VPCMPEQD(code[2*r], at, k0)
		VPCMPEQD(code[2*r+1], at, k1)
		VMOVAPS_Z(dy, k0, lo)
		VMOVAPS_Z(dy, k1, odds)
		VMOVAPS(lo, hi)
		VPERMT2PS(odds, low, lo)
		VPERMT2PS(odds, high, hi)
		VMOVUPS(lo, a.in0, a.input(r, 0))
		VMOVUPS(hi, a.in1, a.input(r, 1))
	}
	a.next()
}
