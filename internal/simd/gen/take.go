package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// take and takeMany have equal results. take lists the positions of taken values, one iteration at
// a time, and then moves the listed values block by block, while a block is in the nearest cache.
// An iteration has no data-dependent branch for up to takeFew taken values. takeMany moves the
// values of every vector immediately, for about twice the cost, independent of their number.
const (
	takeBlock = 2048
	takeFew   = 2
	takeTurn  = 64
	takeAhead = 1024 // prefetch distance in bytes
)

// taking is a kernel that moves large values out of an array.
type taking struct {
	level
	added                   bool
	table                   Mem
	index, x, grad, n, base reg.GPVirtual
	value                   reg.GPVirtual // bytes from an entry of index to its value
	left                    reg.GPVirtual // values of the block
	listed                  reg.GPVirtual // first entry of index with a value to move
	abs, bound, order, zero vec
}

// newTaking begins a kernel that moves values with magnitude bits of at least least, and their
// positions from base on, to value and index, zeroes them in x and returns their number. added: x
// += grad first. It writes whole vectors, the first at the front of value and index, never past the
// position of the values read.
func (l level) newTaking(name string, added bool, table Mem) *taking {
	signature := "func(index *int32, value, x *float32, n int, least uint32, base int32) int"
	if added {
		signature = "func(index *int32, value, x, grad *float32, n int, least uint32, base int32) int"
	}
	l.function(name, signature)
	f := &taking{level: l, added: added, table: table}
	f.index, f.x, f.n = load("index"), load("x"), load("n")
	if f.added {
		f.grad = load("grad")
	}
	f.base, f.value = GP64(), load("value")
	Load(Param("base"), f.base.As32())
	SUBQ(f.index, f.value)
	f.abs, f.bound = f.magnitudes(), f.boundOf("least")
	return f
}

func (f *taking) end() {
	returnCount(f.index, "index")
}

func (l level) take(name string, added bool, table, order Mem) {
	f := l.newTaking(name, added, table)
	f.left, f.listed = GP64(), GP64()
	MOVQ(f.index, f.listed)
	if !f.masked {
		f.order = f.vector()
		VMOVDQU(order, f.order)
	}
	Label("block")
	MOVQ(U32(takeBlock), f.left)
	CMPQ(f.n, f.left)
	CMOVQLT(f.n, f.left)
	SUBQ(f.left, f.n)
	CMPQ(f.left, U32(takeTurn))
	JLT(LabelRef("single"))
	Label("turn")
	f.turn()
	CMPQ(f.left, U32(takeTurn))
	JGE(LabelRef("turn"))
	Label("single")
	TESTQ(f.left, f.left)
	JZ(LabelRef("move"))
	f.single()
	JMP(LabelRef("single"))
	Label("move")
	f.move()
	TESTQ(f.n, f.n)
	JNZ(LabelRef("block"))
	f.end()
}

// packedOrder is the order of the four bytes of each group of lanes after packing.
func packedOrder() Mem {
	return words32("packedOrder", 8, func(i int) uint32 { return uint32(4*(i%2) + i/2) })
}

// turn lists the taken positions of the next values.
func (f *taking) turn() {
	word, count, first := GP64(), GP64(), GP64()
	if f.masked {
		masks := f.read(0, 4)
		low, high := K(), K()
		KUNPCKWD(masks[0], masks[1], low)
		KUNPCKWD(masks[2], masks[3], high)
		KUNPCKDQ(low, high, low)
		KMOVQ(low, word)
	} else {
		high := GP64()
		f.half(0, word)
		f.half(4, high)
		SHLQ(U8(32), high)
		ORQ(high, word)
	}
	POPCNTQ(word, count)
	CMPQ(count, U8(takeFew))
	JGT(LabelRef("many"))
	TZCNTQ(word, first)
	BLSRQ(word, word)
	TZCNTQ(word, word)
	ADDL(f.base.As32(), first.As32())
	ADDL(f.base.As32(), word.As32())
	MOVL(first.As32(), mem(f.index, 0)) // after the count if fewer are taken
	MOVL(word.As32(), mem(f.index, 4))
	LEAQ(Mem{Base: f.index, Index: count, Scale: 4}, f.index)
	ADDL(U32(takeTurn), f.base.As32())
	f.advance(takeTurn, f.left)
	CMPQ(f.left, U32(takeTurn))
	JGE(LabelRef("turn"))
	JMP(LabelRef("single"))
	Label("many")
	f.lookUp(word, count, takeTurn/8)
	f.advance(takeTurn, f.left)
}

