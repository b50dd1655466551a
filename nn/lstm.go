package nn

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
)

// LSTMLayer is the parameters of a layer of long short-term memory. The rows of all four are the
// input gate's, the forget gate's, the candidate's and the output gate's, hidden rows each: i, f,
// g, o, as in PyTorch (ONNX has i, o, f, c).
type LSTMLayer struct {
	WeightIH *Param // [4*hidden, in]
	WeightHH *Param // [4*hidden, hidden]
	BiasIH   *Param // [4*hidden]
	BiasHH   *Param // [4*hidden]; a second bias, redundant, as in PyTorch
}

// LSTM makes the layer name with values from init; PyTorch's default is FanIn(hidden).
func (ps *Params) LSTM(name string, init Init, in, hidden int) LSTMLayer {
	return LSTMLayer{
		WeightIH: ps.New(name+".weight_ih", init, 4*hidden, in),
		WeightHH: ps.New(name+".weight_hh", init, 4*hidden, hidden),
		BiasIH:   ps.New(name+".bias_ih", init, 4*hidden),
		BiasHH:   ps.New(name+".bias_hh", init, 4*hidden),
	}
}

// LSTMState is an LSTM layer's state between sequences that continue each other: [n, hidden] each.
type LSTMState struct{ H, C []float32 }

type lstmOp struct {
	x     *Tensor
	l     LSTMLayer
	state *LSTMState // initial state, or nil
	steps int
	y     Tensor

	// h and c are outputs and cells of steps -1 to steps-1, [(steps+1)*n, hidden], beginning with
	// the initial state. h contains y.Data.
	h, c []float32
	// gates is [steps*n, 4*hidden]: first the sums, then the gates, and in
	// backward the gradients of the sums.
	gates []float32
	bias  []float32 // [4*hidden]: sum of both biases; in backward their gradient
	dc    []float32 // [n, hidden]
	dx    []float32

	// weights is WeightHH packed for the products of one step: ranges of its rows forward, of its
	// columns backward.
	weights [][4]simd.PackedB
	// recurrent is the parameter in weights.
	recurrent *Param

	pass  lstmPass
	parts int
	span  int // columns or rows divided over the parts
	unit  int
	step  int

	packed *simd.PackedB // WeightIH, for the product of all steps
}

// lstmPass computes the part of pass i, values lo to hi-1.
type lstmPass func(o *lstmOp, w *worker, i, lo, hi int)

func (o *lstmOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x}, [4]*Param{o.l.WeightIH, o.l.WeightHH, o.l.BiasIH, o.l.BiasHH}
}
func (o *lstmOp) result() *Tensor { return &o.y }

// LSTM runs a layer of long short-term memory over n sequences: x is [steps*n, in], the first step
// of all sequences, then the second of all; the result is [steps*n, hidden] in the same order. With
// i, f, g and o the four quarters of x·WeightIHᵀ + h·WeightHHᵀ + biases, and h and c of the
// previous step,
//
//	c = sigmoid(f)·c + sigmoid(i)·tanh(g);  h = sigmoid(o)·tanh(c)
//
// (Hochreiter and Schmidhuber 1997, with forget gates). The first step starts from state, which
// receives the last h and c; nil starts from zeros. No gradient flows into the state:
// back-propagation is truncated. A single product multiplies the inputs of all steps, and another
// computes the weights' gradients. Cost: 2·steps·n·4·hidden·(in+hidden) operations forward and
// twice as many backward.
func (t *Tape) LSTM(x *Tensor, l LSTMLayer, state *LSTMState, steps int) *Tensor {
	n, hidden := l.check(x, state, steps)
	o := record[lstmOp](t)
	o.x, o.l, o.state, o.steps = x, l, state, steps
	o.start(n, hidden, state)
	t.note(o)
	t.k.AddTo(o.bias, l.BiasIH.Data, l.BiasHH.Data)
	o.packed = t.matrixOf(l.WeightIH, true, l.WeightIH.Shape[1], 4*hidden, l.WeightIH.Shape[1])
	o.share(t, lstmInput, steps*n, 1, productRows)
	if t.packedWeights == nil || o.recurrent != l.WeightHH {
		o.recurrent = l.WeightHH
		o.run(t, lstmPackForward, hidden)
	}
	for o.step = range steps {
		o.run(t, lstmForward, hidden)
	}
	if state != nil {
		copy(state.H, o.h[steps*n*hidden:])
		copy(state.C, o.c[steps*n*hidden:])
	}
	return &o.y
}

