package nn

import "fmt"

// recurrentOp is the common part of recurrent layers. A GRULayer has the fields of an LSTMLayer.
type recurrentOp struct {
	output
	x     *Tensor
	l     LSTMLayer
	steps int
	step  int // step in progress

	h  []float32 // outputs of steps -1 to steps-1, [(steps+1)*n, hidden]; contains y.Data
	dx []float32
}

// recurrent makes the parameters of a recurrent layer, with rows for all gates.
func (ps *Params) recurrent(name string, init Init, rows, in, hidden int) LSTMLayer {
	return LSTMLayer{
		WeightIH: ps.New(name+".weight_ih", init, rows, in),
		WeightHH: ps.New(name+".weight_hh", init, rows, hidden),
		BiasIH:   ps.New(name+".bias_ih", init, rows),
		BiasHH:   ps.New(name+".bias_hh", init, rows),
	}
}

// check panics unless the operands of a layer of 3 or 4 gates fit, and returns the number of
// sequences and the width.
func (l LSTMLayer) check(op string, gates int, x *Tensor, steps int) (n, hidden int) {
	w := Layer{W: l.WeightIH}
	needs := [...][3]string{
		3: {"weights [3*hidden, in]", "recurrent weights [3*hidden, hidden]", "two biases [3*hidden]"},
		4: {"weights [4*hidden, in]", "recurrent weights [4*hidden, hidden]", "two biases [4*hidden]"},
	}[gates]
	w.want(len(l.WeightIH.Shape) == 2 && l.WeightIH.Shape[0]%gates == 0, op, needs[0], l.WeightIH.Shape...)
	rows, in := l.WeightIH.Shape[0], l.WeightIH.Shape[1]
	hidden = rows / gates
	w.want(len(l.WeightHH.Shape) == 2 && len(l.WeightHH.Data) == rows*hidden && l.WeightHH.Shape[1] == hidden, op, needs[1], l.WeightHH.Shape...)
	w.want(len(l.BiasIH.Data) == rows && len(l.BiasHH.Data) == rows, op, needs[2], len(l.BiasIH.Data), len(l.BiasHH.Data))
	if len(x.Shape) != 2 || steps < 1 || x.Shape[0] == 0 || x.Shape[0]%steps != 0 || x.Shape[1] != in {
		panic(&ShapeError{Op: op + " " + l.WeightIH.Name, Required: fmt.Sprintf("an input [%d*n, %d], n > 0", steps, in), Got: x.Shape})
	}
	return x.Shape[0] / steps, hidden
}

// begin sizes the outputs and takes the initial state; nil means zeros.
func (o *recurrentOp) begin(n, hidden int, state []float32) {
	o.h = sized(o.h, (o.steps+1)*n*hidden)
	if state == nil {
		clear(o.h[:n*hidden])
	}
	copy(o.h, state)
	o.y.Shape, o.y.Data = append(o.y.Shape[:0], o.steps*n, hidden), o.h[n*hidden:]
}

func (o *recurrentOp) operands() ([4]*Tensor, [4]*Param) {
	return [4]*Tensor{o.x}, [4]*Param{o.l.WeightIH, o.l.WeightHH, o.l.BiasIH, o.l.BiasHH}
}

func (o *recurrentOp) size() (n, hidden int) { return o.y.Shape[0] / o.steps, o.y.Shape[1] }

func (o *recurrentOp) skips() bool {
	return allFrozen(o.l.WeightIH, o.l.WeightHH, o.l.BiasIH, o.l.BiasHH)
}
