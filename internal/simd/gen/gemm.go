package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of the fields of simd.tile on amd64.
const (
	tileA          = 0
	tileARS        = 24
	tileACS        = 32
	tileB          = 40
	tileBRS        = 64
	tileBPS        = 72
	tileC          = 80
	tileLDC        = 104
	tileKC         = 112
	tilePanels     = 120
	tileRowBias    = 128
	tileColBias    = 152
	tileAccumulate = 176
	tileReLU       = 184
	tileMask       = 192

	tilePack          = 200
	tilePackStep      = 208
	tilePackPanelStep = 216
	tileTiles         = 224
	tileAStep         = 232
)

// gemm generates the micro-kernels of a level: tiles of 1..mr rows by two vectors, and by one
// vector.
func gemm(l level, table string) {
	ConstraintExpr("amd64")
	var names [2][]string
	for _, nv := range []int{2, 1} {
		for rows := 1; rows <= l.mr; rows++ {
			k := kernel{level: l, rows: rows, nv: nv}
			k.name = fmt.Sprintf("gemm%sx%dx%d", l.suffix, rows, nv*l.lanes)
			k.generate()
			names[2-nv] = append(names[2-nv], k.name)
		}
	}
	peak(l)
	if l.pairs {
		pairRows()
		pairBetween()
		pairColumns(2 * l.bytes())
	} else {
		copyTiles(l)
	}
	if l.masked && !l.pairs {
		transpose16(2 * l.bytes())
	}
	writeTable(table, declarations(l, names))
}

// kernel is a micro-kernel being generated: rows*nv accumulators, nv vectors of B, and two
// alternating registers for the elements of A.
type kernel struct {
	level
	name     string
	rows, nv int
	acc      [][]reg.VecPhysical
	b        []reg.VecPhysical
	bcast    []reg.VecPhysical

	// Stack slots: this tile's A, C and row bias, and the remaining tiles; bytes from the first
	// panel's column to this one's, this panel of B and of the packed copy, and the remaining
	// panels.
	a, c, rowBias, tiles          Mem
	at, bPanel, packPanel, panels Mem

	t      reg.Register
	ap, a9 reg.Register
	bp     reg.Register
	ars    map[int]reg.Register // multiples 1, 3, 5 and 7 of A's row stride
	acs    reg.Register
	count  reg.Register
	k      []reg.OpmaskPhysical

	// Registers of the packing loop: B's row stride, 16 times the stride, the copy and its row
	// stride.
	brs, far, pack, packStep reg.Register
}

func (k *kernel) generate() {
	TEXT(k.name, NOSPLIT, "func(t *byte)")
	k.registers()
	for _, local := range []*Mem{&k.a, &k.c, &k.rowBias, &k.tiles, &k.at, &k.bPanel, &k.packPanel, &k.panels} {
		*local = AllocLocal(8)
	}
	k.t = load("t")
	k.loadMasks()
	k.local(tileA, k.a)
	k.local(tileC, k.c)
	k.local(tileRowBias, k.rowBias)
	k.local(tileTiles, k.tiles)

	Label("tile")
	k.t = load("t")
	k.local(tileB, k.bPanel)
	k.local(tilePack, k.packPanel)
	k.local(tilePanels, k.panels)
	zero := GP64()
	XORQ(zero, zero)
	MOVQ(zero, k.at)

	Label("panel")
	k.start()
	k.products()
	k.epilogue()
	k.next()
	again("panel", k.panels)
	k.nextTile()
	endLoop("tile", k.tiles)
}

// local copies a field of the tile to the stack.
func (k *kernel) local(field int, to Mem) {
	r := copied(mem(k.t, field))
	MOVQ(r, to)
}

func (k *kernel) registers() {
	free := k.regs
	take := func(n int) (r []reg.VecPhysical) {
		r, free = free[:n], free[n:]
		return r
	}
	for range k.rows {
		k.acc = append(k.acc, take(k.nv))
	}
	k.b, k.bcast = take(k.nv), take(2)
}

func (k *kernel) loadMasks() {
	if !k.masked {
		return
	}
	k.k = []reg.OpmaskPhysical{reg.K1, reg.K2}[:k.nv]
	m := copied(mem(k.t, tileMask))
	for i := range k.nv {
		KMOVW(m.As32(), k.k[i])
		if i+1 < k.nv {
			SHRQ(U8(k.lanes), m)
		}
	}
}

