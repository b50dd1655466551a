package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// sequence generates the kernels of sequence models of a level.
func sequence(l level) {
	ConstraintExpr("amd64")
	dropout(l)
	lstm(l)
	lookup(l)
	bags(l)
	softmaxGrad(l)
}

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

// softmaxGrad generates simd.SoftmaxGrad for n floats, a multiple of the vector.
func softmaxGrad(l level) {
	f := l.begin("softmaxGrad", "func(dp, p *float32, n int, dot, scale float32)", "dp", "p")
	dot, scale := l.scalar("dot"), l.scalar("scale")
	f.each(func(at func(int) Mem) {
		x := l.loaded(at(0))
		VSUBPS(dot, x, x)
		VMULPS(at(1), x, x)
		VMULPS(scale, x, x)
		VMOVUPS(x, at(0))
	})
}

// word broadcasts a constant of 32 bits.
func (l level) word(bits uint32) reg.VecVirtual {
	m := GLOBL(fmt.Sprintf("word%08x_%d", bits, words), RODATA|NOPTR)
	words++
	DATA(0, U32(bits))
	return l.broadcast(m)
}

var words int // names of constants so far

// iota32 is the vector 0, 1, 2, ... of 32-bit integers.
func (l level) iota32() reg.VecVirtual {
	m := l.laneTable(fmt.Sprintf("iota%d", words))
	words++
	return l.loaded(m)
}

func (l level) xor(a, b, to reg.VecVirtual) {
	if l.masked {
		VPXORD(a, b, to)
	} else {
		VPXOR(a, b, to)
	}
}

// mix32 is simd.mix32 of every lane of x.
func (l level) mix32(x, m0, m1 reg.VecVirtual) {
	t := l.vector()
	for i, shift := range []int{16, 15, 16} {
		VPSRLD(U8(shift), x, t)
		l.xor(t, x, x)
		if i < 2 {
			VPMULLD([]reg.VecVirtual{m0, m1}[i], x, x)
		}
	}
}

// dropout generates simd.dropoutGo for n floats, a multiple of the vector.
func dropout(l level) {
	f := l.begin("dropout", "func(dst, src *float32, n int, first, key0, key1, threshold uint32, scale float32)", "dst", "src")
	index, step := l.iota32(), l.word(uint32(l.lanes))
	VPADDD(l.scalar("first"), index, index)
	key0, key1 := l.scalar("key0"), l.scalar("key1")
	threshold, scale := l.scalar("threshold"), l.scalar("scale")
	m0, m1 := l.word(0x7feb352d), l.word(0x846ca68b)
	f.each(func(at func(int) Mem) {
		x := l.vector()
		l.xor(index, key0, x)
		l.mix32(x, m0, m1)
		VPADDD(key1, x, x)
		l.mix32(x, m0, m1)
		y := l.vector()
		if l.masked {
			k := K()
			VPCMPUD(U8(5), threshold, x, k) // x >= threshold
			VMULPS_Z(at(1), scale, k, y)
		} else {
			VPMAXUD(threshold, x, y)
			VPCMPEQD(y, x, x) // the larger is x
			VMULPS(at(1), scale, y)
			VANDPS(x, y, y)
		}
		VMOVUPS(y, at(0))
		VPADDD(step, index, index)
	})
}

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

// strip is a loop over any number of columns of several operands: several vectors per iteration,
// then single and partial ones.
type strip struct {
	level
	ptrs []reg.Register
	tail *tail // lanes of a partial iteration
}

// load returns u vectors of an operand.
func (s *strip) load(ptr, u int) vectors {
	if s.tail != nil {
		return vectors{s.tail.read(mem(s.ptrs[ptr], 0))}
	}
	return s.loads(u, func(i int) Mem { return mem(s.ptrs[ptr], i*s.bytes()) })
}

func (s *strip) store(x vectors, ptr int) {
	if s.tail != nil {
		s.tail.write(x[0], mem(s.ptrs[ptr], 0))
		return
	}
	stores(x, func(i int) Mem { return mem(s.ptrs[ptr], i*s.bytes()) })
}

// run emits the loop over the n columns and ends the function.
func (s *strip) run(unroll int, masks Mem, body func(u int)) {
	n := load("n")
	turn := func(label, next string, u int) {
		Label(label)
		CMPQ(n, U32(u*s.lanes))
		JLT(LabelRef(next))
		body(u)
		for _, p := range s.ptrs {
			ADDQ(U32(u*s.bytes()), p)
		}
		SUBQ(U32(u*s.lanes), n)
		JMP(LabelRef(label))
	}
	if unroll > 1 {
		turn("many", "single", unroll)
	}
	turn("single", "partial", 1)
	Label("partial")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	s.tail = s.first(n, masks)
	body(1)
	Label("end")
	finish()
}

