package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
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

// A turn folds reduceTurn bytes of each source. Destinations are fetched for
// writing reduceOwn bytes ahead and sources for reading reduceAhead bytes: a
// line that is both, and that another processor has written, is then asked for
// once and not twice. Not to do so costs up to half the speed. Nothing is
// fetched behind the operands' end, where others may be at work.
const (
	reduceTurn  = 256
	reduceAhead = 1024
	reduceOwn   = 2048
)

// reduction is one kernel: it folds sources into accumulators and stores them
// to all destinations. Both are tables of slice headers, 24 bytes each, whose
// first word is the address.
type reduction struct {
	level
	dst, dstEnd, src, srcEnd, at reg.GPVirtual
	n, left, scaled, header      reg.GPVirtual
	scale, nan, sign             vec
	tail                         *rowTail
}

// reductions generates the kernels of collectives: n values, at least 1, from
// byte at on, where left values follow. mask points to words of which the first n mod lanes are negative.
func reductions(l level) {
	ConstraintExpr("amd64")
	TEXT("reduceAll"+l.suffix, NOSPLIT, "func(op int, dst *[]float32, nd int, src *[]float32, ns, at, n, left int, scale float32, mask *int32)")
	Pragma("noescape")
	f := &reduction{level: l, tail: l.loadTail()}
	f.dst, f.src, f.at, f.n, f.left = load("dst"), load("src"), load("at"), load("n"), load("left")
	f.dstEnd, f.srcEnd = tableEnd(f.dst, "nd"), tableEnd(f.src, "ns")
	f.header, f.scaled = GP64(), GP64()
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
	CMPQ(f.n, U32(reduceTurn/4))
	JLT(LabelRef("own" + name))
	Label("ahead" + name)
	CMPQ(f.left, U32((reduceOwn+reduceTurn)/4))
	JLT(LabelRef("many" + name))
	CMPQ(f.n, U32(reduceTurn/4))
	JLT(LabelRef("single" + name))
	f.turn(op, "Ahead"+name, reduceTurn/f.bytes(), f.whole())
	JMP(LabelRef("ahead" + name))
	Label("many" + name)
	CMPQ(f.n, U32(reduceTurn/4))
	JLT(LabelRef("single" + name))
	f.turn(op, "Many"+name, reduceTurn/f.bytes(), f.whole())
	JMP(LabelRef("many" + name))
	JMP(LabelRef("single" + name))
	Label("own" + name)
	f.own(name)
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
	lines := func(fetch func(disp int)) {
		for at := 0; label[:5] == "Ahead" && at < vectors*f.bytes(); at += 64 {
			fetch(at)
		}
	}
	fetch := func() { lines(func(at int) { PREFETCHT0(mem(operand, reduceAhead+at)) }) }
	at := func(u int) Mem { return mem(operand, u*f.bytes()) }
	f.open(f.src)
	acc := make([]vec, vectors)
	for u := range acc {
		acc[u] = f.term(op, p.load(at(u)))
	}
	fetch()
	LEAQ(mem(f.src, 24), f.header)
	JMP(LabelRef("more" + label))
	Label("source" + label)
	f.open(f.header)
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
	f.open(f.header)
	lines(func(at int) { fetchToWrite(reduceOwn + at) })
	for u, a := range acc {
		p.store(a, at(u))
	}
	ADDQ(U8(24), f.header)
	CMPQ(f.header, f.dstEnd)
	JLT(LabelRef("store" + label))
	ADDQ(U32(vectors*f.bytes()), f.at)
	SUBQ(U32(vectors*f.lanes), f.n)
	SUBQ(U32(vectors*f.lanes), f.left)
}

// operand is where the values of an operand are that the turn is about.
var operand = reg.R8

// open loads the address of an operand from its slice header.
func (f *reduction) open(header reg.GPVirtual) {
	MOVQ(mem(header, 0), operand)
	ADDQ(f.at, operand)
}

// fetchToWrite is PREFETCHW disp(R8), which neither avo nor Go's assembler
// know. Every processor of 64 bits takes it, some as no operation.
func fetchToWrite(disp int) {
	Instruction(&ir.Instruction{Opcode: "QUAD", Operands: []Op{U64(0x880d0f41 | uint64(disp)<<32)}, Inputs: []Op{operand}})
}

// own fetches all of all destinations for writing: those of less than a turn.
func (f *reduction) own(name string) {
	end := GP64()
	MOVQ(f.dst, f.header)
	Label("fetch" + name)
	f.open(f.header)
	LEAQ(Mem{Base: operand, Index: f.n, Scale: 4}, end)
	Label("line" + name)
	fetchToWrite(0)
	ADDQ(U8(64), operand)
	CMPQ(operand, end)
	JLT(LabelRef("line" + name))
	ADDQ(U8(24), f.header)
	CMPQ(f.header, f.dstEnd)
	JLT(LabelRef("fetch" + name))
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