// start loads the operands of the loop over products, clears the accumulators, and prefetches the
// lines of C if the products take long enough.
func (k *kernel) start() {
	k.t = load("t")
	for _, row := range k.acc {
		for _, acc := range row {
			k.clear(acc)
		}
	}
	k.count = GP64()
	MOVQ(mem(k.t, tileKC), k.count)
	CMPQ(k.count, U8(48))
	JLT(LabelRef("begin"))
	c, ldc := GP64(), GP64()
	MOVQ(mem(k.t, tileLDC), ldc)
	SHLQ(U8(2), ldc)
	k.cStart(c)
	for i := range k.rows {
		for v := range k.nv {
			PREFETCHT0(mem(c, (v+1)*k.bytes()-1))
		}
		if i+1 < k.rows {
			ADDQ(ldc, c)
		}
	}
	Label("begin")
	k.ap, k.bp, k.acs = GP64(), GP64(), GP64()
	MOVQ(k.a, k.ap)
	MOVQ(k.bPanel, k.bp)
	MOVQ(mem(k.t, tileACS), k.acs)
	SHLQ(U8(2), k.acs)
	k.rowStrides()
}

// rowStrides sets the registers of row strides for rowAt.
func (k *kernel) rowStrides() {
	k.ars = map[int]reg.Register{}
	one := copied(mem(k.t, tileARS))
	SHLQ(U8(2), one)
	k.ars[1] = one
	for _, m := range []int{3, 5, 7} {
		if k.rows > m {
			r := GP64()
			if m == 7 {
				MOVQ(one, r)
				SHLQ(U8(3), r)
				SUBQ(one, r)
			} else {
				LEAQ(Mem{Base: one, Index: one, Scale: uint8(m - 1)}, r)
			}
			k.ars[m] = r
		}
	}
	if k.rows > 9 {
		k.a9 = GP64()
		LEAQ(Mem{Base: k.ap, Index: one, Scale: 8}, k.a9)
		ADDQ(one, k.a9)
	}
}

// rowAt is the address of row i of the current column of A.
func (k *kernel) rowAt(i int) Mem {
	if i == 0 {
		return mem(k.ap, 0)
	}
	if i == 9 {
		return mem(k.a9, 0)
	}
	base := k.ap
	if i > 9 {
		base, i = k.a9, i-9
	}
	scale := 1
	for i%2 == 0 {
		i, scale = i/2, scale*2
	}
	return Mem{Base: base, Index: k.ars[i], Scale: uint8(scale)}
}

// products is the loop over kc. B is read from its panel or, if the tile packs it, from rows at a
// stride, and copied. Pairs are packed before.
func (k *kernel) products() {
	if k.pairs {
		k.loop("", 4, k.step)
		return
	}
	k.pack = GP64()
	MOVQ(k.packPanel, k.pack)
	TESTQ(k.pack, k.pack)
	JNZ(LabelRef("packing"))
	k.loop("", 4, k.step)
	JMP(LabelRef("done"))
	Label("packing")
	k.brs, k.far, k.packStep = GP64(), GP64(), GP64()
	MOVQ(mem(k.t, tileBRS), k.brs)
	SHLQ(U8(2), k.brs)
	MOVQ(k.brs, k.far)
	SHLQ(U8(4), k.far)
	MOVQ(mem(k.t, tilePackStep), k.packStep)
	SHLQ(U8(2), k.packStep)
	k.loop("Packing", 2, func(_, _ int) { k.packingStep() })
	Label("done")
}

// loop does a step for each of count, unroll a turn.
func (k *kernel) loop(name string, unroll int, step func(i, n int)) {
	SUBQ(U8(unroll), k.count)
	JLT(LabelRef("few" + name))
	Label("many" + name)
	for i := range unroll {
		step(i, unroll)
	}
	SUBQ(U8(unroll), k.count)
	JGE(LabelRef("many" + name))
	Label("few" + name)
	ADDQ(U8(unroll), k.count)
	JZ(LabelRef("none" + name))
	Label("one" + name)
	step(0, 1)
	again("one"+name, k.count)
	Label("none" + name)
}

// ahead is the prefetch distance in rows of a panel.
const ahead = 16

// step is product i of an iteration of n; the last one advances to the next rows.
func (k *kernel) step(i, n int) {
	row := 2 * k.bytes()
	for v, b := range k.b {
		if v*k.bytes()%64 == 0 { // a line
			PREFETCHT0(mem(k.bp, (ahead+i)*row+v*k.bytes()))
		}
		VMOVUPS(mem(k.bp, i*row+v*k.bytes()), b)
	}
	if i == n-1 {
		ADDQ(U32(n*row), k.bp)
	}
	k.multiply()
}

func (k *kernel) packingStep() {
	for v, b := range k.b {
		// Into L2, because rows can have distances that share a set of L1.
		PREFETCHT1(Mem{Base: k.bp, Index: k.far, Scale: 1, Disp: (v+1)*k.bytes() - 4})
		k.loadB(mem(k.bp, v*k.bytes()), v, b)
		VMOVUPS(b, mem(k.pack, v*k.bytes()))
	}
	ADDQ(k.brs, k.bp)
	ADDQ(k.packStep, k.pack)
	k.multiply()
}

