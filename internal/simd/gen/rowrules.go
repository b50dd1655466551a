package main

import (
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowRule is a rule over rows named by ids. In addition to arrays with a value for each of a row's,
// it may have arrays with few values for each row (figures): enter computes factors from these
// before the row, and leave updates them after it.
type rowRule struct {
	rule
	figures []figure
	scaled  bool     // a scale for each row, in a separate array
	only    bool     // no gradient
	loads   []string // factors loaded by enter
	enter   func(l level, f map[string]reg.VecVirtual, at rowAt)
	leave   func(l level, f map[string]reg.VecVirtual, at rowAt)
}

type figure struct {
	name  string
	width uint8 // values for each row: a scale of addresses with 4
}

// rowAt has the addresses of a row's figures and of its scale.
type rowAt struct {
	figures []Mem
	scale   Mem
}

var rowRules = []rowRule{
	{rule: rule{"sgdRows", nil, []string{"lr", "scale"}, nil, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		g := at.load(1)
		VMULPS(f["scale"], g, g)
		l.descend(at.load(0), g, f["lr"], at)
	}}},
	{rule: rule{"momentumRows", []string{"v"}, []string{"lr", "momentum", "scale"}, fading, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		g, v := at.load(1), at.load(2)
		VMULPS(f["scale"], g, g)
		momentumRule(l, f, g, v, at)
	}}},
	{rule: rule{"adagradRows", []string{"s"}, []string{"lr", "scale", "eps"}, nil, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		g := at.load(1)
		VMULPS(f["scale"], g, g)
		adagradRule(l, f, g, at)
	}}},
	{rule: rule{"adamRows", []string{"m", "v"}, adamFactors, fading, adamRule}},
	{rule: rule{"adamOwnRows", []string{"m", "v"}, []string{"scale", "keep", "beta1", "comp1", "beta2", "comp2", "lr", "eps"}, fading, adamRule},
		figures: []figure{{"w", 2}}, loads: []string{"lr"}, enter: enterAdam},
	{rule: rule{"rowWiseAdagrad", nil, []string{"lr", "initial", "width", "scale"}, nil, rowWiseRule},
		figures: []figure{{"s", 1}}, scaled: true, enter: enterRowWise, leave: leaveRowWise},
	{rule: rule{"ftrlRows", []string{"z", "s"}, ftrlFactors, signed, ftrlRule}},
	{rule: rule{"clampRows", nil, []string{"lo", "hi"}, nil, func(l level, f map[string]reg.VecVirtual, at lanesAt) {
		p := at.load(0)
		VMINPS(p, f["hi"], p) // the first operand for NaN
		VMAXPS(p, f["lo"], p)
		at.store(p, 0)
	}}, only: true},
}

// enterAdam updates the weights of the row's moments and computes the factors of the bias
// correction.
func enterAdam(l level, f map[string]reg.VecVirtual, at rowAt) {
	for i, c := range []struct{ beta, comp string }{{"beta1", "comp1"}, {"beta2", "comp2"}} {
		m := at.figures[0].Offset(4 * i)
		w, factor := XMM(), l.vector()
		VMOVSS(m, w)
		VMULSS(f[c.beta].AsX(), w, w)
		VADDSS(f[c.comp].AsX(), w, w)
		VMOVSS(w, m)
		over := XMM()
		if i == 0 {
			Load(Param("lr"), over)
			f["rate"] = factor
		} else {
			one := GP32()
			MOVL(U32(0x3f800000), one)
			VMOVD(one, over)
			VSQRTSS(w, w, w)
			f["unbias"] = factor
		}
		VDIVSS(w, over, w)
		VBROADCASTSS(w, factor)
	}
}

// enterRowWise computes the row's rate and the factor of its gradient. acc holds the sum of squares
// in eight lanes.
func enterRowWise(l level, f map[string]reg.VecVirtual, at rowAt) {
	s, rate, q := XMM(), l.vector(), l.vector()
	VMOVSS(at.figures[0], s)
	VADDSS(f["initial"].AsX(), s, s)
	VDIVSS(s, f["initial"].AsX(), s)
	VSQRTSS(s, s, s)
	VMULSS(f["lr"].AsX(), s, s)
	VBROADCASTSS(s, rate)
	t := XMM()
	VDIVSS(at.scale, f["scale"].AsX(), t)
	VBROADCASTSS(t, q)
	f["rate"], f["q"] = rate, q
	acc := l.vector()
	VXORPS(acc.AsX(), acc.AsX(), acc.AsX()) // clears the whole register
	f["acc"] = acc
}

func rowWiseRule(l level, f map[string]reg.VecVirtual, at lanesAt) {
	g, p := at.load(1), at.load(0)
	VMULPS(f["q"], g, g)
	t, acc := l.vector(), f["acc"].AsY()
	VMULPS(f["rate"], g, t)
	VSUBPS(t, p, p)
	at.store(p, 0)
	VMULPS(g, g, g)
	at.keep(g)
	VADDPS(g.AsY(), acc, acc)
	if l.masked {
		high := YMM()
		VEXTRACTF32X8(U8(1), g, high)
		VADDPS(high, acc, acc)
	}
}

