package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// updateTwin is an update rule: on a level, by rows on a level, and value by
// value in plain Go. x holds parameters, gradients and two arrays of state.
type updateTwin struct {
	name  string
	level func(k *Kernels, x [4][]float32)
	rows  func(k *Kernels, x [4][]float32, ids []int32, g []float32, dim int)
	naive func(p, g, s, t *float32, rows bool)
}

var testFactors = AdamFactors{Scale: 0.25, Keep: 0.999, Beta1: 0.9, Comp1: 0.1, Beta2: 0.99, Comp2: 0.01, Rate: 0.02, Unbias: 3.5, Eps: 1e-8}

var updateTwins = []updateTwin{
	{
		"SGDPlain",
		func(k *Kernels, x [4][]float32) { k.SGDPlain(x[0], x[1], 0.1, 0.01, 0.25) },
		func(k *Kernels, x [4][]float32, ids []int32, g []float32, dim int) {
			k.SGDRows(x[0], ids, g, dim, 0.1, 0.25)
		},
		func(p, g, _, _ *float32, rows bool) {
			*p -= float32(0.1 * naiveGradient(*p, *g, rows))
		},
	},
	{
		"Momentum",
		func(k *Kernels, x [4][]float32) { k.Momentum(x[0], x[2], x[1], 0.1, 0.9, 0.01, 0.25) },
		func(k *Kernels, x [4][]float32, ids []int32, g []float32, dim int) {
			k.MomentumRows(x[0], x[2], ids, g, dim, 0.1, 0.9, 0.25)
		},
		func(p, g, v, _ *float32, rows bool) {
			*v = naiveFlush(float32(0.9**v) + naiveGradient(*p, *g, rows))
			*p -= float32(0.1 * *v)
		},
	},
	{
		"Adagrad",
		func(k *Kernels, x [4][]float32) { k.Adagrad(x[0], x[2], x[1], 0.1, 0.01, 0.25, 1e-10) },
		func(k *Kernels, x [4][]float32, ids []int32, g []float32, dim int) {
			k.AdagradRows(x[0], x[2], ids, g, dim, 0.1, 0.25, 1e-10)
		},
		func(p, g, s, _ *float32, rows bool) {
			d := naiveGradient(*p, *g, rows)
			*s += float32(d * d)
			*p -= float32(0.1*d) / (naiveRoot(*s) + 1e-10)
		},
	},
	{
		"AdamW",
		func(k *Kernels, x [4][]float32) { k.AdamW(x[0], x[2], x[3], x[1], testFactors) },
		func(k *Kernels, x [4][]float32, ids []int32, g []float32, dim int) {
			k.AdamRows(x[0], x[2], x[3], ids, g, dim, testFactors)
		},
		func(p, g, m, v *float32, _ bool) {
			d := float32(*g * 0.25)
			*m = naiveFlush(float32(0.9**m) + float32(0.1*d))
			*v = naiveFlush(float32(0.99**v) + float32(float32(0.01*d)*d))
			root := float32(3.5*naiveRoot(*v)) + 1e-8
			*p = float32(0.999**p) - float32(0.02**m)/root
		},
	},
	{
		"FTRL",
		func(k *Kernels, x [4][]float32) { k.FTRL(x[0], x[2], x[3], x[1], testFTRL) },
		func(k *Kernels, x [4][]float32, ids []int32, g []float32, dim int) {
			k.FTRLRows(x[0], x[2], x[3], ids, g, dim, testFTRL)
		},
		func(p, g, z, s *float32, _ bool) { naiveFTRL(p, g, z, s) },
	},
}

var testFTRL = FTRLFactors{Scale: 0.25, LR: 0.1, Beta: 1.5, L1: 0.02, L2: 0.03}

func naiveFTRL(p, g, z, s *float32) {
	before := naiveRoot(*s)
	if *z == 0 && (*p > 0 || *p != *p) {
		*z = -(float32(*p*((before+1.5)+0.03)) + 0.02)
	} else if *z == 0 && *p < 0 {
		*z = -(float32(*p*((before+1.5)+0.03)) - 0.02)
	}
	d := float32(*g * 0.25)
	*s += float32(d * d)
	after := naiveRoot(*s)
	*z += float32(0.1 * d)
	*z -= float32((after - before) * *p)
	divisor := (after + 1.5) + 0.03
	switch {
	case *z > 0.02:
		*p = -((*z - 0.02) / divisor)
	case *z < -0.02:
		*p = -((*z + 0.02) / divisor)
	case *z != *z:
		*p = *z
	default:
		*p = 0
	}
}

