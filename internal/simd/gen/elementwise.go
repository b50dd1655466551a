package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// loop generates a function over n floats, a multiple of the vector: four vectors per iteration,
// then single ones. body gets the displacement and free registers.
type loop struct {
	level
	ptrs []reg.Register
}

func (l level) vector() reg.VecVirtual {
	if l.masked {
		return ZMM()
	}
	return YMM()
}

func (l level) zero() reg.VecVirtual {
	v := l.vector()
	l.clear(v)
	return v
}

func (l level) zeros(n int) vectors {
	v := make(vectors, n)
	for i := range v {
		v[i] = l.zero()
	}
	return v
}

// broadcast returns the 32 bits at m in every lane.
func (l level) broadcast(m Op) reg.VecVirtual {
	v := l.vector()
	VBROADCASTSS(m, v)
	return v
}

// begin starts a function and loads its pointers.
func (l level) begin(name, signature string, pointers ...string) *loop {
	l.function(name, signature)
	f := &loop{level: l}
	for _, p := range pointers {
		f.ptrs = append(f.ptrs, load(p))
	}
	return f
}

// scalar broadcasts a parameter.
func (l level) scalar(name string) reg.VecVirtual { return l.broadcast(address(Param(name))) }

// each runs body over all n floats and ends the function.
func (f *loop) each(body func(at func(ptr int) Mem)) {
	f.run(4, body)
	finish()
}

func (f *loop) run(unroll int, body func(at func(ptr int) Mem)) {
	f.together(unroll, func(n int, at func(ptr, i int) Mem) {
		for u := range n {
			body(func(ptr int) Mem { return at(ptr, u) })
		}
	})
}

// together is run with a body for several vectors.
func (f *loop) together(unroll int, body func(n int, at func(ptr, i int) Mem)) {
	n := load("n")
	turn := func(vectors int) {
		body(vectors, func(ptr, i int) Mem { return mem(f.ptrs[ptr], i*f.bytes()) })
		for _, p := range f.ptrs {
			ADDQ(U32(vectors*f.bytes()), p)
		}
		SUBQ(U32(vectors*f.lanes), n)
	}
	CMPQ(n, U32(unroll*f.lanes))
	JLT(LabelRef("single"))
	Label("many")
	turn(unroll)
	CMPQ(n, U32(unroll*f.lanes))
	JGE(LabelRef("many"))
	Label("single")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	turn(1)
	JMP(LabelRef("single"))
	Label("end")
}

// elementwise generates the element-wise kernels of a level.
func elementwise(l level) {
	ConstraintExpr("amd64")
	l.begin("add", "func(dst, src *float32, n int)", "dst", "src").combine(VADDPS, 0, 1)
	l.begin("addTo", "func(dst, a, b *float32, n int)", "dst", "a", "b").combine(VADDPS, 1, 2)
	scales(l)
	relus(l)
	for _, squares := range []bool{false, true} {
		sums(l, squares)
	}
	if !l.masked { // used by both levels
		transpose8()
	}
}

// combine stores a op b of two operands in the first one, and ends the function.
func (f *loop) combine(op func(...Op), a, b int) {
	f.each(func(at func(int) Mem) {
		x := f.loaded(at(a))
		op(at(b), x, x)
		VMOVUPS(x, at(0))
	})
}

func scales(l level) {
	f := l.begin("scale", "func(x *float32, n int, s float32)", "x")
	s := l.scalar("s")
	f.each(func(at func(int) Mem) {
		x := l.vector()
		VMULPS(at(0), s, x)
		VMOVUPS(x, at(0))
	})
}

func relus(l level) {
	f := l.begin("relu", "func(dst, x *float32, n int)", "dst", "x")
	zero := l.zero()
	f.each(func(at func(int) Mem) {
		x := l.vector()
		VMAXPS(at(1), zero, x) // maximum of 0 and x; x if unordered
		VMOVUPS(x, at(0))
	})
	f = l.begin("reluGrad", "func(dx, dy, y *float32, n int)", "dx", "dy", "y")
	zero = l.zero()
	f.each(func(at func(int) Mem) { VMOVUPS(l.passing(at(2), zero, at(1)), at(0)) })
}

// sums generates Sum, or SumSquares.
func sums(l level, squares bool) {
	name := "sum"
	if squares {
		name = "sumSquares"
	}
	f := l.begin(name, "func(lanes *[16]float64, x *float32, n int)", "x")
	f.doubles(load("lanes"), func(x, acc vec) {
		if squares {
			VFMADD231PD(x, x, acc) // the product is exact
		} else {
			VADDPD(x, acc, acc)
		}
	})
}

// doubles runs add with each value as float64 and its accumulator among 16 lanes, 16 floats a turn,
// and ends the function.
func (f *loop) doubles(lanes reg.Register, add func(x, acc vec)) {
	acc := f.vectors(2 * 16 / f.lanes)
	for i, a := range acc {
		VMOVUPD(mem(lanes, i*f.bytes()), a)
	}
	f.floats16().run(2, func(at func(int) Mem) {
		for i, a := range acc {
			x := f.vector()
			VCVTPS2PD(at(0).Offset(i*f.bytes()/2), x)
			add(x, a)
		}
	})
	for i, a := range acc {
		VMOVUPD(a, mem(lanes, i*f.bytes()))
	}
	finish()
}
