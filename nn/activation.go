package nn

import "github.com/ringo-ml/ringo/internal/simd"

// Activation is a function of every value, applied to a layer's result.
type Activation uint8

// The activations. Layers apply ReLU in the same pass as their bias. Dense also applies the other
// activations, in a second pass; Tanh and Sigmoid need no memory for it.
const (
	Identity Activation = iota
	ReLU                // max(x, 0)
	Tanh
	Sigmoid // 1/(1+exp(-x))
	GELU    // x·(1+tanh(sqrt(2/π)·(x + 0.044715 x³)))/2, as in GPT-2
)

// apply computes dst = a(x).
func (a Activation) apply(k *simd.Kernels, dst, x []float32) {
	switch a {
	case ReLU:
		k.ReLU(dst, x)
	case Tanh:
		k.Tanh(dst, x)
	case Sigmoid:
		k.Sigmoid(dst, x)
	case GELU:
		k.GELU(dst, x)
	}
}

// grad multiplies dy by a's derivative. y is the activation's output, or for GELU its input.
func (a Activation) grad(k *simd.Kernels, dy, y []float32) {
	switch a {
	case ReLU:
		k.ReLUGrad(dy, dy, y)
	case Tanh:
		k.TanhGrad(dy, dy, y)
	case Sigmoid:
		k.SigmoidGrad(dy, dy, y)
	case GELU:
		k.GELUGrad(dy, dy, y)
	}
}

type activationOp struct {
	unary
	act Activation
	job passJob[activationOp]
}

// Activate applies act to every value; for Identity it returns x. Backward stores x's gradient in
// the memory of the result's gradient.
func (t *Tape) Activate(x *Tensor, act Activation) *Tensor {
	require(act <= GELU, "activation", "one of the constants", int(act))
	if act == Identity {
		return x
	}
	o := record[activationOp](t)
	o.x, o.act = x, act
	y := t.begin(o, x.Shape...)
	o.job.run(t, o, func(o *activationOp, w *worker, _, lo, hi int) {
		o.act.apply(w.k, o.y.Data[lo:hi], o.x.Data[lo:hi])
	}, t.pool.cutValues(len(y.Data)), len(y.Data), lineValues)
	return y
}

// ReLU is max(x, 0), elementwise.
func (t *Tape) ReLU(x *Tensor) *Tensor { return t.Activate(x, ReLU) }

// Tanh is the hyperbolic tangent, elementwise.
func (t *Tape) Tanh(x *Tensor) *Tensor { return t.Activate(x, Tanh) }

// Sigmoid is 1/(1+exp(-x)), elementwise.
func (t *Tape) Sigmoid(x *Tensor) *Tensor { return t.Activate(x, Sigmoid) }

// GELU is x·Φ(x) in the approximation of GPT-2, elementwise.
func (t *Tape) GELU(x *Tensor) *Tensor { return t.Activate(x, GELU) }

// valuesPart is the number of values that one part of an elementwise operation has, unless the
// number of threads determines it.
const valuesPart = 32 << 10

func (o *activationOp) backward(t *Tape) {
	o.job.run(t, o, func(o *activationOp, w *worker, _, lo, hi int) {
		of := &o.y
		if o.act == GELU {
			of = o.x
		}
		o.act.grad(w.k, o.y.grad[lo:hi], of.Data[lo:hi])
	}, t.pool.cutValues(len(o.y.Data)), len(o.y.Data), lineValues)
	t.handOver(o.x, &o.y)
}