func naiveGradient(p, g float32, rows bool) float32 {
	if rows {
		return float32(g * 0.25)
	}
	return float32(g*0.25) + float32(0.01*p)
}

func naiveFlush(x float32) float32 {
	if -0x1p-126 < x && x < 0x1p-126 {
		return 0
	}
	return x
}

// naiveRoot is the float32 nearest to the square root, found by bisection in
// float64, where squares of candidates' midpoints are exact enough to compare.
func naiveRoot(x float32) float32 {
	if !(x > 0) || x-x != 0 {
		return sqrtSpecial(x)
	}
	lo, hi := uint32(0), uint32(0x7f800000) // bits of floats from 0 to infinity
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if m := float64(fromBits(mid)); m*m <= float64(x) { // exact: 48 bits
			lo = mid
		} else {
			hi = mid
		}
	}
	a, b := float64(fromBits(lo)), float64(fromBits(hi))
	if half := (a + b) / 2; half*half < float64(x) { // exact: 50 bits
		return float32(b)
	}
	return float32(a)
}

// operands are four guarded arrays of n values; state is not negative, as
// sums of squares are. odd: specials, too.
func operands(r *rand.Rand, n int, odd bool) (x [4][]float32, guards [4]func(*testing.T, string)) {
	for i := range x {
		x[i], guards[i] = guarded(r, n)
		for j, v := range x[i] {
			if i >= 2 {
				x[i][j] = float32(v * v)
			}
			if odd && (j+i)%3 == 0 {
				x[i][j] = specials[r.IntN(len(specials))]
			}
		}
	}
	return x, guards
}

func cloned(x [4][]float32) (y [4][]float32) {
	for i := range x {
		y[i] = append([]float32(nil), x[i]...)
	}
	return y
}

func TestUpdates(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for _, w := range updateTwins {
			t.Run(w.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(31, 32))
				for _, n := range lengths() {
					got, guards := operands(r, n, n%2 == 1)
					want := cloned(got)
					w.level(k, got)
					for i := range n {
						w.naive(&want[0][i], &want[1][i], &want[2][i], &want[3][i], false)
					}
					for i := range got {
						sameValues(t, fmt.Sprintf("n=%d operand %d", n, i), got[i], want[i])
						guards[i](t, "operand")
					}
				}
			})
		}
	})
}

// Rows of each length, few and more than one call's, the first and the last
// among them: the others stay.
func TestRowUpdates(t *testing.T) {
	dims := []int{1, 2, 7, 8, 9, 10, 15, 16, 17, 23, 24, 31, 32, 33, 40, 64, 100}
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for _, w := range updateTwins {
			t.Run(w.name, func(t *testing.T) {
				if w.rows == nil {
					return // not of rows
				}
				r := rand.New(rand.NewPCG(33, 34))
				for _, dim := range dims {
					for _, rows := range []int{0, 1, 2, 40, 3 * callRows} {
						w.checkRows(t, k, r, rows, dim)
					}
				}
				w.checkRows(t, k, r, 3, callFloats+5)
			})
		}
	})
}

func (w updateTwin) checkRows(t *testing.T, k *Kernels, r *rand.Rand, rows, dim int) {
	var ids []int32
	for id := range rows {
		if r.IntN(3) > 0 || id == 0 || id == rows-1 {
			ids = append(ids, int32(id))
		}
	}
	got, guards := operands(r, rows*dim, rows%2 == 1)
	g, guardG := guarded(r, len(ids)*dim)
	want, wantG := cloned(got), append([]float32(nil), g...)
	w.rows(k, got, ids, g, dim)
	for i, id := range ids {
		for j := range dim {
			at := int(id)*dim + j
			w.naive(&want[0][at], &wantG[i*dim+j], &want[2][at], &want[3][at], true)
		}
	}
	what := fmt.Sprintf("rows=%d dim=%d", rows, dim)
	for i := range got {
		sameValues(t, fmt.Sprintf("%s operand %d", what, i), got[i], want[i])
		guards[i](t, what)
	}
	sameValues(t, what+" gradients", g, wantG)
	guardG(t, what)
}

