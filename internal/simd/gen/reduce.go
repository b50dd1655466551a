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

// An iteration folds reduceTurn values of each source. Destinations are prefetched for writing
// reduceOwn bytes ahead and sources for reading reduceAhead bytes: a line that is both, written
// before by another processor, is then requested once instead of twice. Otherwise the speed is up
// to half. No data after the operands' end are prefetched, because other threads may use it.
const (
	reduceTurn  = 64
	reduceAhead = 1024
	reduceOwn   = 2048
)

// reduction is a kernel that folds sources into accumulators and stores them to all destinations.
// Both are tables of slice headers, 24 bytes each, beginning with the address.
type reduction struct {
	*cells
	dst, dstEnd, src, srcEnd, at reg.GPVirtual
	n, left, scaled, header      reg.GPVirtual
	scale, nan, sign             vec
}

// reductions generates the kernels of collectives.
func reductions(l level) {
	ConstraintExpr("amd64")
	for _, f := range []format{float, half, brain} {
		l.reduceAll(f)
	}
	conversions(l)
}

// reduceAll is the kernel of a format: n values, at least 1, from byte at on, with left values from
// there to the end of the operands. mask points to words of which the first n mod lanes are
// negative; AVX2 takes only whole vectors of 16-bit values.
func (l level) reduceAll(format format) {
	table := "*[]" + format.goType()
	l.function("reduceAll"+format.suffix(), "func(op int, dst "+table+", nd int, src "+table+", ns, at, n, left int, scale float32, mask *int32)")
	f := &reduction{cells: l.cells(format)}
	if l.masked || format == float {
		f.tail = l.loadTail()
	}
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
	nanBits = 0x7fc00000 // the canonical NaN of reductions
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
	spread(r, v)
	return v
}

// fold generates one operation: iterations of several vectors with prefetches, then without, single
// vectors, and the rest.
func (f *reduction) fold(op int, name string) {
	Label("begin" + name)
	CMPQ(f.n, U32(reduceTurn))
	JLT(LabelRef("own" + name))
	Label("ahead" + name)
	CMPQ(f.left, U32(reduceOwn/f.size()+reduceTurn))
	JLT(LabelRef("many" + name))
	CMPQ(f.n, U32(reduceTurn))
	JLT(LabelRef("single" + name))
	f.turn(op, "Ahead"+name, turn{vectors: reduceTurn / f.lanes, fetch: true})
	JMP(LabelRef("ahead" + name))
	Label("many" + name)
	CMPQ(f.n, U32(reduceTurn))
	JLT(LabelRef("single" + name))
	f.turn(op, "Many"+name, turn{vectors: reduceTurn / f.lanes})
	JMP(LabelRef("many" + name))
	Label("own" + name)
	f.own(name)
	Label("single" + name)
	CMPQ(f.n, U32(f.lanes))
	JLT(LabelRef("rest" + name))
	f.turn(op, "Single"+name, turn{vectors: 1})
	JMP(LabelRef("single" + name))
	Label("rest" + name)
	if f.tail != nil {
		TESTQ(f.n, f.n)
		JZ(LabelRef("end" + name))
		f.turn(op, "Rest"+name, turn{vectors: 1, tail: true})
		Label("end" + name)
	}
	finish()
}

// turn is the extent of an iteration.
type turn struct {
	vectors int
	tail    bool // the lanes of the tail instead of a whole vector
	fetch   bool // prefetch for later iterations
}

// turn reads the next vectors of all sources, then writes them to all destinations: a destination
// may be a source.
func (f *reduction) turn(op int, label string, t turn) {
	lines := func(fetch func(disp int)) {
		for at := 0; t.fetch && at < t.vectors*f.bytes(); at += 64 {
			fetch(at)
		}
	}
	fetch := func() { lines(func(at int) { PREFETCHT0(mem(operand, reduceAhead+at)) }) }
	at := func(u int) Mem { return mem(operand, u*f.bytes()) }
	f.open(f.src)
	acc := make([]vec, t.vectors)
	for u := range acc {
		acc[u] = f.term(op, f.read(at(u), t.tail))
	}
	fetch()
	LEAQ(mem(f.src, 24), f.header)
	JMP(LabelRef("more" + label))
	Label("source" + label)
	f.open(f.header)
	for u, a := range acc {
		f.combine(op, f.term(op, f.read(at(u), t.tail)), a)
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
		f.narrow(a)
	}
	MOVQ(f.dst, f.header)
	Label("store" + label)
	f.open(f.header)
	lines(func(at int) { fetchToWrite(reduceOwn + at) })
	for u, a := range acc {
		f.write(a, at(u), t.tail)
	}
	ADDQ(U8(24), f.header)
	CMPQ(f.header, f.dstEnd)
	JLT(LabelRef("store" + label))
	ADDQ(U32(t.vectors*f.bytes()), f.at)
	SUBQ(U32(t.vectors*f.lanes), f.n)
	SUBQ(U32(t.vectors*f.lanes), f.left)
}

// operand is the address of the iteration's values in an operand.
var operand = reg.R8

// open loads the address of an operand from its slice header.
func (f *reduction) open(header reg.GPVirtual) {
	MOVQ(mem(header, 0), operand)
	ADDQ(f.at, operand)
}

// fetchToWrite is PREFETCHW disp(R8), missing in avo and Go's assembler. Every 64-bit processor
// accepts it, some as a no-op.
func fetchToWrite(disp int) {
	Instruction(&ir.Instruction{Opcode: "QUAD", Operands: []Op{U64(0x880d0f41 | uint64(disp)<<32)}, Inputs: []Op{operand}})
}

// own prefetches all destinations for writing, if shorter than an iteration.
func (f *reduction) own(name string) {
	end := GP64()
	MOVQ(f.dst, f.header)
	Label("fetch" + name)
	f.open(f.header)
	LEAQ(Mem{Base: operand, Index: f.n, Scale: uint8(f.size())}, end)
	Label("line" + name)
	fetchToWrite(0)
	ADDQ(U8(64), operand)
	CMPQ(operand, end)
	JLT(LabelRef("line" + name))
	ADDQ(U8(24), f.header)
	CMPQ(f.header, f.dstEnd)
	JLT(LabelRef("fetch" + name))
}

// term is the accumulated form of x: AVX2 computes the maximum as the negated minimum of negated
// terms. It is its own inverse.
func (f *reduction) term(op int, x vec) vec {
	if op == reduceMax && !f.masked {
		VXORPS(f.sign, x, x)
	}
	return x
}

// combine computes a = a op x. Minimum and maximum are as in Go.
func (f *reduction) combine(op int, x, a vec) {
	switch {
	case op == reduceSum:
		VADDPS(x, a, a)
	case op == reduceProd:
		VMULPS(x, a, a)
	case f.masked:
		// VRANGEPS has -0 < +0, but returns the number for a NaN and a number.
		k := K()
		VCMPPS(U8(unordered), x, a, k)
		VRANGEPS(U8(4+op-reduceMin), x, a, a) // the sign is the result's
		VMOVAPS(f.nan, k, a)
	default:
		// VMINPS returns its second operand if either is NaN or both are 0. The bitwise or of both
		// orders gives -0 for zeros, and a NaN.
		t := f.vector()
		VMINPS(x, a, t)
		VMINPS(a, x, a)
		VORPS(t, a, a)
	}
}

const unordered = 3

// oneNaN canonicalises NaNs, so that results have the same bits for any order of operands in the
// processor.
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
