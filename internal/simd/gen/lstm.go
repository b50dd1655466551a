package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

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
