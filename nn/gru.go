package nn

import (
	"github.com/ringo-ml/ringo/internal/simd"
)

// GRULayer is the parameters of a layer of gated recurrent units. The rows of all four are the
// reset gate's, the update gate's and the candidate's, hidden rows each: r, z, n, as in PyTorch
// (ONNX has z, r, h, and linear_before_reset = 1).
type GRULayer struct {
	WeightIH *Param // [3*hidden, in]
	WeightHH *Param // [3*hidden, hidden]
	BiasIH   *Param // [3*hidden]
	BiasHH   *Param // [3*hidden]; the candidate's is inside the reset
}

// GRU makes the layer name with values from init; PyTorch's default is FanIn(hidden).
func (ps *Params) GRU(name string, init Init, in, hidden int) GRULayer {
	return GRULayer(ps.recurrent(name, init, 3*hidden, in, hidden))
}

type gruOp struct {
	recurrentOp
	state []float32 // initial state, or nil

	// input is [steps*n, 3*hidden]: first the products with the input, then the gates; in backward,
	// gradients of the former.
	input []float32
	// hidden is the products with the previous state, of the same shape; in backward, their
	// gradients.
	hidden []float32
	carry  []float32 // [n, hidden]: gradient through a step's update gate

	weights [][3]simd.PackedB // WeightHH, packed for a step's products, by part
	job     passJob[gruOp]
}

// GRU runs a layer of gated recurrent units over n sequences: x is [steps*n, in], the first step of
// all sequences, then the second of all; the result is [steps*n, hidden] in the same order. With i
// the three thirds of x·WeightIHᵀ + BiasIH, and u the thirds of h·WeightHHᵀ + BiasHH for the h of
// the previous step,
//
//	r = sigmoid(i_r + u_r);  z = sigmoid(i_z + u_z);  n = tanh(i_n + r·u_n);  h = (1-z)·n + z·h
//
// (K. Cho and others 2014, in cuDNN's form). The first step starts from state, [n, hidden], which
// receives the last h; nil starts from zeros. No gradient flows into the state. Cost:
// 2·steps·n·3·hidden·(in+hidden) operations forward and twice as many backward.
func (t *Tape) GRU(x *Tensor, l GRULayer, state []float32, steps int) *Tensor {
	n, hidden := LSTMLayer(l).check("gru", 3, x, steps)
	Layer{W: l.WeightIH}.want(state == nil || len(state) == n*hidden, "gru", "a state of n*hidden values", len(state))
	o := record[gruOp](t)
	o.x, o.l, o.state, o.steps = x, LSTMLayer(l), state, steps
	o.begin(n, hidden, state)
	all := steps * n * hidden
	o.input, o.hidden = sized(o.input, 3*all), sized(o.hidden, 3*all)
	t.note(o)
	o.run(t, gruInput, 3*hidden)
	o.run(t, gruPackForward, hidden)
	for o.step = range steps {
		o.run(t, gruForward, hidden)
	}
	copy(state, o.h[all:])
	return &o.y
}

// run runs a pass with as many parts as threads, at multiples of a cache line.
func (o *gruOp) run(t *Tape, pass func(o *gruOp, w *worker, i, lo, hi int), span int) {
	for len(o.weights) < t.pool.threads() {
		o.weights = append(o.weights, [3]simd.PackedB{})
	}
	o.job.run(t, o, pass, t.pool.threads(), span, lineValues)
}

// gruInput computes columns of x WeightIHᵀ + BiasIH.
func gruInput(o *gruOp, w *worker, _, lo, hi int) {
	rows, in := o.x.Shape[0], o.x.Shape[1]
	w.k.GemmEpilogue(&w.gemm, false, true, rows, hi-lo, in, o.x.Data, in, o.l.WeightIH.Data[lo*in:], in, false,
		o.input[lo:], len(o.l.BiasIH.Data), simd.Epilogue{ColBias: o.l.BiasIH.Data[lo:hi]})
}

// gruPackForward packs the rows of WeightHH of the columns lo to hi-1 of each gate.
func gruPackForward(o *gruOp, w *worker, i, lo, hi int) {
	_, hidden := o.size()
	for g := range 3 {
		w.k.PackB(&o.weights[i][g], true, hidden, hi-lo, o.l.WeightHH.Data[(g*hidden+lo)*hidden:], hidden)
	}
}

// gates returns a row's three pieces, one for each gate, of columns lo to hi-1.
func gates(data []float32, row, hidden, lo, hi int) (r, z, n []float32) {
	at := data[row*3*hidden:][:3*hidden]
	return at[lo:hi], at[hidden+lo : hidden+hi], at[2*hidden+lo : 2*hidden+hi]
}

