package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

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
