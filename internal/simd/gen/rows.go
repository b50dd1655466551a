package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tail moves the first lanes of a vector, for the columns behind the last whole one.
type tail struct {
	level
	mask reg.Register
}

// loadTail returns the lanes with a negative word at the parameter mask.
func (l level) loadTail() *tail {
	words := l.vector()
	VMOVUPS(mem(load("mask"), 0), words)
	if !l.masked {
		return &tail{l, words}
	}
	k := K()
	VPMOVD2M(words, k)
	return &tail{l, k}
}

func (t *tail) read(m Mem) vec {
	v := t.vector()
	if t.masked {
		VMOVUPS_Z(m, t.mask.(reg.OpmaskVirtual), v)
	} else {
		VMASKMOVPS(m, t.mask, v)
	}
	return v
}

func (t *tail) write(v vec, m Mem) {
	if t.masked {
		VMOVUPS(v, t.mask.(reg.OpmaskVirtual), m)
	} else {
		VMASKMOVPS(v, t.mask, m)
	}
}

// keep clears the other lanes.
func (t *tail) keep(v vec) {
	if t.masked {
		VMOVAPS_Z(v, t.mask.(reg.OpmaskVirtual), v)
	} else {
		VANDPS(t.mask, v, v)
	}
}

// rows generates the kernels on rows of matrices. Strides are in bytes, vectors is the number of
// whole vectors of a row, and mask points to the lanes of the rest. A row may consist of several
// separate lines.
func rows(l level) {
	ConstraintExpr("amd64")
	l.eachRow("copyRows", func(dst, src vec) vec { return src }, false)
	l.eachRow("addToRows", func(dst, src vec) vec { VADDPS(src, dst, dst); return dst }, true)
	l.sumRows()
}

func (l level) eachRow(name string, f func(dst, src vec) vec, reads bool) {
	l.function(name, "func(dst *float32, ldd int, src *float32, lds, rows, vectors int, mask *int32, lines, dstLine, srcLine int)")
	dst, src, ldd, lds, n := load("dst"), load("src"), load("ldd"), load("lds"), load("rows")
	vectors, dstLine, srcLine := load("vectors"), load("dstLine"), load("srcLine")
	tail := l.loadTail()
	d, s, left, lines, at, from := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	Label("row")
	MOVQ(dst, at)
	MOVQ(src, from)
	Load(Param("lines"), lines)
	Label("line")
	MOVQ(at, d)
	MOVQ(from, s)
	ADDQ(dstLine, at)
	ADDQ(srcLine, from)
	MOVQ(vectors, left)
	TESTQ(left, left)
	JZ(LabelRef("tail"))
	Label("vector")
	var x vec
	if reads {
		x = l.loaded(mem(d, 0))
	}
	y := l.loaded(mem(s, 0))
	VMOVUPS(f(x, y), mem(d, 0))
	ADDQ(U32(l.bytes()), d)
	ADDQ(U32(l.bytes()), s)
	again("vector", left)
	Label("tail")
	if reads {
		x = tail.read(mem(d, 0))
	}
	tail.write(f(x, tail.read(mem(s, 0))), mem(d, 0))
	again("line", lines)
	ADDQ(ldd, dst)
	ADDQ(lds, src)
	endLoop("row", n)
}

// sumRows adds the sum of rows to a row, four vectors of columns at a time.
func (l level) sumRows() {
	l.function("sumRows", "func(dst, src *float32, lds, rows, vectors int, mask *int32)")
	dst, src, lds, n := load("dst"), load("src"), load("lds"), load("rows")
	vectors := load("vectors")
	tail := l.loadTail()
	s, left := GP64(), GP64()
	block := func(label string, count int) {
		acc := make([]vec, count)
		for i := range acc {
			acc[i] = l.loaded(mem(dst, i*l.bytes()))
		}
		MOVQ(src, s)
		MOVQ(n, left)
		Label(label)
		for i := range acc {
			VADDPS(mem(s, i*l.bytes()), acc[i], acc[i])
		}
		ADDQ(lds, s)
		again(label, left)
		for i := range acc {
			VMOVUPS(acc[i], mem(dst, i*l.bytes()))
		}
		ADDQ(U32(count*l.bytes()), dst)
		ADDQ(U32(count*l.bytes()), src)
		SUBQ(U8(count), vectors)
	}
	Label("blocks")
	CMPQ(vectors, U8(4))
	JLT(LabelRef("singles"))
	block("four", 4)
	JMP(LabelRef("blocks"))
	Label("singles")
	TESTQ(vectors, vectors)
	JZ(LabelRef("tail"))
	block("one", 1)
	JMP(LabelRef("singles"))
	Label("tail")
	acc := tail.read(mem(dst, 0))
	Label("rest")
	x := tail.read(mem(src, 0))
	VADDPS(x, acc, acc)
	ADDQ(lds, src)
	again("rest", n)
	tail.write(acc, mem(dst, 0))
	finish()
}
