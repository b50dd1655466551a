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

// Every lookup is one part's, and all of an id are in the same, in order: whatever ids there are.
func TestMergeSharesIDs(t *testing.T) {
	const n, each, dim, held = 40, 5, 3, 5000
	for name, id := range map[string]func(i int) int32{
		"different": func(i int) int32 { return int32(i * 7919 % held) },
		"one":       func(int) int32 { return 7 },
		"the last":  func(int) int32 { return held - 1 },
		"two":       func(i int) int32 { return int32(i % 2 * (held - 1)) },
		"ascending": func(i int) int32 { return int32(i) },
	} {
		ids := make([]int32, n*each)
		for i := range ids {
			ids[i] = id(i)
		}
		o := &tableLookupOp{ids: ids, tab: &Table{Dim: dim, Data: make([]float32, held*dim)}}
		o.y.Shape = []int{n, each*dim + 2}
		var want []uint64
		for i, id := range ids {
			want = append(want, uint64(id)<<32|uint64(i/each*(each*dim+2)+i%each*dim))
		}
		slices.Sort(want) // equal ids by place
		for parts := 1; parts <= 4; parts++ {
			var j mergeJob
			j.cut(ids, held, parts)
			var got []uint64
			for i := range parts {
				s := j.share(i)
				s.fill(o, j.bounds[i], j.bounds[i+1])
				s.sort(held)
				got = append(got, s.keys...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s ids in %d parts, bounds %v: keys are %x, want %x", name, parts, j.bounds, got, want)
			}
			if name == "different" && parts > 1 && max(len(j.shares[0].keys), len(j.shares[1].keys)) > len(ids)*3/2/parts {
				t.Errorf("ids in %d parts are shared unevenly: %d and %d of %d", parts, len(j.shares[0].keys), len(j.shares[1].keys), len(ids))
			}
		}
	}
}
