package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// figureTwin is a rule with figures of a row: on a level, and row by row in
// plain Go. x holds parameters, two arrays of state, and the figures.
type figureTwin struct {
	name  string
	width int // figures of a row
	level func(k *Kernels, x [4][]float32, ids []int32, g, scales []float32, dim int)
	naive func(p, m, v, figures, g []float32, scale float32)
}

var figureTwins = []figureTwin{
	{
		"RowWiseAdagrad", 1,
		func(k *Kernels, x [4][]float32, ids []int32, g, scales []float32, dim int) {
			k.RowWiseAdagrad(x[0], x[3], ids, g, scales, dim, 0.1, 3, 0.25)
		},
		func(p, _, _, s, g []float32, scale float32) {
			q := 0.25 / scale
			rate := 0.1 * naiveRoot(3/(3+s[0]))
			var by [8]float32 // squares, by position modulo 8
			for j := range p {
				d := g[j] * q
				p[j] -= float32(rate * d)
				by[j%8] += float32(d * d)
			}
			for half := 4; half > 0; half /= 2 {
				for i := range half {
					by[i] += by[i+half]
				}
			}
			s[0] += by[0] / float32(len(p))
		},
	},
	{
		"AdamOwnRows", 2,
		func(k *Kernels, x [4][]float32, ids []int32, g, _ []float32, dim int) {
			f := testFactors
			f.Rate, f.Unbias = 1e9, 1e9 // not looked at
			k.AdamOwnRows(x[0], x[1], x[2], x[3], ids, g, dim, 0.02, f)
		},
		func(p, m, v, w, g []float32, _ float32) {
			w[0] = float32(0.9*w[0]) + 0.1
			w[1] = float32(0.99*w[1]) + 0.01
			rate, unbias := 0.02/w[0], 1/naiveRoot(w[1])
			for j := range p {
				d := g[j] * 0.25
				m[j] = naiveFlush(float32(0.9*m[j]) + float32(0.1*d))
				v[j] = naiveFlush(float32(0.99*v[j]) + float32(float32(0.01*d)*d))
				p[j] = float32(0.999*p[j]) - float32(rate*m[j])/(float32(unbias*naiveRoot(v[j]))+1e-8)
			}
		},
	},
	{
		"ClampRows", 1,
		func(k *Kernels, x [4][]float32, ids []int32, _, _ []float32, dim int) {
			k.ClampRows(x[0], ids, dim, -0.25, 0.5)
		},
		func(p, _, _, _, _ []float32, _ float32) {
			for j, v := range p {
				switch {
				case v < -0.25:
					p[j] = -0.25
				case v > 0.5:
					p[j] = 0.5
				}
			}
		},
	},
}

// Rules with figures of a row, on rows of each length and in any order, with
// and without scales: the rows that no id names stay.
func TestRowFigures(t *testing.T) {
	dims := []int{1, 2, 7, 8, 9, 10, 15, 16, 17, 23, 24, 25, 31, 32, 33, 40, 64, 100}
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for _, w := range figureTwins {
			t.Run(w.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(41, 42))
				for _, dim := range dims {
					for _, rows := range []int{0, 1, 2, 41, 2*callRows + 3} {
						w.check(t, k, r, rows, dim, rows%2 == 0)
					}
				}
				w.check(t, k, r, 3, callFloats+5, true)
			})
		}
	})
}