// gruForward computes columns of one step's output.
func gruForward(o *gruOp, w *worker, i, lo, hi int) {
	n, hidden := o.size()
	at := o.step * n
	for g := range 3 {
		from := g*hidden + lo
		w.k.GemmWith(&w.gemm, false, n, hi-lo, hidden, o.h[at*hidden:], hidden, &o.weights[i][g], false, o.hidden[at*3*hidden+from:], 3*hidden,
			simd.Epilogue{ColBias: o.l.BiasHH.Data[from : from+hi-lo]})
	}
	for row := at; row < at+n; row++ {
		r, z, c := gates(o.input, row, hidden, lo, hi)
		ur, uz, uc := gates(o.hidden, row, hidden, lo, hi)
		before, after := o.h[row*hidden+lo:row*hidden+hi], o.h[(row+n)*hidden+lo:(row+n)*hidden+hi]
		w.k.Add(r, ur)
		w.k.Sigmoid(r, r)
		w.k.Add(z, uz)
		w.k.Sigmoid(z, z)
		for j, v := range uc {
			c[j] += float32(r[j] * v)
		}
		w.k.Tanh(c, c)
		for j, v := range c {
			after[j] = float32((1-z[j])*v) + float32(z[j]*before[j])
		}
	}
}

func (o *gruOp) backward(t *Tape) {
	n, hidden := o.size()
	o.carry = sized(o.carry, n*hidden)
	clear(o.carry)
	o.run(t, gruPackBackward, hidden)
	for o.step = o.steps - 1; o.step >= 0; o.step-- {
		o.run(t, gruBackward, hidden)
	}
	if !o.skips() {
		t.watch.turn(t, "weights")
		o.run(t, gruWeights, 3*hidden)
	}
	if o.x.needs {
		t.watch.turn(t, "input")
		o.dx = t.into(o.x)
		o.run(t, gruGradInput, o.x.Shape[1])
		t.merge(o.x, o.dx)
	}
}

// gruPackBackward packs columns of WeightHH.
func gruPackBackward(o *gruOp, w *worker, i, lo, hi int) {
	_, hidden := o.size()
	w.k.PackB(&o.weights[i][0], false, 3*hidden, hi-lo, o.l.WeightHH.Data[lo:], hidden)
}

// gruBackward computes, for columns of one step, the gradients of the gates' sums from the gradient
// of the step's output and of the next step.
func gruBackward(o *gruOp, w *worker, i, lo, hi int) {
	n, hidden := o.size()
	at := o.step * n
	dh := o.y.grad[at*hidden:]
	if o.step+1 < o.steps {
		w.k.GemmWith(&w.gemm, false, n, hi-lo, 3*hidden, o.hidden[(at+n)*3*hidden:], 3*hidden, &o.weights[i][0], true, dh[lo:], hidden, simd.Epilogue{})
	}
	for row := range n {
		carry, d := o.carry[row*hidden+lo:row*hidden+hi], dh[row*hidden+lo:row*hidden+hi]
		w.k.Add(d, carry)
		r, z, c := gates(o.input, at+row, hidden, lo, hi)
		ur, uz, uc := gates(o.hidden, at+row, hidden, lo, hi)
		before := o.h[(at+row)*hidden+lo:]
		for j, g := range d {
			carry[j] = g * z[j]
			dc := float32(g*(1-z[j])) * (1 - float32(c[j]*c[j]))
			dz := float32(g*(before[j]-c[j])) * sigmoidSlope(z[j])
			dr := float32(dc*uc[j]) * sigmoidSlope(r[j])
			uc[j] = dc * r[j]
			ur[j], r[j], uz[j], z[j], c[j] = dr, dr, dz, dz, dc
		}
	}
}

// sigmoidSlope is the derivative of a sigmoid with value y.
func sigmoidSlope(y float32) float32 { return (1 - y) * y }

// gruWeights computes rows of the weights' gradients and values of the biases'.
func gruWeights(o *gruOp, w *worker, _, lo, hi int) {
	rows, in := o.x.Shape[0], o.x.Shape[1]
	_, hidden := o.size()
	ih, hh := o.l.WeightIH, o.l.WeightHH
	w.k.Gemm(&w.gemm, true, false, hi-lo, in, rows, o.input[lo:], 3*hidden, o.x.Data, in, ih.touched, ih.Grad[lo*in:], in)
	w.k.Gemm(&w.gemm, true, false, hi-lo, hidden, rows, o.hidden[lo:], 3*hidden, o.h, hidden, hh.touched, hh.Grad[lo*hidden:], hidden)
	addRows(w, o.l.BiasIH, o.input, 3*hidden, lo, hi)
	addRows(w, o.l.BiasHH, o.hidden, 3*hidden, lo, hi)
}

// addRows adds columns of rows of cols values to the gradient of a bias.
func addRows(w *worker, p *Param, data []float32, cols, lo, hi int) {
	if !p.touched {
		clear(p.Grad[lo:hi])
	}
	w.k.SumRows(p.Grad[lo:hi], data[lo:], cols, len(data)/cols)
}

// gruGradInput computes columns of dx.
func gruGradInput(o *gruOp, w *worker, _, lo, hi int) {
	rows, in := o.x.Shape[0], o.x.Shape[1]
	_, hidden := o.size()
	w.k.Gemm(&w.gemm, false, false, rows, hi-lo, 3*hidden, o.input, 3*hidden, o.l.WeightIH.Data[lo:], in, false, o.dx[lo:], in)
}
