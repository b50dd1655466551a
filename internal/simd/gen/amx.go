package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of the fields of simd.tile for AMX.
const (
	tileRows    = 240
	tileColumns = 248
	tileSecond  = 256
	tileSteps   = 264
	tileRest    = 272
	tileSums    = 280
	tileConfig  = 288
)

// Tile registers: sums of rows by columns in halves, then operands of a whole step (16 pairs) and
// of the rest of the pairs, which have other sizes.
const (
	sum00 = iota
	sum01
	sum10
	sum11
	stepA
	stepB
	restA
	restB
)

// Prefixes of AMX's instructions, which neither avo nor Go's assembler has.
const (
	vexNone, vexF3, vexF2 = 0, 2, 3
)

// raw writes the bytes of an instruction.
func raw(comment string, bytes ...int) {
	Comment(comment)
	for len(bytes) >= 4 {
		word := uint32(bytes[0] | bytes[1]<<8 | bytes[2]<<16 | bytes[3]<<24)
		Instruction(&ir.Instruction{Opcode: "LONG", Operands: []Op{U32(word)}})
		bytes = bytes[4:]
	}
	for _, b := range bytes {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(b)}})
	}
}

// vex returns the prefix and opcode of a 128-bit instruction of opcode map 0F38. The register
// numbers index and base may be above 7.
func vex(prefix, opcode, v, index, base int) []int {
	return []int{0xc4, 0xe2 ^ index>>3<<6 ^ base>>3<<5, (^v&15)<<3 | prefix, opcode}
}

// tileMemory writes an instruction with tile r and rows at a distance of index bytes from base on.
func tileMemory(name string, prefix, opcode, r int, base, index reg.GPPhysical, disp int) {
	b, i := int(base.PhysicalIndex()), int(index.PhysicalIndex())
	raw(name, append(vex(prefix, opcode, 0, i, b), 0x44|r<<3, i&7<<3|b&7, disp)...)
}

func tileLoad(r int, base, index reg.GPPhysical, disp int) {
	tileMemory("TILELOADD", vexF2, 0x4b, r, base, index, disp)
}

func tileStore(r int, base, index reg.GPPhysical, disp int) {
	tileMemory("TILESTORED", vexF3, 0x4b, r, base, index, disp)
}

func tileZero(r int) { raw("TILEZERO", append(vex(vexF2, 0x49, 0, 0, 0), 0xc0|r<<3)...) }

func tileRelease() { raw("TILERELEASE", append(vex(vexNone, 0x49, 0, 0, 0), 0xc0)...) }

// tileConfigure loads the sizes of tiles from 64 bytes, and clears all tiles.
func tileConfigure(base reg.GPPhysical, disp int) {
	b := int(base.PhysicalIndex())
	raw("LDTILECFG", append(vex(vexNone, 0x49, 0, 0, b), 0x80|b&7, disp&255, disp>>8&255, 0, 0)...)
}

// tileDot adds the products of tiles a and b to acc.
func tileDot(a, b, acc int) {
	raw("TDPBF16PS", append(vex(vexF3, 0x5c, b, 0, 0), 0xc0|acc<<3|a)...)
}

// amxKernel has the physical registers of the kernel, because instructions in bytes need them.
type amxKernel struct {
	t, sums, temp   reg.GPPhysical
	a, second       reg.GPPhysical // of A, at the current pairs
	aStride         reg.GPPhysical
	wide            reg.GPPhysical // bytes of a row of 32 columns
	panel, b        reg.GPPhysical // of B: the panel, and the panel at the current pairs
	ldc, count      reg.GPPhysical
	aTile, at       Mem // stack slots: A of the tile, and bytes from the first panel's column
	cTile, rowBias  Mem
	tiles, panels   Mem
	k               [2]reg.OpmaskPhysical
	row, bias, zero [2]reg.VecPhysical
}

