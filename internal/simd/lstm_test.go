package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// lstmNaive is the cell and its gradient in float64.
func lstmNaive(sums [4]float64, c0, dh, dc float64) (gates [4]float64, c, h float64, dsums [4]float64, dc0 float64) {
	squash := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	i, f, g, o := squash(sums[0]), squash(sums[1]), math.Tanh(sums[2]), squash(sums[3])
	c = f*c0 + i*g
	t := math.Tanh(c)
	d := dc + dh*o*(1-t*t)
	dsums = [4]float64{d * g * i * (1 - i), d * c0 * f * (1 - f), d * i * (1 - g*g), dh * t * o * (1 - o)}
	return [4]float64{i, f, g, o}, c, o * t, dsums, d * f
}

// lstmOperands are those of both kernels, of n columns.
type lstmOperands struct {
	gates, h, c, c0, dc, dh []float32
	gap                     int
}

func (in *lstmOperands) all() [][]float32 {
	return [][]float32{in.gates, in.h, in.c, in.c0, in.dc, in.dh}
}

func newLSTM(r *rand.Rand, n, gap int) (o lstmOperands, guard func(*testing.T, string)) {
	o.gap = gap
	var guards []func(*testing.T, string)
	for i, x := range []*[]float32{&o.gates, &o.h, &o.c, &o.c0, &o.dc, &o.dh} {
		size := n
		if i == 0 {
			size = 3*gap + n
		}
		var g func(*testing.T, string)
		*x, g = guarded(r, size)
		guards = append(guards, g)
		for j := range *x {
			(*x)[j] *= 4
		}
	}
	return o, func(t *testing.T, what string) {
		for _, g := range guards {
			g(t, what)
		}
	}
}

// Both kernels agree with the definition, leave what lies between the gates'
// columns alone, and give the same bits at every level.
func TestLSTM(t *testing.T) {
	widths := []int{0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 100, 650, lstmFloats + 21}
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for _, n := range widths {
			for _, gap := range []int{n, n + 5} {
				r := rand.New(rand.NewPCG(uint64(n), 41))
				start, guard := newLSTM(r, n, gap)
				want, _ := newLSTM(rand.New(rand.NewPCG(uint64(n), 41)), n, gap)
				in := lstmOperands{gap: gap, gates: append([]float32(nil), start.gates...), c0: start.c0, dc: append([]float32(nil), start.dc...)}
				at := fmt.Sprintf("n=%d gap=%d", n, gap)

				k.LSTM(start.h, start.c, start.gates, gap, start.c0)
				portable.LSTM(want.h, want.c, want.gates, gap, want.c0)
				compareLSTM(t, at, start, want)
				for j := range n {
					in.check(t, at, start, j, false)
				}
				k.LSTMGrad(start.gates, gap, start.dc, start.dh, start.c, start.c0)
				portable.LSTMGrad(want.gates, gap, want.dc, want.dh, want.c, want.c0)
				compareLSTM(t, at, start, want)
				for j := range n {
					in.check(t, at, start, j, true)
				}
				guard(t, at)
			}
		}
	})
}

func compareLSTM(t *testing.T, at string, got, want lstmOperands) {
	t.Helper()
	for i, x := range want.all() {
		sameValues(t, fmt.Sprintf("%s operand %d", at, i), got.all()[i], x)
	}
}

// check compares column j of what the kernels made of in.
func (in *lstmOperands) check(t *testing.T, at string, got lstmOperands, j int, grad bool) {
	t.Helper()
	var sums [4]float64
	for g := range sums {
		sums[g] = float64(in.gates[g*in.gap+j])
	}
	gates, c, h, dsums, dc := lstmNaive(sums, float64(in.c0[j]), float64(got.dh[j]), float64(in.dc[j]))
	if grad {
		gates = dsums
		closeTo(t, at+" dc", got.dc[j], dc)
	} else {
		closeTo(t, at+" c", got.c[j], c)
		closeTo(t, at+" h", got.h[j], h)
	}
	for g, v := range gates {
		closeTo(t, fmt.Sprintf("%s gate %d", at, g), got.gates[g*in.gap+j], v)
	}
}

func closeTo(t *testing.T, what string, got float32, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 2e-6*(1+math.Abs(want)) {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// Gates far out neither overflow nor lose the cell.
func TestLSTMOfExtremes(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for _, far := range []float32{100, 1e30, float32(math.Inf(1))} {
			gates := []float32{far, far, -far, far, -far, -far, far, -far, far, -far, far, far}
			order := make([]float32, len(gates)) // three columns of four gates
			for i, v := range gates {
				order[i%4*3+i/4] = v
			}
			h, c, c0 := make([]float32, 3), make([]float32, 3), []float32{2, 2, 2}
			k.LSTM(h, c, order, 3, c0)
			want := []float32{1, 0, 1} // kept minus one; lost; replaced
			sameValues(t, fmt.Sprint(far), c, want)
		}
	})
}

func TestLSTMWantsOperandsThatFit(t *testing.T) {
	x := make([]float32, 16)
	for name, f := range map[string]func(){
		"gates": func() { Host().LSTM(x[:5], x[:5], x, 5, x[:5]) },
		"gap":   func() { Host().LSTM(x[:4], x[:4], x, 3, x[:4]) },
		"cells": func() { Host().LSTM(x[:4], x[:4], x, 4, x[:3]) },
		"dc":    func() { Host().LSTMGrad(x, 4, x[:3], x[:4], x[:4], x[:4]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func BenchmarkLSTM(b *testing.B) {
	const n = 650
	o, _ := newLSTM(rand.New(rand.NewPCG(1, 2)), n, n)
	sums := append([]float32(nil), o.gates...)
	for _, k := range Levels() {
		b.Run("cell/"+k.Name(), func(b *testing.B) {
			for b.Loop() {
				copy(o.gates, sums)
				k.LSTM(o.h, o.c, o.gates, n, o.c0)
			}
		})
		b.Run("gradient/"+k.Name(), func(b *testing.B) {
			for b.Loop() {
				copy(o.gates, sums)
				k.LSTMGrad(o.gates, n, o.dc, o.dh, o.c, o.c0)
			}
		})
	}
}
