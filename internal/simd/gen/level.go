package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// level describes an instruction set for the templates.
type level struct {
	name   string
	suffix string // suffix of function names
	lanes  int    // floats of a vector
	mr     int    // rows of the largest tile, of two vectors each
	regs   []reg.VecPhysical
	masked bool
	pairs  bool // operands of products are pairs of bfloat16 values
}

var avx512 = level{name: "AVX-512", suffix: "512", lanes: 16, mr: 14, masked: true, regs: []reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
	reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
	reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}}

var avx2 = level{name: "AVX2", suffix: "2", lanes: 8, mr: 6, regs: []reg.VecPhysical{
	reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
	reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
}}

func (l level) bytes() int { return 4 * l.lanes }

func mem(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// function begins a function with pointers that do not escape.
func (l level) function(name, signature string) {
	TEXT(name+l.suffix, NOSPLIT, signature)
	Pragma("noescape")
}

// finish ends a function.
func finish() {
	VZEROUPPER()
	RET()
}

// again counts n down, and repeats from a label until n is 0.
func again(label string, n Op) {
	DECQ(n)
	JNZ(LabelRef(label))
}

// endLoop ends a function with its last loop.
func endLoop(label string, n Op) {
	again(label, n)
	finish()
}

// clear sets a vector to zero.
func (l level) clear(v Op) {
	if l.masked {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
}

// spread broadcasts the 32 bits of a register.
func spread(bits Op, v vec) {
	VMOVD(bits, v.AsX())
	VPBROADCASTD(v.AsX(), v)
}

// address returns the place of a parameter or result.
func address(c gotypes.Component) Mem {
	basic, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return basic.Addr
}

// copied returns 64 bits in a new register.
func copied(from Op) reg.GPVirtual {
	r := GP64()
	MOVQ(from, r)
	return r
}

// load returns a parameter of the function in a register.
func load(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name), r)
	return r
}

func load32(name string) reg.GPVirtual {
	r := GP32()
	Load(Param(name), r)
	return r
}
