package nn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func init() {
	for axis := -3; axis < 3; axis++ {
		opCases = append(opCases,
			opCase{fmt.Sprint("concat along ", axis), []int{2, 3, 4}, []int{2, 3, 4}, nil, false,
				func(t *Tape, x *Tensor, l Layer) *Tensor {
					return t.Concat(axis, x, t.Parameter(l.W), x, t.Tanh(t.Parameter(l.W)))
				},
				func(x, w, _ []float64) []float64 {
					return twinConcat([]int{2, 3, 4}, (axis+3)%3, x, w, x, each(w, func(v float64) float64 { return twinAct(Tanh, v) }))
				}},
			opCase{fmt.Sprint("slices along ", axis), []int{4, 3, 5}, nil, nil, false,
				func(t *Tape, x *Tensor, _ Layer) *Tensor {
					return t.Add(t.Slice(x, axis, 0, 2), t.Slice(x, axis, 1, 3))
				},
				func(x, _, _ []float64) []float64 {
					a, b := twinSlice([]int{4, 3, 5}, (axis+3)%3, 0, 2, x), twinSlice([]int{4, 3, 5}, (axis+3)%3, 1, 3, x)
					for i, v := range b {
						a[i] += v
					}
					return a
				}})
	}
	for _, axes := range [][]int{nil, {0, 1, 2, 3}, {0, 2, 1, 3}, {3, 0, 2, 1}, {1, 0, 3, 2}} {
		opCases = append(opCases, opCase{fmt.Sprint("transpose ", axes), []int{2, 3, 4, 5}, nil, nil, false,
			func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Transpose(x, axes...) },
			func(x, _, _ []float64) []float64 { return twinTranspose([]int{2, 3, 4, 5}, axes, x) }})
	}
	ids := []int32{3, 0, 3, 2, 3}
	opCases = append(opCases, opCase{"gather", []int{4, 2, 3}, nil, nil, false,
		func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.Gather(x, ids) },
		func(x, _, _ []float64) (y []float64) {
			for _, id := range ids {
				y = append(y, x[id*6:][:6]...)
			}
			return y
		}})
}

// twinConcat joins tensors of one shape.
func twinConcat(shape []int, axis int, xs ...[]float64) []float64 {
	all := slices.Clone(shape)
	all[axis] *= len(xs)
	y := make([]float64, volume(all))
	for at := range y {
		index := indexOf(at, all)
		x := xs[index[axis]/shape[axis]]
		index[axis] %= shape[axis]
		y[at] = x[place(index, shape)]
	}
	return y
}

func twinSlice(shape []int, axis, lo, hi int, x []float64) []float64 {
	cut := slices.Clone(shape)
	cut[axis] = hi - lo
	y := make([]float64, volume(cut))
	for at := range y {
		index := indexOf(at, cut)
		index[axis] += lo
		y[at] = x[place(index, shape)]
	}
	return y
}

func twinTranspose(shape, axes []int, x []float64) []float64 {
	if axes == nil {
		axes = []int{3, 2, 1, 0}
	}
	to := make([]int, len(shape))
	for i, a := range axes {
		to[i] = shape[a]
	}
	y := make([]float64, len(x))
	for at, v := range x {
		from := indexOf(at, shape)
		index := make([]int, len(shape))
		for i, a := range axes {
			index[i] = from[a]
		}
		y[place(index, to)] = v
	}
	return y
}

// What is cut comes together again, of few long rows and many short ones.
func TestConcatOfSlices(t *testing.T) {
	for _, shape := range [][]int{{2, 100_000}, {70_000, 3}} {
		x := NewTensor(shape...)
		copy(x.Data, random(rand.New(rand.NewPCG(1, 2)), x.Len()))
		x.RetainGrad()
		c := random(rand.New(rand.NewPCG(3, 4)), x.Len())
		for threads := 1; threads <= 3; threads++ {
			tape := NewTape(TapeConfig{Threads: threads})
			defer tape.Close()
			y := tape.Concat(1, tape.Slice(x, 1, 0, 1), tape.Slice(x, 1, 1, 1), tape.Slice(x, 1, 1, shape[1]))
			if !slices.Equal(x.Shape, y.Shape) || !slices.Equal(x.Data, y.Data) {
				t.Errorf("%v, %d threads: other values", shape, threads)
			}
			tape.Backward(tape.dot(y, c), nil)
			if !slices.Equal(x.Grad(), c) {
				t.Errorf("%v, %d threads: other gradients", shape, threads)
			}
		}
	}
}

func TestConcatFaults(t *testing.T) {
	x := NewTensor(2, 3)
	for want, f := range map[string]func(t *Tape){
		"concat: got [0], want one tensor at least":                        func(t *Tape) { t.Concat(0) },
		"concat: got [2], want an axis of [2 3]":                           func(t *Tape) { t.Concat(2, x) },
		"concat: got [2 4], want but for one axis, the shape [2 3]":        func(t *Tape) { t.Concat(0, x, NewTensor(2, 4)) },
		"concat: got [2], want but for one axis, the shape [2 3]":          func(t *Tape) { t.Concat(0, x, NewTensor(2)) },
		"slice: got [-3], want an axis of [2 3]":                           func(t *Tape) { t.Slice(x, -3, 0, 1) },
		"slice: got [1 0 4], want bounds, the lower first, of one axis of": func(t *Tape) { t.Slice(x, 1, 0, 4) },
		"slice: got [1 2 1], want bounds, the lower first, of one axis of": func(t *Tape) { t.Slice(x, 1, 2, 1) },
		"transpose: got [0 0], want all axes, each once, of [2 3]":         func(t *Tape) { t.Transpose(x, 0, 0) },
		"transpose: got [0], want all axes, each once, of [2 3]":           func(t *Tape) { t.Transpose(x, 0) },
		"gather: got [0], want at least one id":                            func(t *Tape) { t.Gather(x, nil) },
		"gather: got [], want rows":                                        func(t *Tape) { t.Gather(NewTensor(), []int32{0}) },
	} {
		wantShapeError(t, want, f)
	}
	defer func() {
		var index *IndexError
		if err, _ := recover().(error); !errors.As(err, &index) || err.Error() != "nn: gather: id 1 of the batch is 2: want 0 to 1" {
			t.Errorf("%v", err)
		}
	}()
	NewTape(TapeConfig{}).Gather(x, []int32{0, 2})
}