// amx generates the micro-kernel for tiles of up to 32 rows by 32 columns. simd.tile.configure sets
// the sizes. The sums of a panel travel through memory, because only vectors have masks.
//
// The tiles are configured and released in each call: the state never outlives it, so goroutines
// may change threads between calls. A signal during the call saves and restores the tiles.
func amx(table string) {
	ConstraintExpr("amd64")
	TEXT("gemmAMX", NOSPLIT, "func(t *byte)")
	k := amxKernel{
		t: reg.RDI, sums: reg.RSI, temp: reg.RAX, a: reg.RCX, second: reg.RDX, aStride: reg.R8, wide: reg.R9,
		panel: reg.R10, b: reg.R11, ldc: reg.RBX, count: reg.R13,
		k:   [2]reg.OpmaskPhysical{reg.K1, reg.K2},
		row: [2]reg.VecPhysical{z(0), z(1)}, bias: [2]reg.VecPhysical{z(4), z(5)}, zero: [2]reg.VecPhysical{z(6), z(7)},
	}
	for _, local := range []*Mem{&k.aTile, &k.cTile, &k.rowBias, &k.tiles, &k.at, &k.panels} {
		*local = AllocLocal(8)
	}
	k.begin()
	Label("tile")
	MOVQ(mem(k.t, tileB), k.panel)
	k.local(tilePanels, k.panels)
	XORQ(k.temp, k.temp)
	MOVQ(k.temp, k.at)
	Label("panel")
	k.products()
	k.epilogue()
	k.next()
	again("panel", k.panels)
	k.nextTile()
	again("tile", k.tiles)
	tileRelease()
	finish()
	amxPeak()
	TEXT("xgetbv", NOSPLIT, "func() uint64")
	XORL(reg.ECX, reg.ECX)
	XGETBV()
	SHLQ(U8(32), reg.RDX)
	ORQ(reg.RDX, reg.RAX)
	Store(reg.RAX, ReturnIndex(0))
	RET()
	writeTable(table, tableHeader+`
//go:noescape
func gemmAMX(t *tile)

//go:noescape
func peakAMX(turns int, config *byte)

func xgetbv() uint64
`)
}

// local copies a field of the tile to the stack.
func (k *amxKernel) local(field int, to Mem) {
	MOVQ(mem(k.t, field), k.temp)
	MOVQ(k.temp, to)
}

// begin loads the operands of all tiles.
func (k *amxKernel) begin() {
	Load(Param("t"), k.t)
	tileConfigure(k.t, tileConfig)
	MOVQ(mem(k.t, tileMask), k.temp)
	KMOVW(reg.EAX, k.k[0])
	SHRQ(U8(16), k.temp)
	KMOVW(reg.EAX, k.k[1])
	MOVQ(mem(k.t, tileARS), k.aStride)
	SHLQ(U8(2), k.aStride)
	MOVQ(mem(k.t, tileLDC), k.ldc)
	SHLQ(U8(2), k.ldc)
	MOVQ(U32(128), k.wide)
	MOVQ(mem(k.t, tileSums), k.sums)
	for _, v := range k.zero {
		VPXORD(v, v, v)
	}
	k.local(tileA, k.aTile)
	k.local(tileC, k.cTile)
	k.local(tileRowBias, k.rowBias)
	k.local(tileTiles, k.tiles)
}

// products computes the sums of a panel. There is a loop for one and for two halves of the rows and
// of the columns.
func (k *amxKernel) products() {
	for r := range 4 {
		tileZero(r)
	}
	MOVQ(k.aTile, k.a)
	MOVQ(mem(k.t, tileSecond), k.second)
	IMULQ(k.aStride, k.second)
	ADDQ(k.a, k.second)
	MOVQ(k.panel, k.b)
	MOVQ(mem(k.t, tileSteps), k.count)
	CMPQ(mem(k.t, tileColumns), U8(16))
	JLE(LabelRef("narrow"))
	CMPQ(mem(k.t, tileSecond), U8(0))
	JEQ(LabelRef("wideLow"))
	k.loop("wideHigh", true, true)
	Label("narrow")
	CMPQ(mem(k.t, tileSecond), U8(0))
	JEQ(LabelRef("narrowLow"))
	k.loop("narrowHigh", true, false)
	k.loop("wideLow", false, true)
	k.loop("narrowLow", false, false)
	Label("stored")
}

// loop multiplies all pairs of a panel, and stores the sums.
func (k *amxKernel) loop(name string, high, wide bool) {
	Label(name)
	TESTQ(k.count, k.count)
	JEQ(LabelRef(name + "Rest"))
	Label(name + "Step")
	k.multiply(stepA, stepB, high, wide)
	ADDQ(U8(64), k.a)
	ADDQ(U8(64), k.second)
	ADDQ(U32(16*128), k.b)
	again(name+"Step", k.count)
	Label(name + "Rest")
	CMPQ(mem(k.t, tileRest), U8(0))
	JEQ(LabelRef(name + "Store"))
	k.multiply(restA, restB, high, wide)
	Label(name + "Store")
	tileStore(sum00, k.sums, k.wide, 0)
	if wide {
		tileStore(sum01, k.sums, k.wide, 64)
	}
	if high {
		MOVQ(mem(k.t, tileSecond), k.temp)
		SHLQ(U8(7), k.temp)
		ADDQ(k.sums, k.temp)
		tileStore(sum10, k.temp, k.wide, 0)
		if wide {
			tileStore(sum11, k.temp, k.wide, 64)
		}
	}
	JMP(LabelRef("stored"))
}

