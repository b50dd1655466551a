package nn

import (
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
	return ps.recurrent(name, init, 4*hidden, in, hidden)
}

// LSTMState is an LSTM layer's state between sequences that continue each other: [n, hidden] each.
type LSTMState struct{ H, C []float32 }

type lstmOp struct {
	recurrentOp
	state *LSTMState // initial state, or nil

	c []float32 // cells, as h
	// gates is [steps*n, 4*hidden]: first the gates' sums, then their activations; in backward,
	// gradients of the sums.
	gates []float32
	bias  []float32 // [4*hidden]: sum of both biases; in backward their gradient
	dc    []float32 // [n, hidden]

	// weights is WeightHH packed for the products of one step: ranges of its rows forward, of its
	// columns backward.
	weights [][4]simd.PackedB
	// recurrent is the parameter in weights.
	recurrent *Param

	job passJob[lstmOp] // over columns or rows

	packed *simd.PackedB // WeightIH, for the product of all steps
}

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
	n, hidden := l.check("lstm", 4, x, steps)
	if state != nil {
		Layer{W: l.WeightIH}.want(len(state.H) == n*hidden && len(state.C) == n*hidden, "lstm", "a state of n*hidden values", len(state.H), len(state.C))
	}
	o := record[lstmOp](t)
	o.x, o.l, o.state, o.steps = x, l, state, steps
	o.start(n, hidden, state)
	t.note(o)
	t.k.AddTo(o.bias, l.BiasIH.Data, l.BiasHH.Data)
	o.packed = t.matrixOf(l.WeightIH, true, l.WeightIH.Shape[1], 4*hidden, l.WeightIH.Shape[1])
	o.job.share(t, o, lstmInput, steps*n, 1, productRows)
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

// start sizes the memory and takes the state.
func (o *lstmOp) start(n, hidden int, state *LSTMState) {
	first, all := n*hidden, o.steps*n*hidden
	if o.c = sized(o.c, first+all); state != nil {
		o.begin(n, hidden, state.H)
		copy(o.c, state.C)
	} else {
		o.begin(n, hidden, nil)
		clear(o.c[:first])
	}
	o.gates, o.bias = sized(o.gates, 4*all), sized(o.bias, 4*hidden)
}

// run runs a pass with one part per thread, each with separately packed weights: the same columns
// stay on one thread from step to step.
func (o *lstmOp) run(t *Tape, pass func(o *lstmOp, w *worker, i, lo, hi int), span int) {
	for len(o.weights) < t.pool.threads() {
		o.weights = append(o.weights, [4]simd.PackedB{})
	}
	o.job.run(t, o, pass, t.pool.threads(), span, lineValues)
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
		o.job.share(t, o, lstmWeights, 4*hidden, lineValues, math.MaxInt) // each part reads all of x and h
		addPart(t, o.l.BiasIH, o.bias, 0)
		addPart(t, o.l.BiasHH, o.bias, 0)
	}
	if o.x.needs {
		t.watch.turn(t, "input")
		o.dx = t.into(o.x)
		o.packed = &t.packed.weights.packed
		t.pack(o.packed, false, 4*hidden, o.x.Shape[1], o.l.WeightIH.Data, o.x.Shape[1])
		o.job.share(t, o, lstmGradInput, o.x.Shape[0], 1, productRows)
		t.merge(o.x, o.dx)
	}
}

// lstmPackBackward packs columns of WeightHH.
func lstmPackBackward(o *lstmOp, w *worker, i, lo, hi int) {
	hidden := o.y.Shape[1]
	w.k.PackB(&o.weights[i][0], false, 4*hidden, hi-lo, o.l.WeightHH.Data[lo:], hidden)
}

// lstmBackward computes, for columns of one step, the gradients of the gates' sums from the
// gradient of the step's output and of the next step.
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