// multiply adds the products of a column of A with the row in registers.
func (k *kernel) multiply() {
	for i, row := range k.acc {
		if k.nv == 1 && k.masked && !k.pairs { // a single use: directly from memory
			VFMADD231PS_BCST(k.rowAt(i), k.b[0], row[0])
			continue
		}
		x := k.bcast[i%2]
		VBROADCASTSS(k.rowAt(i), x)
		for v, acc := range row {
			k.multiplyAdd(x, k.b[v], acc)
		}
	}
	ADDQ(k.acs, k.ap)
	if k.a9 != nil {
		ADDQ(k.acs, k.a9)
	}
}

// multiplyAdd adds x*y, or both products of pairs, to acc.
func (l level) multiplyAdd(x, y, acc reg.VecPhysical) {
	if l.pairs {
		dot(x, y, acc)
	} else {
		VFMADD231PS(x, y, acc)
	}
}

func (k *kernel) loadB(from Mem, v int, to reg.VecPhysical) {
	if k.masked {
		VMOVUPS_Z(from, k.k[v], to)
	} else {
		VMOVUPS(from, to)
	}
}

// epilogue adds biases and C to the sums, applies ReLU and stores the result.
func (k *kernel) epilogue() {
	k.t = load("t")
	c, ldc := GP64(), GP64()
	MOVQ(mem(k.t, tileLDC), ldc)
	SHLQ(U8(2), ldc)

	CMPQ(mem(k.t, tileAccumulate), U8(0))
	JEQ(LabelRef("rowbias"))
	k.cStart(c)
	for _, row := range k.acc {
		for v, acc := range row {
			k.loadB(mem(c, v*k.bytes()), v, k.b[v])
			VADDPS(acc, k.b[v], acc)
		}
		ADDQ(ldc, c)
	}

	Label("rowbias")
	bias := copied(k.rowBias)
	TESTQ(bias, bias)
	JZ(LabelRef("colbias"))
	for i, row := range k.acc {
		VBROADCASTSS(mem(bias, 4*i), k.b[0])
		for _, acc := range row {
			VADDPS(k.b[0], acc, acc)
		}
	}

	Label("colbias")
	MOVQ(mem(k.t, tileColBias), bias)
	TESTQ(bias, bias)
	JZ(LabelRef("relu"))
	ADDQ(k.at, bias)
	for v, b := range k.b {
		k.loadB(mem(bias, v*k.bytes()), v, b)
	}
	for _, row := range k.acc {
		for v, acc := range row {
			VADDPS(k.b[v], acc, acc)
		}
	}

	Label("relu")
	CMPQ(mem(k.t, tileReLU), U8(0))
	JEQ(LabelRef("store"))
	zero := k.b[0]
	k.clear(zero)
	for _, row := range k.acc {
		for _, acc := range row {
			VMAXPS(acc, zero, acc) // NaN stays
		}
	}

	Label("store")
	k.cStart(c)
	for _, row := range k.acc {
		for v, acc := range row {
			if k.masked {
				VMOVUPS(acc, k.k[v], mem(c, v*k.bytes()))
			} else {
				VMOVUPS(acc, mem(c, v*k.bytes()))
			}
		}
		ADDQ(ldc, c)
	}
}

func (k *kernel) cStart(c reg.Register) {
	MOVQ(k.c, c)
	ADDQ(k.at, c)
}

// next moves on to the next panel.
func (k *kernel) next() {
	k.t = load("t")
	step := copied(mem(k.t, tileBPS))
	SHLQ(U8(2), step)
	ADDQ(step, k.bPanel)
	MOVQ(mem(k.t, tilePackPanelStep), step)
	SHLQ(U8(2), step)
	ADDQ(step, k.packPanel)
	ADDQ(U32(k.nv*k.bytes()), k.at)
}

// nextTile moves on to the rows below.
func (k *kernel) nextTile() {
	k.t = load("t")
	step := copied(mem(k.t, tileAStep))
	SHLQ(U8(2), step)
	ADDQ(step, k.a)
	MOVQ(mem(k.t, tileLDC), step)
	IMUL3Q(U8(4*k.rows), step, step)
	ADDQ(step, k.c)
	CMPQ(k.rowBias, U8(0))
	JEQ(LabelRef("unbiased"))
	ADDQ(U8(4*k.rows), k.rowBias)
	Label("unbiased")
}

// peak is the roof of the level: fused multiply-adds on registers alone, two
// each turn for every accumulator of the largest tile.
func peak(l level) {
	TEXT("fma"+l.suffix, NOSPLIT, "func(turns int)")
	turns := load("turns")
	for _, v := range l.regs {
		l.clear(v)
	}
	acc := l.regs[:2*l.mr]
	x, y := l.regs[2*l.mr], l.regs[2*l.mr+1]
	Label("turn")
	for range 2 {
		for _, v := range acc {
			l.multiplyAdd(x, y, v)
		}
	}
	endLoop("turn", turns)
}
