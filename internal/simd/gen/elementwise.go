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
	if l.masked {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
	return v
}

// begin starts a function and loads its pointers.
func (l level) begin(name, signature string, pointers ...string) *loop {
	TEXT(name+l.suffix, NOSPLIT, signature)
	Pragma("noescape")
	f := &loop{level: l}
	for _, p := range pointers {
		f.ptrs = append(f.ptrs, load(p))
	}
	return f
}

// scalar broadcasts a parameter.
func (l level) scalar(name string) reg.VecVirtual {
	v := l.vector()
	m, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(m.Addr, v)
	return v
}

// each runs body over all n floats and ends the function.
func (f *loop) each(body func(at func(ptr int) Mem)) {
	f.run(4, body)
	VZEROUPPER()
	RET()
}

func (f *loop) run(unroll int, body func(at func(ptr int) Mem)) {
	n := load("n")
	turn := func(vectors int) {
		for u := range vectors {
			body(func(ptr int) Mem { return mem(f.ptrs[ptr], u*f.bytes()) })
		}
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
	adds(l)
	scales(l)
	relus(l)
	sums(l)
}

func adds(l level) {
	f := l.begin("add", "func(dst, src *float32, n int)", "dst", "src")
	f.each(func(at func(int) Mem) {
		x := l.vector()
		VMOVUPS(at(0), x)
		VADDPS(at(1), x, x)
		VMOVUPS(x, at(0))
	})
	f = l.begin("addTo", "func(dst, a, b *float32, n int)", "dst", "a", "b")
	f.each(func(at func(int) Mem) {
		x := l.vector()
		VMOVUPS(at(1), x)
		VADDPS(at(2), x, x)
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
	f.each(func(at func(int) Mem) {
		x := l.vector()
		const less = 17 // 0 < y, false for NaN
		if l.masked {
			k := K()
			VCMPPS(U8(less), at(2), zero, k)
			VMOVUPS_Z(at(1), k, x)
		} else {
			VCMPPS(U8(less), at(2), zero, x)
			VANDPS(at(1), x, x)
		}
		VMOVUPS(x, at(0))
	})
}

// sums generates Sum and SumSquares: 16 lanes of float64, 16 floats a turn.
func sums(l level) {
	for _, squares := range []bool{false, true} {
		name := "sum"
		if squares {
			name = "sumSquares"
		}
		f := l.begin(name, "func(lanes *[16]float64, x *float32, n int)", "x")
		lanes := load("lanes")
		count := 2 * 16 / l.lanes
		var acc []reg.VecVirtual
		for i := range count {
			v := l.vector()
			VMOVUPD(mem(lanes, i*l.bytes()), v)
			acc = append(acc, v)
		}
		turn := level{lanes: 16, masked: l.masked, suffix: l.suffix}
		f.level = turn
		f.run(2, func(at func(int) Mem) {
			for i, a := range acc {
				x := l.vector()
				m := at(0)
				m.Disp += i * l.bytes() / 2
				VCVTPS2PD(m, x)
				if squares {
					VFMADD231PD(x, x, a) // the product is exact
				} else {
					VADDPD(x, a, a)
				}
			}
		})
		for i, a := range acc {
			VMOVUPD(a, mem(lanes, i*l.bytes()))
		}
		VZEROUPPER()
		RET()
	}
}
