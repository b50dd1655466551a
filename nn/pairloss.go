package nn

import (
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// pairKind selects the loss that a pairLossOp computes.
type pairKind uint8

const (
	squaredError pairKind = iota
	huberLoss
	logisticLoss
)

func (k pairKind) String() string {
	return [...]string{"mean-squared error", "Huber loss", "binary cross-entropy"}[k]
}

// pairLossOp is the mean loss of all values of x and the target z.
type pairLossOp struct {
	kind  pairKind
	x, z  *Tensor
	delta float32
	output
	plain   Tensor // z for a target that is not a tensor: the caller's numbers, or scratch
	scratch []float32

	sums   []float64 // one per part
	dx, dz []float32
	scale  float32
	back   bool
}

func (o *pairLossOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x, o.z}, [4]*Param{} }

// MeanSquaredError is the mean of (x - target)² over all values: a tensor of one value. The target
// has x's shape, and gets a gradient as well if it needs one. Values are summed in float64, in an
// order that depends on the shape only.
func (t *Tape) MeanSquaredError(x, target *Tensor) *Tensor {
	return t.pairLoss(squaredError, x, target, 0)
}

// MeanSquaredErrorTo is MeanSquaredError with a slice as target, in the order of x's values, such
// as a batch's targets. The slice gets no gradient, and must not change before Backward ends.
func (t *Tape) MeanSquaredErrorTo(x *Tensor, target []float32) *Tensor {
	require(len(x.Data) == len(target), squaredError.String(), "as many targets as values", len(target))
	o := record[pairLossOp](t)
	o.plain.Shape, o.plain.Data = append(o.plain.Shape[:0], x.Shape...), target
	return t.measure(o, squaredError, x, &o.plain, 0)
}

// Huber is, like MeanSquaredError, the mean of d²/2 for a distance d = |x - target| of at most
// delta, and of delta·(d - delta/2) for a larger one (P. Huber 1964). It panics if delta <= 0.
func (t *Tape) Huber(x, target *Tensor, delta float32) *Tensor {
	if !(delta > 0) {
		panic(&ShapeError{Op: huberLoss.String(), Required: "a positive delta", Got: []int{int(delta)}})
	}
	return t.pairLoss(huberLoss, x, target, delta)
}

// BinaryCrossEntropy is, like MeanSquaredError, the mean of -z·log p - (1-z)·log(1-p), with p =
// 1/(1+exp(-x)) and the target z, from 0 to 1. It is computed from the logits x as max(x, 0) - x·z
// + log(1 + exp(-|x|)), to avoid overflow.
func (t *Tape) BinaryCrossEntropy(logits, target *Tensor) *Tensor {
	return t.pairLoss(logisticLoss, logits, target, 0)
}

// BinaryCrossEntropyTo is BinaryCrossEntropy with labels of 0 and 1, in the order of the logits;
// they are copied.
func (t *Tape) BinaryCrossEntropyTo(logits *Tensor, labels []int32) *Tensor {
	require(len(logits.Data) == len(labels), logisticLoss.String(), "as many labels as logits", len(labels))
	o := record[pairLossOp](t)
	o.scratch = sized(o.scratch, len(labels))
	o.plain.Shape, o.plain.Data = append(o.plain.Shape[:0], logits.Shape...), o.scratch
	for i, l := range labels {
		o.scratch[i] = float32(l)
	}
	return t.measure(o, logisticLoss, logits, &o.plain, 0)
}

func (t *Tape) pairLoss(kind pairKind, x, z *Tensor, delta float32) *Tensor {
	requireOf(slices.Equal(x.Shape, z.Shape), kind.String(), "a target of shape", x.Shape, z.Shape...)
	return t.measure(record[pairLossOp](t), kind, x, z, delta)
}

// measure sets the fields of o for a loss and computes the loss.
func (t *Tape) measure(o *pairLossOp, kind pairKind, x, z *Tensor, delta float32) *Tensor {
	require(len(x.Data) > 0, kind.String(), "one value at least", x.Shape...)
	o.kind, o.x, o.z, o.delta, o.back = kind, x, z, delta, false
	y := t.begin(o, 1)
	parts := (len(x.Data) + pairPart - 1) / pairPart
	o.sums = bytesview.Sized(o.sums, parts)
	t.pool.run(o, parts)
	sum := 0.0
	if !t.pool.dry {
		for _, s := range o.sums {
			sum += s
		}
	}
	y.Data[0] = float32(sum / float64(len(x.Data)))
	return y
}

// pairPart is the number of values in a part of a pairLossOp.
const pairPart = 8 << 10

func (o *pairLossOp) part(w *worker, i int) {
	lo, hi := i*pairPart, min((i+1)*pairPart, len(o.x.Data))
	if x, z := o.x.Data[lo:hi], o.z.Data[lo:hi]; o.back {
		o.slopes(w, x, z, o.dx[lo:hi])
	} else {
		o.sums[i] = o.sum(w, x, z)
	}
}

// sum is the sum of the losses.
func (o *pairLossOp) sum(w *worker, x, z []float32) (sum float64) {
	switch o.kind {
	case squaredError:
		d := w.floats(0, len(x))
		copy(d, x)
		w.k.Subtract(d, z)
		return w.k.SumSquares(d)
	case huberLoss:
		for i, v := range x {
			d, delta := math.Abs(float64(v)-float64(z[i])), float64(o.delta)
			if d <= delta {
				sum += d * d / 2
			} else {
				sum += delta * (d - delta/2)
			}
		}
	case logisticLoss:
		e := w.floats(0, len(x))
		for i, v := range x {
			e[i] = -max(v, -v)
		}
		w.k.Exp(e, e)
		for i, v := range x {
			sum += float64(max(v, 0)) - float64(v)*float64(z[i]) + math.Log1p(float64(e[i]))
		}
	}
	return sum
}

// slopes writes the gradient of x, and of the target if needed.
func (o *pairLossOp) slopes(w *worker, x, z, dx []float32) {
	switch o.kind {
	case squaredError:
		copy(dx, x)
		w.k.Subtract(dx, z)
		w.k.Scale(dx, 2*o.scale)
	case huberLoss:
		for i, v := range x {
			dx[i] = min(max(v-z[i], -o.delta), o.delta)
		}
		w.k.Scale(dx, o.scale)
	case logisticLoss:
		w.k.Sigmoid(dx, x)
		w.k.Subtract(dx, z)
		w.k.Scale(dx, o.scale)
	}
}

func (o *pairLossOp) backward(t *Tape) {
	o.back, o.scale = true, o.y.grad[0]/float32(len(o.x.Data))
	o.dx = t.grads.take(len(o.x.Data))
	if o.x.needs || o.kind != logisticLoss {
		t.pool.run(o, len(o.sums))
	}
	if o.z.needs {
		o.targetGrad(t)
	}
	if o.x.needs {
		t.contribute(o.x, o.dx)
		o.dx = nil
		return
	}
	t.grads.give(&o.dx)
}

// targetGrad computes the target's gradient from x's; of BinaryCrossEntropy it is minus x.
func (o *pairLossOp) targetGrad(t *Tape) {
	o.dz = t.into(o.z)
	if o.kind == logisticLoss {
		copy(o.dz, o.x.Data)
		t.k.Scale(o.dz, -o.scale)
	} else {
		t.elementwise(negate, o.dz, o.dx, o.dx)
	}
	t.merge(o.z, o.dz)
	o.dz = nil
}