// check panics unless the operands fit, and returns the number of sequences and the width.
func (l LSTMLayer) check(x *Tensor, state *LSTMState, steps int) (n, hidden int) {
	w := Layer{W: l.WeightIH}
	w.want(len(l.WeightIH.Shape) == 2 && l.WeightIH.Shape[0]%4 == 0, "lstm", "weights [4*hidden, in]", l.WeightIH.Shape...)
	rows, in := l.WeightIH.Shape[0], l.WeightIH.Shape[1]
	hidden = rows / 4
	w.want(len(l.WeightHH.Data) == rows*hidden && len(l.WeightHH.Shape) == 2 && l.WeightHH.Shape[1] == hidden,
		"lstm", "recurrent weights [4*hidden, hidden]", l.WeightHH.Shape...)
	w.want(len(l.BiasIH.Data) == rows && len(l.BiasHH.Data) == rows, "lstm", "two biases [4*hidden]", len(l.BiasIH.Data), len(l.BiasHH.Data))
	if len(x.Shape) != 2 || steps < 1 || x.Shape[0] == 0 || x.Shape[0]%steps != 0 || x.Shape[1] != in {
		panic(&ShapeError{Op: "lstm " + l.WeightIH.Name, Required: fmt.Sprintf("an input [%d*n, %d], n > 0", steps, in), Got: x.Shape})
	}
	n = x.Shape[0] / steps
	if state != nil {
		w.want(len(state.H) == n*hidden && len(state.C) == n*hidden, "lstm", "a state of n*hidden values", len(state.H), len(state.C))
	}
	return n, hidden
}

// start sizes the memory and takes the state.
func (o *lstmOp) start(n, hidden int, state *LSTMState) {
	first, all := n*hidden, o.steps*n*hidden
	o.h, o.c = sized(o.h, first+all), sized(o.c, first+all)
	if state != nil {
		copy(o.h, state.H)
		copy(o.c, state.C)
	} else {
		clear(o.h[:first])
		clear(o.c[:first])
	}
	o.gates, o.bias = sized(o.gates, 4*all), sized(o.bias, 4*hidden)
	o.y.Shape = append(o.y.Shape[:0], o.steps*n, hidden)
	o.y.Data = o.h[first:]
}

func (o *lstmOp) size() (n, hidden int) { return o.y.Shape[0] / o.steps, o.y.Shape[1] }

// share cuts span into parts at multiples of unit, with at least least units each. Every value is
// the same sum in the same order for any cut.
func (o *lstmOp) share(t *Tape, pass lstmPass, span, unit, least int) {
	o.pass, o.span, o.unit = pass, span, unit
	o.parts = t.pool.cut((span+unit-1)/unit, least)
	t.pool.run(o, o.parts)
}

// run is share with one part per thread, each with separately packed weights: the same columns stay
// on one thread from step to step.
func (o *lstmOp) run(t *Tape, pass lstmPass, span int) {
	o.pass, o.span, o.unit = pass, span, lineValues
	o.parts = min(t.pool.threads(), (span+lineValues-1)/lineValues)
	for len(o.weights) < o.parts {
		o.weights = append(o.weights, [4]simd.PackedB{})
	}
	t.pool.run(o, o.parts)
}

func (o *lstmOp) part(w *worker, i int) {
	units := (o.span + o.unit - 1) / o.unit
	lo, hi := units*i/o.parts*o.unit, units*(i+1)/o.parts*o.unit
	o.pass(o, w, i, lo, min(hi, o.span))
}

// lstmInput computes rows of x WeightIHᵀ + biases.
func lstmInput(o *lstmOp, w *worker, _, lo, hi int) {
	in, width := o.x.Shape[1], len(o.bias)
	w.k.GemmWith(&w.gemm, false, hi-lo, width, in, o.x.Data[lo*in:], in, o.packed, false, o.gates[lo*width:], width, simd.Epilogue{ColBias: o.bias})
}

// ranges returns the beginnings of the four gates' columns lo to hi-1 in a row of gates, as a
// single piece for all columns.
func (o *lstmOp) ranges(lo, hi int) (starts [4]int, pieces, columns int) {
	hidden := o.y.Shape[1]
	starts = [4]int{lo, hidden + lo, 2*hidden + lo, 3*hidden + lo}
	if hi-lo == hidden {
		return starts, 1, 4 * hidden
	}
	return starts, 4, hi - lo
}

// lstmPackForward packs the rows of WeightHH of the columns lo to hi-1 of each gate.
func lstmPackForward(o *lstmOp, w *worker, i, lo, hi int) {
	hidden := o.y.Shape[1]
	starts, pieces, columns := o.ranges(lo, hi)
	for g, at := range starts[:pieces] {
		w.k.PackB(&o.weights[i][g], true, hidden, columns, o.l.WeightHH.Data[at*hidden:], hidden)
	}
}