// half returns the bits of four vectors of 8 values.
func (f *taking) half(first int, bits reg.GPVirtual) {
	m := f.read(first, 4)
	low, high := YMM(), YMM()
	VPACKSSDW(m[1], m[0], low)
	VPACKSSDW(m[3], m[2], high)
	VPACKSSWB(high, low, low)
	VPERMD(low, f.order, low)
	VPMOVMSKB(low, bits.As32())
}

// read adds grad to vectors and returns a mask of the taken values for each.
func (f *taking) read(first, vectors int) (masks []reg.Register) {
	for i := first; i < first+vectors; i++ {
		v, m := f.readAt(i)
		if f.added {
			VMOVUPS(v, mem(f.x, i*f.bytes()))
		}
		masks = append(masks, m)
	}
	return masks
}

// readAt returns vector i with grad added, and the mask of its taken values.
func (f *taking) readAt(i int) (v vec, mask reg.Register) {
	v, m := f.vector(), f.vector()
	VMOVUPS(mem(f.x, i*f.bytes()), v)
	if f.added {
		VADDPS(mem(f.grad, i*f.bytes()), v, v)
	}
	if i*f.bytes()%64 == 0 {
		PREFETCHT0(mem(f.x, i*f.bytes()+takeAhead))
		if f.added {
			PREFETCHT0(mem(f.grad, i*f.bytes()+takeAhead))
		}
	}
	f.and(f.abs, v, m)
	if f.masked {
		const notLess = 5
		k := K()
		VPCMPUD(U8(notLess), f.bound, m, k)
		return v, k
	}
	VPCMPGTD(f.bound, m, m)
	return v, m
}

func (f *taking) advance(values int, n reg.GPVirtual) {
	ADDQ(U32(4*values), f.x)
	if f.added {
		ADDQ(U32(4*values), f.grad)
	}
	SUBQ(U32(values), n)
}

// single lists the taken positions of one vector.
func (f *taking) single() {
	word, count := GP64(), GP64()
	m := f.read(0, 1)
	if f.masked {
		KMOVW(m[0], word.As32())
	} else {
		VMOVMSKPS(m[0], word.As32())
	}
	f.lookUp(word, count, f.lanes/8)
	f.advance(f.lanes, f.left)
}

// lookUp lists the places of a word's bits, 8 at a time.
func (f *taking) lookUp(word, some reg.GPVirtual, eights int) {
	at, eight, table := YMM(), avx2.bits(8), GP64()
	LEAQ(f.table, table)
	spread(f.base.As32(), at)
	for i := range eights {
		places := YMM()
		MOVBLZX(word.As8(), some.As32())
		VPMOVZXBD(Mem{Base: table, Index: some, Scale: 8}, places)
		VPADDD(at, places, places)
		VMOVDQU(places, mem(f.index, 0))
		POPCNTL(some.As32(), some.As32())
		LEAQ(Mem{Base: f.index, Index: some, Scale: 4}, f.index)
		if i+1 < eights {
			SHRQ(U8(8), word)
			VPADDD(eight, at, at)
		}
	}
	ADDL(U32(8*eights), f.base.As32())
}

// valueAt is the address of the value of list entry index: f.value is the distance of the lists.
func (f *taking) valueAt(index reg.GPVirtual) Mem { return Mem{Base: index, Index: f.value, Scale: 1} }

