package nn

import (
	"fmt"
	"testing"
)

// The gradient of weights by blocks of rows has the bits of one product, with as many blocks as threads, more and fewer, a bias
// and none, and where the threads' shares of blocks are uneven. It holds invariant[thread-bits].
func TestWeightsByBlocks(t *testing.T) {
	for _, c := range []struct {
		n, in, out int
		act        Activation
		bias       bool
		threads    []int // with so many, blocks are shared
	}{
		{513, 4, 70, Identity, true, []int{2}},
		{1100, 3, 130, ReLU, true, []int{2, 3}},
		{2100, 2, 200, Tanh, false, []int{2, 3}},
		{4500, 1, 64, Identity, true, []int{3}}, // 9 blocks
		{512, 4, 70, Identity, true, nil},       // one block
		{1024, 4, 40, Identity, true, nil},      // few rows of weights
		{1100, 500, 500, ReLU, true, nil},       // sums of blocks are larger than what they save
	} {
		layer := func(ps *Params) Layer {
			l := ps.Dense("dense", c.in, c.out)
			if !c.bias {
				l.B = nil
			}
			return l
		}
		if c.n*c.in*c.out < 1e6 {
			sameOnThreads(t, fmt.Sprintf("%+v", c), func(ps *Params) (func(t *Tape, x *Tensor) *Tensor, *Tensor) {
				l := layer(ps)
				return func(t *Tape, x *Tensor) *Tensor { return t.Dense(x, l, c.act) }, values(c.n, c.in)
			})
		}
		o := denseOp{x: NewTensor(c.n, c.in), l: layer(NewParams(1))}
		for threads := 1; threads <= 3; threads++ {
			tape := NewTape(TapeConfig{Threads: threads})
			want := false
			for _, n := range c.threads {
				want = want || n == threads
			}
			if got := o.byBlocks(tape); got != want {
				t.Errorf("%+v on %d threads: blocks are shared: %v", c, threads, got)
			}
			tape.Close()
		}
	}
}

// Whatever the order in which parts are done, such as that of one thread that takes them from the last on, all rows are in the
// bias's gradient, in order.
func TestBlocksInAnyOrder(t *testing.T) {
	const n, in, out = 2100, 3, 20
	ps := NewParams(1)
	l := ps.Dense("dense", in, out)
	loss := func(t *Tape, x *Tensor) *Tensor { return t.Sum(t.Dense(x, l, Identity)) }
	x := values(n, in)
	if err := ps.Arrange(func(t *Tape) *Tensor { return loss(t, x) }); err != nil {
		t.Fatal(err)
	}
	tape := NewTape(TapeConfig{})
	defer tape.Close()
	tape.Backward(loss(tape, x), nil)
	want := append([]float32(nil), ps.Grads()...)
	o := &denseOp{x: x, l: l}
	o.y.grad = tape.ops[0].result().grad
	if o.y.grad == nil {
		o.y.grad = values(n, out).Data
		tape.Reset()
	}
	fill(o.y.grad[:n*out], 1)
	for name, order := range map[string][]int{"first to last": {0, 1, 2, 3, 4}, "last to first": {4, 3, 2, 1, 0}, "the second thread first": {3, 4, 0, 1, 2}} {
		for _, run := range []int{1, 2} {
			l.W.touched, l.B.touched = false, false
			j := &blocksJob{o: o, blocks: 5, pieces: 1, run: run, sums: make([]float32, 4*in*out)}
			for _, i := range order {
				j.part(&tape.pool.workers[0], i)
			}
			j.adding, j.parts = true, 2
			j.part(&tape.pool.workers[0], 1)
			j.part(&tape.pool.workers[0], 0)
			if i := firstDifference(ps.Grads(), want); i >= 0 {
				t.Errorf("%s, %d blocks each: value %d is %v, of one product %v", name, run, i, ps.Grads()[i], want[i])
			}
		}
	}
}

// A step with blocks allocates nothing.
func TestBlocksDoNotAllocate(t *testing.T) {
	ps := NewParams(1)
	l := ps.Dense("dense", 4, 70)
	x := values(600, 4)
	loss := func(t *Tape) *Tensor { return t.Sum(t.Dense(x, l, ReLU)) }
	if err := ps.Arrange(loss); err != nil {
		t.Fatal(err)
	}
	tape := NewTape(TapeConfig{Threads: 2})
	defer tape.Close()
	ready := func(int) {}
	step := func() {
		tape.Reset()
		tape.Backward(loss(tape), ready)
	}
	for range 3 {
		step()
	}
	if raceDetector {
		t.Skip("with the race detector, sums allocate")
	}
	if n := testing.AllocsPerRun(5, step); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

// Parts of values lie beside each other and begin on lines; with one thread, or few values, there is one.
func TestSpans(t *testing.T) {
	for _, n := range []int{1, 15, 16, 17, 100, 32000} {
		for parts := 1; parts <= 5; parts++ {
			at := 0
			for i := range parts {
				lo, hi := spanOf(n, i, parts)
				if lo != at || hi < lo || lo%lineValues != 0 && lo != n {
					t.Errorf("part %d of %d of %d values is %d to %d", i, parts, n, lo, hi)
				}
				at = hi
			}
			if at != n {
				t.Errorf("%d parts of %d values end at %d", parts, n, at)
			}
		}
	}
	for threads, want := range map[int][2]int{1: {1, 1}, 2: {1, 8}, 3: {1, 12}} {
		p := &pool{workers: make([]worker, threads)}
		if few, many := p.cutValues(valuesPart/4-1), p.cutValues(100*valuesPart); few != want[0] || many != want[1] {
			t.Errorf("%d threads have %d and %d parts, want %v", threads, few, many, want)
		}
	}
}