// lstmForward computes columns of one step's output.
func lstmForward(o *lstmOp, w *worker, i, lo, hi int) {
	n, hidden := o.size()
	at := o.step * n
	gates := o.gates[at*4*hidden:]
	starts, pieces, columns := o.ranges(lo, hi)
	for g, start := range starts[:pieces] {
		w.k.GemmWith(&w.gemm, false, n, columns, hidden, o.h[at*hidden:], hidden, &o.weights[i][g], true, gates[start:], 4*hidden, simd.Epilogue{})
	}
	for r := range n {
		before, after := (at+r)*hidden, (at+n+r)*hidden
		w.k.LSTM(o.h[after+lo:after+hi], o.c[after+lo:after+hi], gates[r*4*hidden+lo:], hidden, o.c[before+lo:before+hi])
	}
}

func (o *lstmOp) backward(t *Tape) {
	n, hidden := o.size()
	o.dc = sized(o.dc, n*hidden)
	clear(o.dc)
	o.run(t, lstmPackBackward, hidden)
	for o.step = o.steps - 1; o.step >= 0; o.step-- {
		o.run(t, lstmBackward, hidden)
	}
	if !o.skips() {
		t.watch.turn(t, "weights")
		o.share(t, lstmWeights, 4*hidden, lineValues, math.MaxInt) // each part reads all of x and h
		addPart(t, o.l.BiasIH, o.bias, 0)
		addPart(t, o.l.BiasHH, o.bias, 0)
	}
	if o.x.needs {
		t.watch.turn(t, "input")
		o.dx = t.into(o.x)
		o.packed = &t.packed.weights.packed
		t.pack(o.packed, false, 4*hidden, o.x.Shape[1], o.l.WeightIH.Data, o.x.Shape[1])
		o.share(t, lstmGradInput, o.x.Shape[0], 1, productRows)
		t.merge(o.x, o.dx)
	}
}

func (o *lstmOp) skips() bool {
	return allFrozen(o.l.WeightIH, o.l.WeightHH, o.l.BiasIH, o.l.BiasHH)
}

// lstmPackBackward packs columns of WeightHH.
func lstmPackBackward(o *lstmOp, w *worker, i, lo, hi int) {
	hidden := o.y.Shape[1]
	w.k.PackB(&o.weights[i][0], false, 4*hidden, hi-lo, o.l.WeightHH.Data[lo:], hidden)
}

// lstmBackward adds the next step's gradient to columns of one step's output gradient, and
// continues to the columns of the sums.
func lstmBackward(o *lstmOp, w *worker, i, lo, hi int) {
	n, hidden := o.size()
	at := o.step * n
	dh := o.y.grad[at*hidden:]
	if o.step+1 < o.steps {
		w.k.GemmWith(&w.gemm, false, n, hi-lo, 4*hidden, o.gates[(at+n)*4*hidden:], 4*hidden, &o.weights[i][0], true, dh[lo:], hidden, simd.Epilogue{})
	}
	for r := range n {
		row, before, after := r*hidden, (at+r)*hidden, (at+n+r)*hidden
		w.k.LSTMGrad(o.gates[(at+r)*4*hidden+lo:], hidden, o.dc[row+lo:row+hi], dh[row+lo:row+hi], o.c[after+lo:after+hi], o.c[before+lo:before+hi])
	}
}

// lstmWeights computes rows of the weights' gradients and values of the biases'.
func lstmWeights(o *lstmOp, w *worker, _, lo, hi int) {
	hidden, rows, in := o.y.Shape[1], o.x.Shape[0], o.x.Shape[1]
	sums := o.gates[lo:]
	ih, hh := o.l.WeightIH, o.l.WeightHH
	w.k.Gemm(&w.gemm, true, false, hi-lo, in, rows, sums, 4*hidden, o.x.Data, in, ih.touched, ih.Grad[lo*in:], in)
	w.k.Gemm(&w.gemm, true, false, hi-lo, hidden, rows, sums, 4*hidden, o.h, hidden, hh.touched, hh.Grad[lo*hidden:], hidden)
	db := o.bias[lo:hi]
	clear(db)
	for r := range rows {
		w.k.Add(db, o.gates[r*4*hidden+lo:r*4*hidden+hi])
	}
}

// lstmGradInput computes rows of dx.
func lstmGradInput(o *lstmOp, w *worker, _, lo, hi int) {
	hidden, in := o.y.Shape[1], o.x.Shape[1]
	w.k.GemmWith(&w.gemm, false, hi-lo, in, 4*hidden, o.gates[lo*4*hidden:], 4*hidden, o.packed, false, o.dx[lo*in:hi*in], in, simd.Epilogue{})
}