// move moves the listed values and leaves zeros.
func (f *taking) move() {
	CMPQ(f.listed, f.index)
	JEQ(LabelRef("moved"))
	at, v, origin := GP64(), GP32(), load("x")
	Load(Param("base"), at.As32())
	SHLQ(U8(2), at)
	SUBQ(at, origin) // address of the value of position 0
	Label("moveOne")
	MOVL(mem(f.listed, 0), at.As32())
	here := Mem{Base: origin, Index: at, Scale: 4}
	MOVL(here, v)
	MOVL(U32(0), here)
	MOVL(v, f.valueAt(f.listed))
	ADDQ(U8(4), f.listed)
	CMPQ(f.listed, f.index)
	JNE(LabelRef("moveOne"))
	Label("moved")
}

// takeMany moves the values of each vector immediately.
func (l level) takeMany(name string, added bool, table, lanes Mem) {
	f := l.newTaking(name, added, table)
	at, step := l.vector(), l.bits(uint32(l.lanes))
	spread(f.base.As32(), at)
	if f.masked {
		f.zero = l.zero()
		VPADDD(lanes, at, at)
	} else {
		LEAQ(table, f.base) // because base is in a vector now
	}
	one := func(i int, label string) {
		v, m := f.readAt(i)
		if f.masked {
			f.compress(v, at, m.(reg.OpmaskVirtual), mem(f.x, i*f.bytes()), label)
		} else {
			f.permute(v, at, m.(vec), mem(f.x, i*f.bytes()))
		}
		VPADDD(step, at, at)
	}
	turn := 4 * l.lanes
	CMPQ(f.n, U32(turn))
	JLT(LabelRef("single"))
	Label("turn")
	for i := range 4 {
		one(i, string(rune('A'+i)))
	}
	f.advance(turn, f.n)
	CMPQ(f.n, U32(turn))
	JGE(LabelRef("turn"))
	Label("single")
	TESTQ(f.n, f.n)
	JZ(LabelRef("end"))
	one(0, "Single")
	f.advance(l.lanes, f.n)
	JMP(LabelRef("single"))
	Label("end")
	f.end()
}

func (f *taking) compress(v, at vec, some reg.OpmaskVirtual, here Mem, label string) {
	values, places, count := f.vector(), f.vector(), GP64()
	rest, kept := K(), f.vector()
	KNOTW(some, rest)
	VMOVAPS_Z(v, rest, kept)
	VMOVUPS(kept, here)
	KMOVW(some, count.As32())
	VPCOMPRESSD_Z(at, some, places)
	VCOMPRESSPS_Z(v, some, values)
	POPCNTL(count.As32(), count.As32())
	VMOVUPS(places.AsY(), mem(f.index, 0))
	VMOVUPS(values.AsY(), f.valueAt(f.index))
	CMPL(count.As32(), U8(8)) // rarely more: half a vector crosses half as many lines
	JLE(LabelRef("half" + label))
	VMOVUPS(places, mem(f.index, 0))
	VMOVUPS(values, f.valueAt(f.index))
	Label("half" + label)
	LEAQ(Mem{Base: f.index, Index: count, Scale: 4}, f.index)
}

func (f *taking) permute(v, at, some vec, here Mem) {
	order, kept, count := f.vector(), f.vector(), GP64()
	VPANDN(v, some, kept)
	VMOVMSKPS(some, count.As32())
	VMOVUPS(kept, here)
	VPMOVZXBD(Mem{Base: f.base, Index: count, Scale: 8}, order)
	POPCNTL(count.As32(), count.As32())
	VPERMPS(v, order, kept)
	VPADDD(at, order, order)
	VMOVUPS(kept, f.valueAt(f.index))
	VMOVDQU(order, mem(f.index, 0))
	LEAQ(Mem{Base: f.index, Index: count, Scale: 4}, f.index)
}