func TestUpdatesRefuse(t *testing.T) {
	x, y := make([]float32, 6), make([]float32, 4)
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for i, f := range []func(){
			func() { k.SGDPlain(x, y, 0, 0, 0) },
			func() { k.Momentum(x, y, x, 0, 0, 0, 0) },
			func() { k.Adagrad(x, y, x, 0, 0, 0, 0) },
			func() { k.AdamW(x, x, y, x, AdamFactors{}) },
			func() { k.SGDRows(x, []int32{3}, x[:2], 2, 0, 0) },
			func() { k.SGDRows(x, []int32{-1}, x[:2], 2, 0, 0) },
			func() { k.SGDRows(x, []int32{1}, x[:3], 2, 0, 0) },
			func() { k.SGDRows(x, []int32{1}, x[:4], 4, 0, 0) },
			func() { k.SGDRows(x, nil, nil, 0, 0, 0) },
			func() { k.AdagradRows(x, y, []int32{0}, x[:2], 2, 0, 0, 0) },
			func() { k.AdamRows(x, x, y, []int32{0}, x[:2], 2, AdamFactors{}) },
			func() { k.MomentumRows(x, y, []int32{0}, x[:2], 2, 0, 0, 0) },
			func() { k.FTRL(x, x, y, x, FTRLFactors{}) },
			func() { k.FTRLRows(x, y, x, []int32{0}, x[:2], 2, FTRLFactors{}) },
			func() { k.AdamOwnRows(x, x, y, x, []int32{0}, x[:2], 2, 0, AdamFactors{}) },
			func() { k.AdamOwnRows(x, x, x, x[:5], []int32{0}, x[:2], 2, 0, AdamFactors{}) },
			func() { k.AdamOwnRows(x, x, x, x, []int32{3}, x[:2], 2, 0, AdamFactors{}) },
			func() { k.RowWiseAdagrad(x, x[:2], []int32{0}, x[:2], nil, 2, 0, 0, 0) },
			func() { k.RowWiseAdagrad(x, x, []int32{0}, x[:2], x[:2], 2, 0, 0, 0) },
			func() { k.RowWiseAdagrad(x, x, []int32{0}, x[:2], []float32{}, 2, 0, 0, 0) },
			func() { k.RowWiseAdagrad(x, x, []int32{-1}, x[:2], nil, 2, 0, 0, 0) },
			func() { k.ClampRows(x, []int32{3}, 2, 0, 0) },
			func() { k.ClampRows(x, []int32{0}, 0, 0, 0) },
			func() { k.ClampRows(x, []int32{0}, 4, 0, 0) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("case %d: no panic", i)
					}
				}()
				f()
			}()
		}
	})
}

func TestUpdatesAllocateNothing(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(35, 36))
		x, _ := operands(r, 100, false)
		ids := []int32{0, 3, 9}
		for _, w := range updateTwins {
			n := testing.AllocsPerRun(10, func() {
				w.level(k, x)
				if w.rows != nil {
					w.rows(k, x, ids, x[1][:30], 10)
				}
			})
			if n != 0 {
				t.Errorf("%s makes %v allocations", w.name, n)
			}
		}
	})
}

// As TestCallsAreShort, for updates.
func TestUpdateCallsAreShort(t *testing.T) {
	for _, level := range Levels() {
		if level.vec.width == 0 {
			continue
		}
		most := calls{}
		k := countedUpdates(level, most)
		r := rand.New(rand.NewPCG(37, 38))
		x, _ := operands(r, 3*callFloats, false)
		for _, w := range updateTwins {
			w.level(k, x)
			if w.rows == nil {
				continue
			}
			for _, dim := range []int{1, 96, 3 * callFloats} {
				var ids []int32
				for id := range len(x[0]) / dim {
					ids = append(ids, int32(id))
				}
				w.rows(k, x, ids, x[1], dim)
			}
		}
		limits := calls{"sgd": callFloats, "momentum": callFloats, "ftrl": callFloats, "adagrad": callFloats, "adamW": callFloats, "rows": callRows}
		for kernel, limit := range limits {
			if most[kernel] != limit {
				t.Errorf("%s: one call of %s was given %d, want at most and here %d", level.Name(), kernel, most[kernel], limit)
			}
		}
		if n := most["values of rows"]; n != 3*callFloats { // one row cannot be cut
			t.Errorf("%s: one call was given rows of %d values", level.Name(), n)
		}
	}
}

