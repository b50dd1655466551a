package nn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// twinBroadcast is f of two tensors, index by index.
func twinBroadcast(as, bs []int, f func(a, b float64) float64) func(a, b []float64) []float64 {
	rank := max(len(as), len(bs))
	as, bs = slices.Concat(slices.Repeat([]int{1}, rank-len(as)), as), slices.Concat(slices.Repeat([]int{1}, rank-len(bs)), bs)
	shape := make([]int, rank)
	for i := range shape {
		shape[i] = max(as[i], bs[i])
	}
	return func(a, b []float64) []float64 {
		y := make([]float64, volume(shape))
		for at := range y {
			index := indexOf(at, shape)
			y[at] = f(a[place(index, as)], b[place(index, bs)])
		}
		return y
	}
}

// indexOf is the index of value at of a tensor.
func indexOf(at int, shape []int) []int {
	index := make([]int, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		index[i], at = at%shape[i], at/shape[i]
	}
	return index
}

// place is the inverse of indexOf, where an axis of one value is broadcast.
func place(index, shape []int) (at int) {
	for i, d := range shape {
		at = at*d + min(index[i], d-1)
	}
	return at
}

// broadcastShapes are pairs that are broadcast along no, the first, the last, all and alternate axes.
var broadcastShapes = [][2][]int{
	{{3, 5}, {3, 5}}, {{4, 7}, {7}}, {{7}, {4, 7}}, {{4, 7}, {4, 1}}, {{4, 1}, {1, 7}}, {{4, 7}, {1}}, {{1}, {3, 2}},
	{{2, 3, 4, 5}, {2, 1, 1, 5}}, {{2, 1, 4, 1}, {3, 1, 5}}, {{2, 3, 1, 5}, {1, 3, 1, 1}}, {{1}, {1}}, {{2, 3, 33}, {3, 1}},
}

var broadcastCases = slices.Concat(
	binaryCases("add", (*Tape).Add, func(a, b float64) float64 { return a + b }),
	binaryCases("subtract", (*Tape).Subtract, func(a, b float64) float64 { return a - b }),
	binaryCases("multiply", (*Tape).Multiply, func(a, b float64) float64 { return a * b }),
	[]opCase{
		{"square", []int{3, 7}, nil, nil, true,
			func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Multiply(x, x) },
			func(x, _, _ []float64) []float64 { return each(x, func(v float64) float64 { return v * v }) }},
		{"difference of one and the same", []int{3, 7}, nil, nil, false,
			func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Subtract(t.Scale(x, 3), x) },
			func(x, _, _ []float64) []float64 { return each(x, func(v float64) float64 { return 2 * v }) }},
		{"broadcast", []int{2, 1, 3}, nil, nil, false,
			func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Broadcast(x, 4, 2, 5, 3) },
			func(x, _, _ []float64) []float64 {
				y := make([]float64, 4*2*5*3)
				for at := range y {
					y[at] = x[place(indexOf(at, []int{4, 2, 5, 3})[1:], []int{2, 1, 3})]
				}
				return y
			}},
		{"parameter", []int{2, 3}, []int{2, 3}, nil, false, // used twice
			func(t *Tape, x *Tensor, l Layer) *Tensor { return t.Add(t.Add(x, t.Parameter(l.W)), t.Parameter(l.W)) },
			func(x, w, _ []float64) []float64 {
				y := slices.Clone(x)
				for i := range y {
					y[i] += 2 * w[i]
				}
				return y
			}},
	})

func each(x []float64, f func(v float64) float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = f(v)
	}
	return y
}

// binaryCases are an operation of an input and a parameter, of all pairs of shapes.
func binaryCases(name string, op func(t *Tape, a, b *Tensor) *Tensor, f func(a, b float64) float64) (cases []opCase) {
	for _, s := range broadcastShapes {
		twin := twinBroadcast(s[0], s[1], f)
		cases = append(cases, opCase{fmt.Sprintf("%s of %v and %v", name, s[0], s[1]), s[0], s[1], nil, false,
			func(t *Tape, x *Tensor, l Layer) *Tensor { return op(t, x, t.Parameter(l.W)) },
			func(x, w, _ []float64) []float64 { return twin(x, w) }})
	}
	return cases
}

var reduceCases = slices.Concat(
	sumCases([]int{3, 7}, nil, []int{0}, []int{1}, []int{-1}, []int{0, 1}),
	sumCases([]int{2, 3, 4, 5}, []int{1}, []int{0, 2}, []int{1, 3}, []int{3}, []int{1, 2}, []int{-4, -3}, []int{0, 1, 2, 3}),
	sumCases([]int{3, 300}, []int{0}, []int{1}),
	sumCases([]int{1, 1}, []int{0}, nil),
)

