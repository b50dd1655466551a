package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lanesAt is how an update rule reaches one vector of each of its arrays: whole,
// or the first lanes of it, as a row's end needs.
type lanesAt struct {
	load  func(array int) reg.VecVirtual
	store func(v reg.VecVirtual, array int)
}

// rule is the arithmetic of an optimizer on one vector of each array. Its
// factors are parameters of the kernel by name, broadcast. Arrays are numbered
// parameters 0, gradients 1, state from 2.
type rule struct {
	name    string
	state   []string // state arrays
	factors []string
	fades   bool // state that can become subnormal: see flush
	body    func(l level, f map[string]reg.VecVirtual, at lanesAt)
}

var rules = []rule{
	{"sgdPlain", nil, []string{"lr", "decay", "scale"}, false, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		p, g := at.load(0), decayed(l, f, at)
		l.descend(p, g, f["lr"], at)
	}},
	{"momentum", []string{"v"}, []string{"lr", "momentum", "decay", "scale"}, true, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		g, v := decayed(l, f, at), at.load(2)
		VMULPS(f["momentum"], v, v)
		VADDPS(g, v, v)
		l.flush(v, f)
		at.store(v, 2)
		l.descend(at.load(0), v, f["lr"], at)
	}},
	{"adagrad", []string{"s"}, []string{"lr", "decay", "scale", "eps"}, false, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		g := decayed(l, f, at)
		adagradRule(l, f, g, at)
	}},
	{"adamW", []string{"m", "v"}, adamFactors, true, adamRule},
}

var rowRules = []rule{
	{"sgdRows", nil, []string{"lr", "scale"}, false, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		g := at.load(1)
		VMULPS(f["scale"], g, g)
		l.descend(at.load(0), g, f["lr"], at)
	}},
	{"adagradRows", []string{"s"}, []string{"lr", "scale", "eps"}, false, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		g := at.load(1)
		VMULPS(f["scale"], g, g)
		adagradRule(l, f, g, at)
	}},
	{"adamRows", []string{"m", "v"}, adamFactors, true, adamRule},
}

// decayed is the gradient, scaled, and decay times the parameter added.
func decayed(l level, f map[string]reg.VecVirtual, at lanesAt) reg.VecVirtual {
	g, d := at.load(1), at.load(0)
	VMULPS(f["scale"], g, g)
	VMULPS(f["decay"], d, d)
	VADDPS(d, g, g)
	return g
}

// descend stores p - lr*g.
func (l level) descend(p, g, lr reg.VecVirtual, at lanesAt) {
	VMULPS(lr, g, g)
	VSUBPS(g, p, p)
	at.store(p, 0)
}

func adagradRule(l level, f map[string]reg.VecVirtual, g reg.VecVirtual, at lanesAt) {
	s, t := at.load(2), l.vector()
	VMULPS(g, g, t)
	VADDPS(t, s, s)
	at.store(s, 2)
	VSQRTPS(s, s)
	VADDPS(f["eps"], s, s)
	VMULPS(f["lr"], g, g)
	VDIVPS(s, g, g)
	p := at.load(0)
	VSUBPS(g, p, p)
	at.store(p, 0)
}

var adamFactors = []string{"scale", "keep", "beta1", "comp1", "beta2", "comp2", "rate", "unbias", "eps"}

func adamRule(l level, f map[string]reg.VecVirtual, at lanesAt) {
	g, m, v, t := at.load(1), at.load(2), at.load(3), l.vector()
	VMULPS(f["scale"], g, g)
	VMULPS(f["beta1"], m, m)
	VMULPS(f["comp1"], g, t)
	VADDPS(t, m, m)
	l.flush(m, f)
	at.store(m, 2)
	VMULPS(f["beta2"], v, v)
	VMULPS(f["comp2"], g, t)
	VMULPS(g, t, t)
	VADDPS(t, v, v)
	l.flush(v, f)
	at.store(v, 3)
	VSQRTPS(v, v)
	VMULPS(f["unbias"], v, v)
	VADDPS(f["eps"], v, v)
	VMULPS(f["rate"], m, m)
	VDIVPS(v, m, m)
	p := at.load(0)
	VMULPS(f["keep"], p, p)
	VSUBPS(m, p, p)
	at.store(p, 0)
}

// flush makes 0 of subnormal numbers: state that fades away would stay one
// forever, because rounding keeps k times 0.9 the same k, and arithmetic with
// them is ten times as slow.
func (l level) flush(x reg.VecVirtual, f map[string]reg.VecVirtual) {
	if l.masked {
		k := K()
		VPTESTMD(f["exponent"], x, k)
		VMOVAPS_Z(x, k, x)
		return
	}
	t := l.vector()
	VPSLLD(U8(1), x, t)
	VPSRLD(U8(1), t, t)
	VPCMPGTD(f["exponent"], t, t)
	VPAND(t, x, x)
}

// exponent is the constant that flush tests with: the exponent's bits, or the
// largest subnormal number to compare magnitudes with.
func (l level) exponent() reg.VecVirtual {
	bits, v := GP32(), l.vector()
	if l.masked {
		MOVL(U32(0x7f800000), bits)
	} else {
		MOVL(U32(0x007fffff), bits)
	}
	VMOVD(bits, v.AsX())
	VPBROADCASTD(v.AsX(), v)
	return v
}