func (w figureTwin) check(t *testing.T, k *Kernels, r *rand.Rand, rows, dim int, scaled bool) {
	var ids []int32
	for _, id := range r.Perm(rows) {
		if r.IntN(4) > 0 || id == 0 || id == rows-1 {
			ids = append(ids, int32(id))
		}
	}
	odd := rows%2 == 1
	wide, guards := operands(r, rows*dim, odd)
	figures, guardFigures := guarded(r, rows*w.width)
	for i, v := range figures {
		figures[i] = magnitude(v)
	}
	got := [4][]float32{wide[0], wide[1], wide[2], figures}
	g, guardG := guarded(r, len(ids)*dim)
	if odd {
		for i := range g {
			if i%7 == 3 {
				g[i] = specials[r.IntN(len(specials))]
			}
		}
	}
	var scales []float32
	if scaled {
		scales, _ = guarded(r, len(ids))
		for i, v := range scales {
			scales[i] = 1 + v*v
		}
	}
	want, wantG := cloned(got), append([]float32(nil), g...)
	w.level(k, got, ids, g, scales, dim)
	for i, id := range ids {
		row := func(x []float32, width int) []float32 { return x[int(id)*width:][:width] }
		scale := float32(1)
		if scaled {
			scale = scales[i]
		}
		w.naive(row(want[0], dim), row(want[1], dim), row(want[2], dim), row(want[3], w.width), g[i*dim:][:dim], scale)
	}
	what := fmt.Sprintf("rows=%d dim=%d", rows, dim)
	for i := range got {
		sameValues(t, fmt.Sprintf("%s operand %d", what, i), got[i], want[i])
	}
	for _, check := range append(guards[:], guardFigures, guardG) {
		check(t, what)
	}
	sameValues(t, what+" gradients", g, wantG)
}

func TestRowFiguresAllocateNothing(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(43, 44))
		x, _ := operands(r, 100, false)
		ids := []int32{0, 9, 3}
		for _, w := range figureTwins {
			if n := testing.AllocsPerRun(10, func() { w.level(k, x, ids, x[1][:30], x[2][:3], 10) }); n != 0 {
				t.Errorf("%s makes %v allocations", w.name, n)
			}
		}
	})
}

// As TestCallsAreShort: no call has more than callRows rows, or than callFloats
// values in more than one.
func TestRowFigureCallsAreShort(t *testing.T) {
	for _, level := range Levels() {
		if level.vec.width == 0 {
			continue
		}
		most := calls{}
		rows := func(n, dim int) {
			most.note("rows", n)
			if n > 1 {
				most.note("values", n*dim)
			}
		}
		k := *level
		o := level.opt
		k.opt.rowWiseAdagrad = func(p, s *float32, ids *int32, g, scales *float32, step, n, dim int, mask *int32, f0, f1, f2, f3 float32) {
			rows(n, dim)
			o.rowWiseAdagrad(p, s, ids, g, scales, step, n, dim, mask, f0, f1, f2, f3)
		}
		k.opt.adamOwnRows = func(p, m, v, w *float32, ids *int32, g *float32, n, dim int, mask *int32, f0, f1, f2, f3, f4, f5, f6, f7 float32) {
			rows(n, dim)
			o.adamOwnRows(p, m, v, w, ids, g, n, dim, mask, f0, f1, f2, f3, f4, f5, f6, f7)
		}
		k.opt.clampRows = func(p *float32, ids *int32, n, dim int, mask *int32, lo, hi float32) {
			rows(n, dim)
			o.clampRows(p, ids, n, dim, mask, lo, hi)
		}
		r := rand.New(rand.NewPCG(45, 46))
		for _, w := range figureTwins {
			clear(most)
			for dim, n := range map[int]int{2: 3 * callRows, callFloats / 8: 20} {
				w.check(t, &k, r, n, dim, true)
			}
			if most["rows"] != callRows || most["values"] != callFloats {
				t.Errorf("%s: %s: one call was given %d rows and %d values, want %d and %d", level.Name(), w.name, most["rows"], most["values"], callRows, callFloats)
			}
		}
	}
}

// BenchmarkRowFigures updates rows of 16 values in random order in tables that
// lie in memory.
func BenchmarkRowFigures(b *testing.B) {
	const rows, dim, used = 1 << 20, 16, 8192
	r := rand.New(rand.NewPCG(47, 48))
	x, _ := operands(r, rows*dim, false)
	g, scales := random(r, used*dim), make([]float32, used)
	for i := range scales {
		scales[i] = 1
	}
	order := r.Perm(rows)
	for _, k := range Levels() {
		for _, w := range figureTwins {
			b.Run(w.name+"/"+k.Name(), func(b *testing.B) {
				ids, at := make([]int32, used), 0
				for b.Loop() {
					for i := range ids {
						ids[i] = int32(order[at%rows])
						at++
					}
					w.level(k, x, ids, g, scales, dim)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/used, "ns/row")
			})
		}
	}
}