func countedUpdates(k *Kernels, c calls) *Kernels {
	out := *k
	o := &out.opt
	rows := func(n, dim int) {
		c.note("rows", n)
		if n > 1 && n*dim > callFloats {
			c.note("rows", n*dim)
		}
		c.note("values of rows", n*dim)
	}
	sgd, momentum, adagrad, adamW := o.sgd, o.momentum, o.adagrad, o.adamW
	o.momentum = func(p, v, g *float32, n int, lr, m, decay, scale float32) {
		c.note("momentum", n)
		momentum(p, v, g, n, lr, m, decay, scale)
	}
	o.sgd = func(p, g *float32, n int, lr, decay, scale float32) {
		c.note("sgd", n)
		sgd(p, g, n, lr, decay, scale)
	}
	o.adagrad = func(p, s, g *float32, n int, lr, decay, scale, eps float32) {
		c.note("adagrad", n)
		adagrad(p, s, g, n, lr, decay, scale, eps)
	}
	o.adamW = func(p, m, v, g *float32, n int, f0, f1, f2, f3, f4, f5, f6, f7, f8 float32) {
		c.note("adamW", n)
		adamW(p, m, v, g, n, f0, f1, f2, f3, f4, f5, f6, f7, f8)
	}
	sgdRows, adagradRows, adamRows := o.sgdRows, o.adagradRows, o.adamRows
	o.sgdRows = func(p *float32, ids *int32, g *float32, n, dim int, mask *int32, lr, scale float32) {
		rows(n, dim)
		sgdRows(p, ids, g, n, dim, mask, lr, scale)
	}
	o.adagradRows = func(p, s *float32, ids *int32, g *float32, n, dim int, mask *int32, lr, scale, eps float32) {
		rows(n, dim)
		adagradRows(p, s, ids, g, n, dim, mask, lr, scale, eps)
	}
	o.adamRows = func(p, m, v *float32, ids *int32, g *float32, n, dim int, mask *int32, f0, f1, f2, f3, f4, f5, f6, f7, f8 float32) {
		rows(n, dim)
		adamRows(p, m, v, ids, g, n, dim, mask, f0, f1, f2, f3, f4, f5, f6, f7, f8)
	}
	ftrl, momentumRows, ftrlRows := o.ftrl, o.momentumRows, o.ftrlRows
	o.ftrl = func(p, z, s, g *float32, n int, f0, f1, f2, f3, f4 float32) {
		c.note("ftrl", n)
		ftrl(p, z, s, g, n, f0, f1, f2, f3, f4)
	}
	o.momentumRows = func(p, v *float32, ids *int32, g *float32, n, dim int, mask *int32, lr, momentum, scale float32) {
		rows(n, dim)
		momentumRows(p, v, ids, g, n, dim, mask, lr, momentum, scale)
	}
	o.ftrlRows = func(p, z, s *float32, ids *int32, g *float32, n, dim int, mask *int32, f0, f1, f2, f3, f4 float32) {
		rows(n, dim)
		ftrlRows(p, z, s, ids, g, n, dim, mask, f0, f1, f2, f3, f4)
	}
	return &out
}

func fromBits(b uint32) float32 { return math.Float32frombits(b) }

// sqrtSpecial is the root of zeros, infinities, NaN and negative numbers.
func sqrtSpecial(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// BenchmarkUpdates counts the bytes each rule reads and writes, in the caches
// and in memory.
func BenchmarkUpdates(b *testing.B) {
	moves := map[string]int{"SGDPlain": 3, "Momentum": 5, "Adagrad": 5, "AdamW": 7, "FTRL": 7}
	for _, n := range []int{4096, 1 << 24} {
		r := rand.New(rand.NewPCG(39, 40))
		x, _ := operands(r, n, false)
		for _, k := range Levels() {
			for _, w := range updateTwins {
				b.Run(fmt.Sprintf("%s/%d/%s", w.name, n, k.Name()), func(b *testing.B) {
					b.SetBytes(int64(4 * n * moves[w.name]))
					for b.Loop() {
						w.level(k, x)
					}
				})
			}
		}
	}
}
