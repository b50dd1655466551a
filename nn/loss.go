package nn

import (
	"fmt"
	"math"
)

type lossOp struct {
	x      *Tensor
	labels []int32
	y      Tensor
	probs  []float32
}

func (o *lossOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }
func (o *lossOp) result() *Tensor                   { return &o.y }

// SoftmaxCrossEntropy is the mean over samples of -log softmax(logits)[label]:
// logits are [n, classes], labels one class per sample, kept until Backward.
// The result has one value, summed in float64. correct is the number of
// samples whose largest logit is the label's (the first of equal ones). It
// panics when a label is not a class.
func (t *Tape) SoftmaxCrossEntropy(logits *Tensor, labels []int32) (loss *Tensor, correct int) {
	const name = "softmax cross-entropy"
	want(len(logits.Shape) == 2 && len(logits.Data) > 0, name, "logits [n, classes]", logits.Shape...)
	n, classes := logits.Shape[0], logits.Shape[1]
	want(len(labels) == n, name, "one label per sample", len(labels), n)
	o := record[lossOp](t)
	o.x, o.labels = logits, labels
	y := t.begin(o, 1)
	o.probs = sized(o.probs, n*classes)
	sum := 0.0
	for i, label := range labels {
		if label < 0 || int(label) >= classes {
			panic(fmt.Errorf("nn: %s: sample %d has label %d, but there are %d classes", name, i, label, classes))
		}
		row := logits.Data[i*classes : (i+1)*classes]
		loss, best := softmax(o.probs[i*classes:(i+1)*classes], row, int(label))
		sum += loss
		if best == int(label) {
			correct++
		}
	}
	y.Data[0] = float32(sum / float64(n))
	return y, correct
}

// softmax writes the probabilities of x to p and returns -log p[label] and the
// index of the largest. The largest is subtracted first, so that no
// exponential overflows; a NaN among x makes the loss NaN.
func softmax(p, x []float32, label int) (loss float64, best int) {
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	sum := 0.0
	for i, v := range x {
		e := math.Exp(float64(v) - float64(x[best]))
		p[i] = float32(e)
		sum += e
	}
	scale := float32(1 / sum)
	for i := range p {
		p[i] *= scale
	}
	return math.Log(sum) - (float64(x[label]) - float64(x[best])), best
}

// backward is (softmax - onehot) / n, times the gradient of the loss.
func (o *lossOp) backward(t *Tape) {
	if !o.x.needs {
		return
	}
	n, classes := o.x.Shape[0], o.x.Shape[1]
	dx := t.into(o.x)
	copy(dx, o.probs)
	for i, label := range o.labels {
		dx[i*classes+int(label)]--
	}
	t.k.Scale(dx, o.y.grad[0]/float32(n))
	t.merge(o.x, dx)
}
