package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The numbers of simd.Reduction.
const (
	reduceSum = iota
	reduceMin
	reduceMax
	reduceProd
)

// reduceUnroll is how many vectors of each source a turn folds, and
// reduceAhead how many bytes before its use a source is fetched.
const (
	reduceUnroll = 4
	reduceAhead  = 1024
)

// reduction is one kernel: it folds sources into accumulators and stores them
// to all destinations. Both are tables of slice headers, 24 bytes each, whose
// first word is the address.
type reduction struct {
	level
	dst, dstEnd, src, srcEnd, at reg.GPVirtual
	n, scaled, header, p         reg.GPVirtual
	scale, nan, sign             vec
	tail                         *rowTail
}

// reductions generates the kernels of collectives: n values, at least 1, from
// byte at on. mask points to words of which the first n mod lanes are negative.
func reductions(l level) {
	ConstraintExpr("amd64")
	TEXT("reduceAll"+l.suffix, NOSPLIT, "func(op int, dst *[]float32, nd int, src *[]float32, ns, at, n int, scale float32, mask *int32)")
	Pragma("noescape")
	f := &reduction{level: l, tail: l.loadTail()}
	f.dst, f.src, f.at, f.n = load("dst"), load("src"), load("at"), load("n")
	f.dstEnd, f.srcEnd = tableEnd(f.dst, "nd"), tableEnd(f.src, "ns")
	f.header, f.p, f.scaled = GP64(), GP64(), GP64()
	f.scale = l.scalar("scale")
	VMOVD(f.scale.AsX(), f.scaled.As32())
	SUBL(U32(oneBits), f.scaled.As32())
	f.nan, f.sign = l.bits(nanBits), l.bits(1<<31)
	op := load("op")
	for i, name := range []string{"Min", "Max", "Prod"} {
		CMPQ(op, U8(i+1))
		JEQ(LabelRef("begin" + name))
	}
	for i, name := range []string{"Sum", "Min", "Max", "Prod"} {
		f.fold(i, name)
	}
}

const (
	nanBits = 0x7fc00000 // the one NaN that reductions give
	oneBits = 0x3f800000
)

func tableEnd(table reg.GPVirtual, length string) reg.GPVirtual {
	end, n := GP64(), load(length)
	LEAQ(Mem{Base: n, Index: n, Scale: 2}, end)
	LEAQ(Mem{Base: table, Index: end, Scale: 8}, end)
	return end
}

// bits broadcasts a constant.
func (l level) bits(word uint32) vec {
	r, v := GP32(), l.vector()
	MOVL(U32(word), r)
	VMOVD(r, v.AsX())
	VPBROADCASTD(v.AsX(), v)
	return v
}

// fold is all of one operation: turns of several vectors, single ones, the rest.
func (f *reduction) fold(op int, name string) {
	Label("begin" + name)
	CMPQ(f.n, U32(reduceUnroll*f.lanes))
	JLT(LabelRef("single" + name))
	Label("many" + name)
	f.turn(op, "Many"+name, reduceUnroll, f.whole())
	CMPQ(f.n, U32(reduceUnroll*f.lanes))
	JGE(LabelRef("many" + name))
	Label("single" + name)
	CMPQ(f.n, U32(f.lanes))
	JLT(LabelRef("rest" + name))
	f.turn(op, "Single"+name, 1, f.whole())
	JMP(LabelRef("single" + name))
	Label("rest" + name)
	TESTQ(f.n, f.n)
	JZ(LabelRef("end" + name))
	f.turn(op, "Rest"+name, 1, part{load: func(m Mem) vec { return f.tail.read(m) }, store: func(v vec, m Mem) { f.tail.write(v, m) }})
	Label("end" + name)
	VZEROUPPER()
	RET()
}

func (f *reduction) whole() part {
	return part{
		load: func(m Mem) vec {
			v := f.vector()
			VMOVUPS(m, v)
			return v
		},
		store: func(v vec, m Mem) { VMOVUPS(v, m) },
	}
}

// turn reads the next vectors of all sources, then writes them to all
// destinations: a destination may be a source.
func (f *reduction) turn(op int, label string, vectors int, p part) {
	at := func(u int) Mem { return Mem{Base: f.p, Index: f.at, Scale: 1, Disp: u * f.bytes()} }
	fetch := func() {
		if vectors == 1 {
			return
		}
		for line := 0; line < vectors*f.bytes(); line += 64 {
			PREFETCHT0(Mem{Base: f.p, Index: f.at, Scale: 1, Disp: reduceAhead + line})
		}
	}
	MOVQ(mem(f.src, 0), f.p)
	acc := make([]vec, vectors)
	for u := range acc {
		acc[u] = f.term(op, p.load(at(u)))
	}
	fetch()
	LEAQ(mem(f.src, 24), f.header)
	JMP(LabelRef("more" + label))
	Label("source" + label)
	MOVQ(mem(f.header, 0), f.p)
	for u, a := range acc {
		f.combine(op, f.term(op, p.load(at(u))), a)
	}
	fetch()
	ADDQ(U8(24), f.header)
	Label("more" + label)
	CMPQ(f.header, f.srcEnd)
	JLT(LabelRef("source" + label))
	for _, a := range acc {
		f.term(op, a)
	}
	TESTL(f.scaled.As32(), f.scaled.As32())
	JZ(LabelRef("plain" + label))
	for _, a := range acc {
		VMULPS(f.scale, a, a)
	}
	Label("plain" + label)
	for _, a := range acc {
		f.oneNaN(a)
	}
	MOVQ(f.dst, f.header)
	Label("store" + label)
	MOVQ(mem(f.header, 0), f.p)
	for u, a := range acc {
		p.store(a, at(u))
	}
	ADDQ(U8(24), f.header)
	CMPQ(f.header, f.dstEnd)
	JLT(LabelRef("store" + label))
	ADDQ(U32(vectors*f.bytes()), f.at)
	SUBQ(U32(vectors*f.lanes), f.n)
}

// term is x as it is accumulated: AVX2 has the maximum as the negated minimum
// of negated terms. It is its own inverse.
func (f *reduction) term(op int, x vec) vec {
	if op == reduceMax && !f.masked {
		VXORPS(f.sign, x, x)
	}
	return x
}

// combine does a = a op x. Minimum and maximum are those of Go.
func (f *reduction) combine(op int, x, a vec) {
	switch {
	case op == reduceSum:
		VADDPS(x, a, a)
	case op == reduceProd:
		VMULPS(x, a, a)
	case f.masked:
		// VRANGEPS has -0 < +0, but of a NaN and a number it takes the number.
		k := K()
		VCMPPS(U8(unordered), x, a, k)
		VRANGEPS(U8(4+op-reduceMin), x, a, a) // the sign is the result's
		VMOVAPS(f.nan, k, a)
	default:
		// VMINPS returns its second operand where one is NaN or both are 0. Either
		// order in turn, the bits of both together: -0 of zeros, and a NaN.
		t := f.vector()
		VMINPS(x, a, t)
		VMINPS(a, x, a)
		VORPS(t, a, a)
	}
}

const unordered = 3

// oneNaN makes every NaN the same, so that results have the same bits in
// whatever order the processor took the operands.
func (f *reduction) oneNaN(a vec) {
	if f.masked {
		k := K()
		VCMPPS(U8(unordered), a, a, k)
		VMOVAPS(f.nan, k, a)
		return
	}
	t := f.vector()
	VCMPPS(U8(unordered), a, a, t)
	VBLENDVPS(t, f.nan, a, a)
}