func sumCases(shape []int, axes ...[]int) (cases []opCase) {
	for _, a := range axes {
		cases = append(cases,
			opCase{fmt.Sprintf("sum of %v over %v", shape, a), shape, nil, nil, false,
				func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Sum(x, a...) },
				func(x, _, _ []float64) []float64 { return twinSum(x, shape, a, false) }},
			opCase{fmt.Sprintf("mean of %v over %v", shape, a), shape, nil, nil, false,
				func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Mean(x, a...) },
				func(x, _, _ []float64) []float64 { return twinSum(x, shape, a, true) }})
	}
	return cases
}

func twinSum(x []float64, shape, axes []int, mean bool) []float64 {
	kept := slices.Clone(shape)
	for i := range kept {
		if len(axes) == 0 || slices.Contains(axes, i) || slices.Contains(axes, i-len(shape)) {
			kept[i] = 1
		}
	}
	y := make([]float64, volume(kept))
	for at, v := range x {
		if mean {
			v *= float64(len(y)) / float64(len(x))
		}
		y[place(indexOf(at, shape), kept)] += v
	}
	return y
}

// Tensors of many parts, and runs longer than a part.
func TestBroadcastOfManyParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][2][]int{{{3, 50_001}, {50_001}}, {{3, 50_001}, {3, 1}}, {{40_000, 3}, {3}}, {{40_000, 3}, {40_000, 1}}, {{100_000}, {1}}} {
		var want []float32
		for threads := 1; threads <= 3; threads++ {
			ps := NewParams(1)
			w := ps.New("w", Uniform(1), s[1]...)
			x := NewTensor(s[0]...)
			if want == nil {
				copy(x.Data, random(r, x.Len()))
			}
			copy(x.Data, gap(rand.New(rand.NewPCG(3, 4)), x.Len()))
			x.RetainGrad()
			loss := func(t *Tape) *Tensor { return t.Mean(t.Multiply(x, t.Parameter(w))) }
			if err := ps.Arrange(loss); err != nil {
				t.Fatal(err)
			}
			tape := NewTape(TapeConfig{Threads: threads})
			defer tape.Close()
			y := loss(tape)
			tape.Backward(y, func(int) {})
			got := slices.Concat(y.Data, w.Grad, x.Grad())
			if want == nil {
				want = got
				checkMeanProduct(t, x, w, y)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v: %d threads have other bits than 1", s, threads)
			}
		}
	}
}

func checkMeanProduct(t *testing.T, x *Tensor, w *Param, y *Tensor) {
	t.Helper()
	mean, dw, n := 0.0, make([]float64, len(w.Data)), float64(x.Len())
	shape := slices.Concat(slices.Repeat([]int{1}, len(x.Shape)-len(w.Shape)), w.Shape)
	for at, v := range x.Data {
		i := place(indexOf(at, x.Shape), shape)
		mean += float64(v) * float64(w.Data[i]) / n
		dw[i] += float64(v) / n
	}
	if !near(mean, float64(y.Data[0]), 1e-5) {
		t.Errorf("%v and %v: mean %v, want %v", x.Shape, w.Shape, y.Data[0], mean)
	}
	for i, want := range dw {
		if !near(want, float64(w.Grad[i]), 1e-4) {
			t.Fatalf("%v and %v: dw[%d] = %v, want %v", x.Shape, w.Shape, i, w.Grad[i], want)
		}
	}
}

func TestBroadcastFaults(t *testing.T) {
	nine := NewTensor(1, 1, 1, 1, 1, 1, 1, 1, 1)
	for want, f := range map[string]func(t *Tape){
		"add: got [4], want a shape that is broadcast with [2 3]":        func(t *Tape) { t.Add(NewTensor(2, 3), NewTensor(4)) },
		"subtract: got [2], want a shape that is broadcast with [2 3]":   func(t *Tape) { t.Subtract(NewTensor(2, 3), NewTensor(2)) },
		"multiply: got [1 1 1 1 1 1 1 1 1], want":                        func(t *Tape) { t.Multiply(NewTensor(2, 3), nine) },
		"broadcast: got [3 2], want a shape to which is broadcast [2 3]": func(t *Tape) { t.Broadcast(NewTensor(2, 3), 3, 2) },
		"broadcast: got [3], want a shape to which is broadcast [2 3]":   func(t *Tape) { t.Broadcast(NewTensor(2, 3), 3) },
		"sum: got [2], want axes, each once, of [2 3]":                   func(t *Tape) { t.Sum(NewTensor(2, 3), 2) },
		"sum: got [-3], want axes, each once, of [2 3]":                  func(t *Tape) { t.Sum(NewTensor(2, 3), -3) },
		"mean: got [0 0], want axes, each once, of [2 3]":                func(t *Tape) { t.Mean(NewTensor(2, 3), 0, 0) },
		"mean: got [0 -2], want axes, each once, of [2 3]":               func(t *Tape) { t.Mean(NewTensor(2, 3), 0, -2) },
		"mean: got [0 3], want one value at least":                       func(t *Tape) { t.Mean(NewTensor(0, 3)) },
		"sum: got [1 1 1 1 1 1 1 1 1], want at most 8 axes":              func(t *Tape) { t.Sum(nine) },
	} {
		wantShapeError(t, want, f)
	}
}
