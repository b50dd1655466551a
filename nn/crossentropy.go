package nn

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// CrossEntropy configures Tape.CrossEntropy. The zero value is SoftmaxCrossEntropy.
type CrossEntropy struct {
	// Smoothing is the share of the target divided equally over all classes, at least 0 and below 1
	// (C. Szegedy and others 2016).
	Smoothing float64
	// Ignored lists labels of samples that do not count, such as padding. They need not be classes.
	Ignored []int32
	// Weights has, for each class, a factor of the loss of samples with that label; nil means 1.
	// The mean divides by the number of samples, not by the sum of their weights.
	Weights []float32
}

type crossEntropyOp struct {
	unary
	name    string // method, as in Node.Op
	labels  []int32
	ignored []int32
	weights []float32 // none: 1

	smoothing        float64
	rows             []lossRow
	correct, counted int
	dx               []float32
	scale            float32
	job              passJob[crossEntropyOp]
}

// lossRow has the data of a row of logits that backward needs in addition to the logits.
type lossRow struct {
	most    float32 // the largest logit
	inverse float32 // 1/Σ exp(logit - most)
	loss    float64
	correct bool
}

// SoftmaxCrossEntropy is the mean over samples of -log softmax(logits)[label]: logits are [n,
// classes], labels one class per sample, which must not change before Backward ends. The result has
// one value, summed in float64 in the order of the samples. correct is the number of samples with
// the label's logit as the largest (the first among equals). A NaN among the logits makes the loss
// NaN. It panics if a label is not a class.
//
// Cost: one exponential per logit forward, and another backward: to recompute the probabilities is
// faster than to read them from memory.
func (t *Tape) SoftmaxCrossEntropy(logits *Tensor, labels []int32) (loss *Tensor, correct int) {
	o := t.crossEntropy("softmaxcrossentropy", logits, labels, CrossEntropy{})
	return &o.y, o.correct
}

// CrossEntropy is SoftmaxCrossEntropy with smoothed targets, over the samples with labels that are
// not ignored: the mean of
//
//	-w[label]·((1-s)·log p[label] + s/classes·Σ log p[c]),  p = softmax of the logits
//
// with s = cfg.Smoothing and w = cfg.Weights.
// counted is the number of samples that count, and correct the number of these with the label's
// logit as the largest. If none counts, the loss and its gradient are 0. It panics if another label
// is not a class, or the smoothing is out of range.
func (t *Tape) CrossEntropy(logits *Tensor, labels []int32, cfg CrossEntropy) (loss *Tensor, correct, counted int) {
	o := t.crossEntropy("crossentropy", logits, labels, cfg)
	return &o.y, o.correct, o.counted
}

func (t *Tape) crossEntropy(op string, logits *Tensor, labels []int32, cfg CrossEntropy) *crossEntropyOp {
	const name = "cross-entropy"
	require(len(logits.Shape) == 2 && len(logits.Data) > 0, name, "logits [n, classes]", logits.Shape...)
	n, classes := logits.Shape[0], logits.Shape[1]
	require(len(labels) == n, name, "one label per sample", len(labels), n)
	if !(cfg.Smoothing >= 0 && cfg.Smoothing < 1) {
		panic(fmt.Errorf("nn: %s: smoothing %s: want at least 0 and less than 1", name, quantity.Exact(cfg.Smoothing)))
	}
	for i, label := range labels {
		if (label < 0 || int(label) >= classes) && !slices.Contains(cfg.Ignored, label) {
			panic(fmt.Errorf("nn: %s: sample %d has label %d, but there are %d classes, and it is not ignored", name, i, label, classes))
		}
	}
	require(cfg.Weights == nil || len(cfg.Weights) == classes, name, "one weight per class", len(cfg.Weights), classes)
	o := record[crossEntropyOp](t)
	o.x, o.name, o.labels, o.smoothing = logits, op, labels, cfg.Smoothing
	o.weights = append(o.weights[:0], cfg.Weights...)
	o.ignored = append(o.ignored[:0], cfg.Ignored...)
	y := t.begin(o, 1)
	o.rows = bytesview.Sized(o.rows, n)
	clear(o.rows)
	o.run(t, crossEntropyForward)
	sum := 0.0
	o.correct, o.counted = 0, 0
	for i, r := range o.rows {
		if o.counts(i) {
			o.counted++
			sum += r.loss
		}
		if r.correct {
			o.correct++
		}
	}
	y.Data[0] = float32(sum / float64(max(1, o.counted)))
	return o
}

func (o *crossEntropyOp) counts(i int) bool { return !slices.Contains(o.ignored, o.labels[i]) }

// lossPart is the minimum number of logits of a part of the work, in whole rows.
const lossPart = 16 << 10

func (o *crossEntropyOp) run(t *Tape, pass func(o *crossEntropyOp, w *worker, part, lo, hi int)) {
	o.job.each(t, o, pass, len(o.rows), max(1, lossPart/o.x.Shape[1]))
}

func (o *crossEntropyOp) row(data []float32, r int) []float32 {
	classes := o.x.Shape[1]
	return data[r*classes : (r+1)*classes]
}

func crossEntropyForward(o *crossEntropyOp, w *worker, _, lo, hi int) {
	for r := lo; r < hi; r++ {
		if o.counts(r) {
			o.measure(w, r, o.row(o.x.Data, r))
		}
	}
}

// measure subtracts the largest logit first, to avoid overflow.
func (o *crossEntropyOp) measure(w *worker, r int, x []float32) {
	label := int(o.labels[r])
	most := w.k.Max(x)
	sum := w.k.ExpSum(x, most)
	target := (1 - o.smoothing) * (float64(x[label]) - float64(most))
	if o.smoothing > 0 {
		target += o.smoothing * (w.k.Sum(x)/float64(len(x)) - float64(most))
	}
	o.rows[r] = lossRow{
		most:    most,
		inverse: float32(1 / sum),
		loss:    (math.Log(sum) - target) * float64(o.weight(r)),
		correct: x[label] == most && (label == 0 || w.k.Max(x[:label]) < most),
	}
}

// weight returns the factor of a sample's loss.
func (o *crossEntropyOp) weight(r int) float32 {
	if len(o.weights) == 0 {
		return 1
	}
	return o.weights[o.labels[r]]
}

func (o *crossEntropyOp) backward(t *Tape) {
	o.dx, o.scale = t.into(o.x), o.y.grad[0]/float32(max(1, o.counted))
	o.run(t, crossEntropyBackward)
	t.merge(o.x, o.dx)
}

// crossEntropyBackward is (softmax - target)/counted, times the weight.
func crossEntropyBackward(o *crossEntropyOp, w *worker, _, lo, hi int) {
	for r := lo; r < hi; r++ {
		dx := o.row(o.dx, r)
		if !o.counts(r) {
			clear(dx)
			continue
		}
		scale := o.scale * o.weight(r)
		w.k.ExpScale(dx, o.row(o.x.Data, r), o.rows[r].most, o.rows[r].inverse*scale)
		if o.smoothing > 0 {
			addScalar(dx, dx, -scale*float32(o.smoothing/float64(len(dx))))
		}
		dx[o.labels[r]] -= scale * float32(1-o.smoothing)
	}
}
