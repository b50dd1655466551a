package nn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// layerBits are the result and the gradients of one layer on so many threads, twice: the second adds to the first's.
func layerBits(t *testing.T, k *simd.Kernels, threads int, build func(ps *Params) (func(t *Tape, x *Tensor) *Tensor, *Tensor)) []float32 {
	t.Helper()
	ps := NewParams(3)
	forward, x := build(ps)
	x.needs = true
	loss := func(t *Tape) *Tensor {
		y := forward(t, x)
		y = t.Reshape(y, y.Len())
		return t.Sum(t.Multiply(y, y))
	}
	if err := ps.Arrange(loss); err != nil {
		t.Fatal(err)
	}
	tape := NewTape(TapeConfig{Kernels: k, Threads: threads})
	defer tape.Close()
	var out []float32
	for step := range 2 {
		tape.Reset()
		l := loss(tape)
		var ready func(int)
		if step == 1 {
			ready = func(int) {}
		}
		tape.Backward(l, ready)
		out = append(append(out, l.Data...), x.grad...)
	}
	return append(out, ps.Grads()...)
}

// values makes a tensor of noise.
func values(shape ...int) *Tensor {
	x := NewTensor(shape...)
	copy(x.Data, random(rand.New(rand.NewPCG(5, uint64(x.Len()))), x.Len()))
	return x
}

// sameOnThreads compares a layer on 2, 3 and 7 threads with one, and on 3 on every level of instructions.
func sameOnThreads(t *testing.T, name string, build func(ps *Params) (func(t *Tape, x *Tensor) *Tensor, *Tensor)) {
	t.Helper()
	for _, k := range simd.Levels() {
		want := layerBits(t, k, 1, build)
		several := []int{3}
		if k == simd.Host() {
			several = []int{2, 3, 7}
		}
		for _, threads := range several {
			got := layerBits(t, k, threads, build)
			if i := firstDifference(got, want); i >= 0 {
				t.Errorf("%s, %s, %d threads: value %d of %d is %v, of one thread %v", name, k.Name(), threads, i, len(want), got[i], want[i])
			}
		}
	}
}

// Threads share rows or columns of a product by its shape, each at the edges of where that changes. It holds invariant[thread-bits].
func TestDenseOnThreads(t *testing.T) {
	for _, c := range []struct {
		n, in, out int
		act        Activation
		rows       bool
	}{
		{1, 40, 30, ReLU, false}, {productRows - 1, 33, 20, Identity, false}, {productRows, 33, 20, Tanh, true}, {300, 17, 65, Sigmoid, true},
		{113, 200, 130, GELU, false}, {productRows, 1, 1, Identity, true},
	} {
		build := func(ps *Params) (func(t *Tape, x *Tensor) *Tensor, *Tensor) {
			l := ps.Dense("dense", c.in, c.out)
			return func(t *Tape, x *Tensor) *Tensor { return t.Dense(x, l, c.act) }, values(c.n, c.in)
		}
		sameOnThreads(t, fmt.Sprintf("%+v", c), build)
		o := denseOp{x: NewTensor(c.n, c.in), l: Layer{W: &Param{Shape: []int{c.out, c.in}}}}
		for threads := 1; threads <= 2; threads++ {
			tape := NewTape(TapeConfig{Threads: threads})
			if got := o.byRows(tape); got != (c.rows && threads > 1) {
				t.Errorf("%+v on %d threads: rows are shared: %v", c, threads, got)
			}
			tape.Close()
		}
	}
}

// Whatever a convolution shares (rows of windows, samples, tiles, panels and blocks of weights), its bits stay. It holds
// invariant[thread-bits].
func TestConvolutionsOnThreads(t *testing.T) {
	for _, c := range []struct {
		n, side, in, out, kernel int
		cfg                      Conv
	}{
		{3, 8, 16, 16, 3, Conv{Pad: 1}},                            // one panel of weights, one block
		{2, 9, 48, 32, 3, Conv{Pad: 1, Activation: ReLU}},          // three blocks of one panel
		{1, 4, 16, 80, 3, Conv{}},                                  // one tile
		{2, 3, 16, 272, 3, Conv{Pad: 1}},                           // more channels than tiles
		{5, 6, 3, 24, 5, Conv{Pad: 2, Activation: ReLU}},           // windows
		{2, 7, 80, 130, 1, Conv{}},                                 // a plain product
		{3, 8, 5, 7, 3, Conv{MaxPool2: true}},                      // pooled
		{2, 9, 32, 260, 3, Conv{Stride: 2, Pad: 1}},                // weights of which threads share columns
		{1, 5, 4, 4, 3, Conv{Stride: 2, Pad: 1, Activation: ReLU}}, // fewer rows than threads
	} {
		sameOnThreads(t, fmt.Sprintf("%+v", c), func(ps *Params) (func(t *Tape, x *Tensor) *Tensor, *Tensor) {
			l := ps.Conv2D("conv", c.in, c.out, c.kernel)
			return func(t *Tape, x *Tensor) *Tensor { return t.Conv2D(x, l, c.cfg) }, values(c.n, c.side, c.side, c.in)
		})
	}
}

// Recurrent layers, too. It holds invariant[thread-bits].
func TestRecurrenceOnThreads(t *testing.T) {
	for _, c := range [][4]int{{3, 2, 20, 17}, {16, 9, 33, 40}, {40, 4, 16, 70}} {
		steps, n, in, hidden := c[0], c[1], c[2], c[3]
		sameOnThreads(t, fmt.Sprint("lstm ", c), func(ps *Params) (func(t *Tape, x *Tensor) *Tensor, *Tensor) {
			l := ps.LSTM("lstm", Uniform(0.2), in, hidden)
			return func(t *Tape, x *Tensor) *Tensor { return t.LSTM(x, l, nil, steps) }, values(steps*n, in)
		})
	}
}

// The parts of a table's gradient begin where ids do: none has an id of its neighbour, and all keys are somebody's.
func TestMergeCutsBetweenIDs(t *testing.T) {
	tape := NewTape(TapeConfig{Threads: 3})
	defer tape.Close()
	for _, ids := range [][]int{{1, 1, 1, 1, 1, 2}, {1, 2, 3, 4, 5, 6}, {1, 1, 1, 2, 2, 2}, {7, 7, 7, 7, 7, 7}, {1}} {
		var keys []uint64
		dy := make([]float32, len(ids))
		for i, id := range ids {
			keys = append(keys, uint64(id)<<32|uint64(i))
			dy[i] = float32(i + 1)
		}
		ps := NewParams(1)
		together, naive := ps.NewTable("together", UniformRows(1), 10, 1), ps.NewTable("naive", UniformRows(1), 10, 1)
		var j mergeJob
		j.run(tape, together, keys, dy, 4)
		naive.merge(keys, dy)
		if !slices.Equal(together.ids, naive.ids) || !slices.Equal(together.grads, naive.grads) {
			t.Errorf("ids %v: rows %v of %v, want %v of %v", ids, together.grads, together.ids, naive.grads, naive.ids)
		}
		for i, at := range j.starts[1 : len(j.starts)-1] {
			if at < len(ids) && at > 0 && ids[at] == ids[at-1] || at < j.starts[i] {
				t.Errorf("ids %v are cut at %v", ids, j.starts)
			}
		}
	}
}
