package nn

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

type lossOp struct {
	x      *Tensor
	labels []int32
	y      Tensor

	pass  func(o *lossOp, w *worker, lo, hi int)
	rows  []lossRow
	dx    []float32
	scale float32
}

// lossRow is the data of a row of logits that backward needs in addition to the logits.
type lossRow struct {
	most    float32 // the largest logit
	inverse float32 // 1/Σ exp(logit - most)
	loss    float64
	correct bool
}

func (o *lossOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }
func (o *lossOp) result() *Tensor                   { return &o.y }

// SoftmaxCrossEntropy is the mean over samples of -log softmax(logits)[label]: logits are [n,
// classes], labels one class per sample, which must not change before Backward ends. The result has
// one value, summed in float64 in the order of the samples. correct is the number of samples with
// the label's logit as the largest (the first among equals). A NaN among the logits makes the loss
// NaN. It panics if a label is not a class.
//
// It costs one exponential per logit forward and another backward: recomputing is faster than
// fetching the probabilities from memory, and needs no memory.
func (t *Tape) SoftmaxCrossEntropy(logits *Tensor, labels []int32) (loss *Tensor, correct int) {
	const name = "softmax cross-entropy"
	require(len(logits.Shape) == 2 && len(logits.Data) > 0, name, "logits [n, classes]", logits.Shape...)
	n, classes := logits.Shape[0], logits.Shape[1]
	require(len(labels) == n, name, "one label per sample", len(labels), n)
	for i, label := range labels {
		if label < 0 || int(label) >= classes {
			panic(fmt.Errorf("nn: %s: sample %d has label %d, but there are %d classes", name, i, label, classes))
		}
	}
	o := record[lossOp](t)
	o.x, o.labels = logits, labels
	y := t.begin(o, 1)
	o.rows = bytesview.Sized(o.rows, n)
	o.run(t, lossForward)
	sum := 0.0
	for _, r := range o.rows {
		sum += r.loss
		if r.correct {
			correct++
		}
	}
	y.Data[0] = float32(sum / float64(n))
	return y, correct
}

// lossPart is the minimum number of logits of a part, in whole rows.
const lossPart = 16 << 10

func (o *lossOp) span() int { return max(1, lossPart/o.x.Shape[1]) }

func (o *lossOp) run(t *Tape, pass func(o *lossOp, w *worker, lo, hi int)) {
	o.pass = pass
	t.pool.run(o, (len(o.rows)+o.span()-1)/o.span())
}

func (o *lossOp) part(w *worker, i int) {
	o.pass(o, w, i*o.span(), min((i+1)*o.span(), len(o.rows)))
}

func (o *lossOp) row(data []float32, i int) []float32 {
	classes := o.x.Shape[1]
	return data[i*classes : (i+1)*classes]
}

// lossForward subtracts the largest logit first, to avoid overflow.
func lossForward(o *lossOp, w *worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		x, label := o.row(o.x.Data, i), int(o.labels[i])
		most := w.k.Max(x)
		sum := w.k.ExpSum(x, most)
		o.rows[i] = lossRow{
			most:    most,
			inverse: float32(1 / sum),
			loss:    math.Log(sum) - (float64(x[label]) - float64(most)),
			correct: x[label] == most && (label == 0 || w.k.Max(x[:label]) < most),
		}
	}
}

// backward is (softmax - onehot) / n, times the gradient of the loss.
func (o *lossOp) backward(t *Tape) {
	if !o.x.needs {
		return
	}
	o.dx, o.scale = t.into(o.x), o.y.grad[0]/float32(len(o.rows))
	o.run(t, lossBackward)
	t.merge(o.x, o.dx)
}

func lossBackward(o *lossOp, w *worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		dx, r := o.row(o.dx, i), o.rows[i]
		w.k.ExpScale(dx, o.row(o.x.Data, i), r.most, r.inverse*o.scale)
		dx[o.labels[i]] -= o.scale
	}
}