// optimizers generates the update kernels of a level.
func optimizers(l level) {
	ConstraintExpr("amd64")
	for _, r := range rules {
		r.dense(l)
	}
	for _, r := range rowRules {
		r.rows(l)
	}
}

func (r rule) parameters(arrays, counts string) string {
	s := "func(p"
	for _, name := range r.state {
		s += ", " + name
	}
	s += arrays + counts
	for i, name := range r.factors {
		if i > 0 {
			s += ", "
		}
		s += name
	}
	return s + " float32)"
}

func (r rule) broadcast(l level) map[string]reg.VecVirtual {
	f := map[string]reg.VecVirtual{}
	for _, name := range r.factors {
		f[name] = l.scalar(name)
	}
	if r.fades {
		f["exponent"] = l.exponent()
	}
	return f
}

// dense is the rule over n values of each array, a multiple of the vector.
func (r rule) dense(l level) {
	f := l.begin(r.name, r.parameters(", grad *float32", ", n int, "), append([]string{"p", "grad"}, r.state...)...)
	factors := r.broadcast(l)
	f.each(func(at func(int) Mem) {
		r.body(l, factors, lanesAt{
			load: func(array int) reg.VecVirtual {
				v := l.vector()
				VMOVUPS(at(array), v)
				return v
			},
			store: func(v reg.VecVirtual, array int) { VMOVUPS(v, at(array)) },
		})
	})
}

// rowsAhead is how many rows ahead of its use a row is fetched: enough to
// cover a miss to memory with the work on rows of ten floats.
const rowsAhead = 8

// rows is the rule over n rows (at least 1) of dim values: row ids[i] of the
// parameters and of the state, row i of the gradients. The first dim mod lanes
// words of mask have their sign set, the others are 0.
func (r rule) rows(l level) {
	TEXT(r.name+l.suffix, NOSPLIT, r.parameters(" *float32, ids *int32, grad *float32", ", n, dim int, mask *int32, "))
	Pragma("noescape")
	arrays := []reg.Register{load("p"), load("grad")}
	for _, name := range r.state {
		arrays = append(arrays, load(name))
	}
	factors := r.broadcast(l)
	ids, n, dim := load("ids"), load("n"), load("dim")
	last, ahead, off, left := GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: ids, Index: n, Scale: 4, Disp: -4}, last)
	at := func(array int) Mem {
		if array == 1 {
			return mem(arrays[1], 0)
		}
		return Mem{Base: arrays[array], Index: off, Scale: 1}
	}
	tail := l.tail()

	Label("row")
	LEAQ(mem(ids, 4*rowsAhead), ahead)
	CMPQ(ahead, last)
	CMOVQGT(last, ahead)
	MOVLQSX(mem(ahead, 0), off)
	IMULQ(dim, off)
	LEAQ(Mem{Base: off, Index: dim, Scale: 1, Disp: -1}, left) // the row's last value
	for i, a := range arrays {
		if i != 1 {
			PREFETCHT0(Mem{Base: a, Index: off, Scale: 4})
			PREFETCHT0(Mem{Base: a, Index: left, Scale: 4})
		}
	}
	MOVLQSX(mem(ids, 0), off)
	IMULQ(dim, off)
	SHLQ(U8(2), off)
	MOVQ(dim, left)
	CMPQ(left, U32(l.lanes))
	JLT(LabelRef("tail"))
	Label("whole")
	r.body(l, factors, lanesAt{
		load: func(array int) reg.VecVirtual {
			v := l.vector()
			VMOVUPS(at(array), v)
			return v
		},
		store: func(v reg.VecVirtual, array int) { VMOVUPS(v, at(array)) },
	})
	ADDQ(U32(l.bytes()), off)
	ADDQ(U32(l.bytes()), arrays[1])
	SUBQ(U32(l.lanes), left)
	CMPQ(left, U32(l.lanes))
	JGE(LabelRef("whole"))
	Label("tail")
	TESTQ(left, left)
	JZ(LabelRef("next"))
	r.body(l, factors, lanesAt{
		load:  func(array int) reg.VecVirtual { return tail.load(at(array)) },
		store: func(v reg.VecVirtual, array int) { tail.store(v, at(array)) },
	})
	LEAQ(Mem{Base: arrays[1], Index: left, Scale: 4}, arrays[1])
	Label("next")
	ADDQ(U8(4), ids)
	DECQ(n)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// part loads and stores the lanes of a vector that a mask selects.
type part struct {
	load  func(m Mem) reg.VecVirtual
	store func(v reg.VecVirtual, m Mem)
}

func (l level) tail() part {
	mask := l.vector()
	from := load("mask")
	VMOVUPS(mem(from, 0), mask)
	if l.masked {
		k := K()
		VPMOVD2M(mask, k)
		return part{
			load: func(m Mem) reg.VecVirtual {
				v := l.vector()
				VMOVUPS_Z(m, k, v)
				return v
			},
			store: func(v reg.VecVirtual, m Mem) { VMOVUPS(v, k, m) },
		}
	}
	return part{
		load: func(m Mem) reg.VecVirtual {
			v := l.vector()
			VMASKMOVPS(m, mask, v)
			return v
		},
		store: func(v reg.VecVirtual, m Mem) { VMASKMOVPS(v, mask, m) },
	}
}
