package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Kernels of an exact selection for its candidates. Counts are multiples of the vector; x, index
// and value are read before an overlapping write.

// boundOf broadcasts the bound for comparisons of magnitudes by reaching.
func (l level) boundOf(param string) vec {
	b, v := GP32(), l.vector()
	Load(Param(param), b)
	if !l.masked {
		DECL(b) // the comparison is greater, signed: magnitudes are not negative
	}
	spread(b, v)
	return v
}

// minAtLeast is the smallest of the magnitude bits of at least least, or all ones without any.
func (l level) minAtLeast() {
	f := l.begin("minAtLeast", "func(x *float32, n int, least uint32) uint32", "x")
	abs, bound, acc := l.magnitudes(), l.boundOf("least"), l.bits(1<<32-1)
	var ones vec
	if !l.masked {
		ones = l.bits(1<<32 - 1)
	}
	f.run(4, func(at func(int) Mem) {
		m := l.loaded(at(0))
		l.and(abs, m, m)
		if l.masked {
			k := K()
			VPCMPUD(U8(5), bound, m, k)
			VPMINUD(m, acc, k, acc)
			return
		}
		some := l.vector()
		VPCMPGTD(bound, m, some)
		VPXOR(ones, some, some)
		VPOR(some, m, m)
		VPMINUD(m, acc, acc)
	})
	l.foldInts(acc, VPMINUD)
}

// sieve determines the lanes that reach a bound, for below and separate.
type sieve struct {
	level
	abs, bound vec
	table      reg.GPVirtual
}

func (l level) newSieve(table Mem) *sieve {
	s := &sieve{level: l, abs: l.magnitudes(), bound: l.boundOf("bound")}
	if !l.masked {
		s.table = GP64()
		LEAQ(table, s.table)
	}
	return s
}

// lanes are the selected lanes of a vector, in order, and their number.
type lanes struct {
	mask  reg.OpmaskVirtual
	order vec
	count reg.GPVirtual
}

// split returns the lanes of v that reach the bound and, with both, the remaining lanes.
func (s *sieve) split(v vec, both bool) (high, low lanes) {
	m := s.vector()
	high.count, low.count = GP64(), GP64()
	s.and(s.abs, v, m)
	if s.masked {
		low.mask = K()
		VPCMPUD(U8(1), s.bound, m, low.mask)
		KMOVW(low.mask, low.count.As32())
		POPCNTL(low.count.As32(), low.count.As32())
		if both {
			high.mask = K()
			KNOTW(low.mask, high.mask)
			MOVL(U32(s.level.lanes), high.count.As32())
			SUBL(low.count.As32(), high.count.As32())
		}
		return high, low
	}
	VPCMPGTD(s.bound, m, m)
	VMOVMSKPS(m, low.count.As32())
	if both {
		MOVL(low.count.As32(), high.count.As32())
		s.arrange(&high)
	}
	XORL(U32(0xff), low.count.As32())
	s.arrange(&low)
	return high, low
}

// arrange computes the order of lanes and their count from a mask in count.
func (s *sieve) arrange(out *lanes) {
	out.order = s.vector()
	VPMOVZXBD(Mem{Base: s.table, Index: out.count, Scale: 8}, out.order)
	POPCNTL(out.count.As32(), out.count.As32())
}

// put writes the chosen lanes of v to the front of to.
func (s *sieve) put(v vec, o lanes, to reg.GPVirtual) {
	t := s.vector()
	if s.masked {
		VPCOMPRESSD_Z(v, o.mask, t)
	} else {
		VPERMD(v, o.order, t)
	}
	VMOVUPS(t, mem(to, 0))
}

// skip advances the pointers by the number of lanes.
func skip(o lanes, pointers ...reg.GPVirtual) {
	for _, p := range pointers {
		LEAQ(Mem{Base: p, Index: o.count, Scale: 4}, p)
	}
}

// returnCount ends a function with the number of values up to a pointer as its result.
func returnCount(to reg.Register, from string) {
	SUBQ(load(from), to)
	SHRQ(U8(2), to)
	Store(to, ReturnIndex(0))
	finish()
}

// below writes to dst the values with magnitude bits below bound, and returns their number. It
// writes whole vectors.
func (l level) below(table Mem) {
	l.function("below", "func(dst, x *float32, n int, bound uint32) int")
	s := l.newSieve(table)
	dst, x, n := load("dst"), load("x"), load("n")
	Label("turn")
	v := l.loaded(mem(x, 0))
	_, low := s.split(v, false)
	s.put(v, low, dst)
	skip(low, dst)
	ADDQ(U8(l.bytes()), x)
	SUBQ(U8(l.lanes), n)
	JNZ(LabelRef("turn"))
	returnCount(dst, "dst")
}

// separate writes the entries with magnitude bits of at least bound to toIndex and toValue, and the
// remaining entries to lowIndex and lowValue. It returns the number of the former. It writes whole
// vectors.
func (l level) separate(table Mem) {
	l.function("separate", "func(toIndex *int32, toValue *float32, index *int32, value *float32, n int, bound uint32, lowIndex *int32, lowValue *float32) int")
	s := l.newSieve(table)
	toIndex, toValue, lowIndex, lowValue := load("toIndex"), load("toValue"), load("lowIndex"), load("lowValue")
	index, value, n := load("index"), load("value"), load("n")
	Label("turn")
	v, at := l.vector(), l.vector()
	VMOVUPS(mem(value, 0), v)
	VMOVUPS(mem(index, 0), at)
	high, low := s.split(v, true)
	s.put(v, high, toValue)
	s.put(at, high, toIndex)
	s.put(v, low, lowValue)
	s.put(at, low, lowIndex)
	skip(high, toValue, toIndex)
	skip(low, lowValue, lowIndex)
	ADDQ(U8(l.bytes()), index)
	ADDQ(U8(l.bytes()), value)
	SUBQ(U8(l.lanes), n)
	JNZ(LabelRef("turn"))
	returnCount(toValue, "toValue")
}