// multiply adds the products of the halves of A and B. Both halves share a tile register, and the
// first half of B is loaded twice: products take longer than loads from the first-level cache.
func (k *amxKernel) multiply(a, b int, high, wide bool) {
	tileLoad(a, k.a, k.aStride, 0)
	tileLoad(b, k.b, k.wide, 0)
	tileDot(a, b, sum00)
	if wide {
		tileLoad(b, k.b, k.wide, 64)
		tileDot(a, b, sum01)
	}
	if high {
		tileLoad(a, k.second, k.aStride, 0)
		if wide {
			tileDot(a, b, sum11)
			tileLoad(b, k.b, k.wide, 0)
		}
		tileDot(a, b, sum10)
	}
}

// epilogue adds C and biases to the sums, applies ReLU and stores the result, row by row.
func (k *amxKernel) epilogue() {
	sums, out, bias, temp := k.a, k.second, k.b, z(2)
	MOVQ(k.sums, sums)
	MOVQ(k.cTile, out)
	ADDQ(k.at, out)
	MOVQ(k.rowBias, bias)
	MOVQ(mem(k.t, tileRows), k.count)
	MOVQ(mem(k.t, tileColBias), k.temp)
	TESTQ(k.temp, k.temp)
	JEQ(LabelRef("row"))
	ADDQ(k.at, k.temp)
	for v := range k.bias {
		VMOVUPS_Z(mem(k.temp, 64*v), k.k[v], k.bias[v])
	}
	Label("row")
	each := func(f func(v int)) {
		for v := range 2 {
			f(v)
		}
	}
	each(func(v int) { VMOVUPS(mem(sums, 64*v), k.row[v]) })
	k.unless("accumulated", func() { CMPQ(mem(k.t, tileAccumulate), U8(0)) }, func() {
		each(func(v int) {
			VMOVUPS_Z(mem(out, 64*v), k.k[v], temp)
			VADDPS(k.row[v], temp, k.row[v])
		})
	})
	k.unless("rowBiased", func() { TESTQ(bias, bias) }, func() {
		VBROADCASTSS(mem(bias, 0), temp)
		each(func(v int) { VADDPS(temp, k.row[v], k.row[v]) })
		ADDQ(U8(4), bias)
	})
	k.unless("columnBiased", func() { TESTQ(k.temp, k.temp) }, func() {
		each(func(v int) { VADDPS(k.bias[v], k.row[v], k.row[v]) })
	})
	k.unless("rectified", func() { CMPQ(mem(k.t, tileReLU), U8(0)) }, func() {
		each(func(v int) { VMAXPS(k.row[v], k.zero[v], k.row[v]) }) // NaN stays
	})
	each(func(v int) { VMOVUPS(k.row[v], k.k[v], mem(out, 64*v)) })
	ADDQ(k.wide, sums)
	ADDQ(k.ldc, out)
	again("row", k.count)
}

// unless writes do, skipped at run time if the compared value is 0.
func (k *amxKernel) unless(label string, compare, do func()) {
	compare()
	JEQ(LabelRef(label))
	do()
	Label(label)
}

// next moves on to the next panel.
func (k *amxKernel) next() {
	MOVQ(mem(k.t, tileBPS), k.temp)
	SHLQ(U8(2), k.temp)
	ADDQ(k.temp, k.panel)
	ADDQ(k.wide, k.at)
}

// nextTile moves on to the rows below.
func (k *amxKernel) nextTile() {
	MOVQ(mem(k.t, tileAStep), k.temp)
	SHLQ(U8(2), k.temp)
	ADDQ(k.temp, k.aTile)
	MOVQ(mem(k.t, tileRows), k.temp)
	IMULQ(k.ldc, k.temp)
	ADDQ(k.temp, k.cTile)
	k.unless("unbiased", func() { CMPQ(k.rowBias, U8(0)) }, func() {
		MOVQ(mem(k.t, tileRows), k.temp)
		SHLQ(U8(2), k.temp)
		ADDQ(k.temp, k.rowBias)
	})
}

// amxPeak is the roof: four products of tiles each turn.
func amxPeak() {
	TEXT("peakAMX", NOSPLIT, "func(turns int, config *byte)")
	Load(Param("turns"), reg.RCX)
	Load(Param("config"), reg.RAX)
	tileConfigure(reg.RAX, 0)
	Label("turn")
	for r := range 4 {
		tileDot(stepA, stepB, r)
	}
	again("turn", reg.RCX)
	tileRelease()
	RET()
}