// first returns the first n lanes, and overwrites n. masks is a vector of ones, then a vector of
// zeros.
func (l level) first(n reg.GPVirtual, masks Mem) *tail {
	at := GP64()
	if l.masked {
		XORQ(at, at)
		BTSQ(n, at)
		DECQ(at)
		k := K()
		KMOVW(at.As32(), k)
		return &tail{l, k}
	}
	LEAQ(masks, at)
	SHLQ(U8(2), n)
	SUBQ(n, at)
	return &tail{l, l.loaded(mem(at, l.bytes()))}
}

func (l level) maskTable(name string) Mem {
	return words32(name, 2*l.lanes, func(i int) uint32 { return 0xffffffff * uint32(1-i/l.lanes) })
}

// gateStrip starts a function over the columns of gates, [4][gap], and further
// operands. The gates are operands 0 to 3.
func gateStrip(l level, name, signature string, operands ...string) *strip {
	l.function(name, signature)
	s := &strip{level: l}
	gap, at := load("gap"), load("gates")
	SHLQ(U8(2), gap)
	for range 4 {
		p := copied(at)
		ADDQ(gap, at)
		s.ptrs = append(s.ptrs, p)
	}
	for _, o := range operands {
		s.ptrs = append(s.ptrs, load(o))
	}
	return s
}

// lstm generates the cell of long short-term memory and its gradient, with the order of operations
// of lstm.go of package simd.
func lstm(l level) {
	c, masks, unroll := expNumbers(l, "lstmNumbers"), l.maskTable("lstmMasks"), 1
	if l.masked {
		unroll = 2
	}
	const in, forget, candidate, out = 0, 1, 2, 3

	s := gateStrip(l, "lstm", "func(h, c, gates *float32, gap int, c0 *float32, n int)", "h", "c", "c0")
	const h, cell, before = 4, 5, 6
	s.run(unroll, masks, func(u int) {
		both := append(s.load(in, u), s.load(forget, u)...)
		c.sigmoid(both)
		i, f := both[:u], both[u:]
		s.store(i, in)
		s.store(f, forget)
		g := s.load(candidate, u)
		c.tanh(g)
		s.store(g, candidate)
		zip(VMULPS, i, g, i)
		zip(VMULPS, f, s.load(before, u), f)
		zip(VADDPS, f, i, f)
		s.store(f, cell)
		o := s.load(out, u)
		c.sigmoid(o)
		s.store(o, out)
		c.tanh(f)
		zip(VMULPS, o, f, f)
		s.store(f, h)
	})

	s = gateStrip(l, "lstmGrad", "func(gates *float32, gap int, dc, dh, c, c0 *float32, n int)", "dc", "dh", "c", "c0")
	const dc, dh, cellGrad, beforeGrad = 4, 5, 6, 7
	one := c.get("one")
	slope := func(y, d vectors) vectors { // d*(1-y)*y, in a new register
		e := s.vectors(len(y))
		by(VSUBPS, one, y, e)
		zip(VMULPS, e, y, e)
		zip(VMULPS, d, e, e)
		return e
	}
	s.run(unroll, masks, func(u int) {
		t := s.load(cellGrad, u)
		c.tanh(t)
		o, grad := s.load(out, u), s.load(dh, u)
		e := s.vectors(u)
		zip(VMULPS, grad, t, e)
		s.store(slope(o, e), out)
		zip(VMULPS, t, t, t)
		by(VSUBPS, one, t, t)
		zip(VMULPS, grad, o, o)
		zip(VMULPS, o, t, o)
		d := s.load(dc, u)
		zip(VADDPS, d, o, d)

		i, g := s.load(in, u), s.load(candidate, u)
		zip(VMULPS, d, g, e)
		s.store(slope(i, e), in)
		zip(VMULPS, d, i, i)
		zip(VMULPS, g, g, g)
		by(VSUBPS, one, g, g)
		zip(VMULPS, i, g, i)
		s.store(i, candidate)
		f := s.load(forget, u)
		zip(VMULPS, d, s.load(beforeGrad, u), e)
		s.store(slope(f, e), forget)
		zip(VMULPS, d, f, d)
		s.store(d, dc)
	})
}