// leaveRowWise adds the mean of the squares to the row's sum.
func leaveRowWise(l level, f map[string]reg.VecVirtual, at rowAt) {
	acc, t := f["acc"].AsX(), XMM()
	if l.masked {
		VEXTRACTF32X4(U8(1), f["acc"].AsY(), t)
	} else {
		VEXTRACTF128(U8(1), f["acc"].AsY(), t)
	}
	VADDPS(t, acc, acc)
	VPERMILPS(U8(0b1110), acc, t)
	VADDPS(t, acc, acc)
	VPERMILPS(U8(0b01), acc, t)
	VADDSS(t, acc, acc)
	VDIVSS(f["width"].AsX(), acc, acc)
	VADDSS(at.figures[0], acc, acc)
	VMOVSS(acc, at.figures[0])
}

// rowsAhead is the prefetch distance in rows: enough to cover a miss to memory with the work on
// rows of ten floats.
const rowsAhead = 8

func (r rowRule) broadcast(l level) map[string]reg.VecVirtual {
	vectors := r.rule
	vectors.factors = slices.DeleteFunc(slices.Clone(r.factors), func(name string) bool { return slices.Contains(r.loads, name) })
	return vectors.broadcast(l)
}

func (r rowRule) signature() string {
	arrays := ""
	for _, f := range r.figures {
		arrays += ", " + f.name
	}
	arrays += " *float32, ids *int32"
	switch {
	case r.scaled: // scaleStep: distance of scales, 0 or 4
		arrays += ", grad, scales *float32, scaleStep int"
	case !r.only:
		arrays += ", grad *float32"
	}
	return r.parameters(arrays, ", n, dim int, mask *int32, ")
}

// rows is the rule over n rows (at least 1) of dim values: row ids[i] of the parameters and of the
// state, row i of the gradients. The first dim mod lanes words of mask have their sign set; all
// other words are 0.
func (r rowRule) rows(l level) {
	l.function(r.name, r.signature())
	arrays := []reg.Register{load("p"), nil}
	if !r.only {
		arrays[1] = load("grad")
	}
	for _, name := range r.state {
		arrays = append(arrays, load(name))
	}
	var figures []reg.Register
	for _, f := range r.figures {
		figures = append(figures, load(f.name))
	}
	var scales, step reg.GPVirtual
	if r.scaled {
		scales, step = load("scales"), load("scaleStep")
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
	tail := l.loadTail()

	Label("row")
	LEAQ(mem(ids, 4*rowsAhead), ahead)
	CMPQ(ahead, last)
	CMOVQGT(last, ahead)
	MOVLQSX(mem(ahead, 0), off)
	for i, f := range r.figures {
		PREFETCHT0(Mem{Base: figures[i], Index: off, Scale: 4 * f.width})
	}
	IMULQ(dim, off)
	LEAQ(Mem{Base: off, Index: dim, Scale: 1, Disp: -1}, left) // the row's last value
	for i, a := range arrays {
		if i != 1 {
			PREFETCHT0(Mem{Base: a, Index: off, Scale: 4})
			PREFETCHT0(Mem{Base: a, Index: left, Scale: 4})
		}
	}
	MOVLQSX(mem(ids, 0), off)
	var row rowAt
	if r.enter != nil {
		id := copied(off)
		for i, f := range r.figures {
			row.figures = append(row.figures, Mem{Base: figures[i], Index: id, Scale: 4 * f.width})
		}
		if r.scaled {
			row.scale = mem(scales, 0)
		}
		r.enter(l, factors, row)
	}
	IMULQ(dim, off)
	SHLQ(U8(2), off)
	MOVQ(dim, left)
	CMPQ(left, U32(l.lanes))
	JLT(LabelRef("tail"))
	Label("whole")
	r.body(l, factors, l.whole(at))
	ADDQ(U32(l.bytes()), off)
	if !r.only {
		ADDQ(U32(l.bytes()), arrays[1])
	}
	SUBQ(U32(l.lanes), left)
	CMPQ(left, U32(l.lanes))
	JGE(LabelRef("whole"))
	Label("tail")
	TESTQ(left, left)
	JZ(LabelRef("next"))
	r.body(l, factors, lanesAt{
		load:  func(array int) reg.VecVirtual { return tail.read(at(array)) },
		store: func(v reg.VecVirtual, array int) { tail.write(v, at(array)) },
		keep:  tail.keep,
	})
	if !r.only {
		LEAQ(Mem{Base: arrays[1], Index: left, Scale: 4}, arrays[1])
	}
	Label("next")
	if r.leave != nil {
		r.leave(l, factors, row)
	}
	if r.scaled {
		ADDQ(step, scales)
	}
	ADDQ(U8(4), ids)
	endLoop("row", n)
}
