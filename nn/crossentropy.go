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
	// Weights has a factor of a sample's loss for each class of a label; nil means 1. The mean is
	// over the number of samples, not over their weights.
	Weights []float32
}

type crossEntropyOp struct {
	x       *Tensor
	labels  []int32
	ignored []int32
	weights []float32 // none: 1
	y       Tensor

	smoothing float64
	rows      []lossRow
	counted   int
	dx        []float32
	scale     float32
	back      bool
}

func (o *crossEntropyOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{o.x}, [4]*Param{} }
func (o *crossEntropyOp) result() *Tensor                   { return &o.y }

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
	o.weights = append(o.weights[:0], cfg.Weights...)
	o.x, o.labels, o.smoothing, o.back = logits, labels, cfg.Smoothing, false
	o.ignored = append(o.ignored[:0], cfg.Ignored...)
	y := t.begin(o, 1)
	o.rows = bytesview.Sized(o.rows, n)
	clear(o.rows)
	o.run(t)
	sum := 0.0
	o.counted = 0
	for i, r := range o.rows {
		if o.counts(i) {
			o.counted++
			sum += r.loss
		}
		if r.correct {
			correct++
		}
	}
	y.Data[0] = float32(sum / float64(max(1, o.counted)))
	return y, correct, o.counted
}

func (o *crossEntropyOp) counts(i int) bool { return !slices.Contains(o.ignored, o.labels[i]) }

func (o *crossEntropyOp) span() int   { return max(1, lossPart/o.x.Shape[1]) }
func (o *crossEntropyOp) run(t *Tape) { t.pool.run(o, (len(o.rows)+o.span()-1)/o.span()) }

func (o *crossEntropyOp) part(w *worker, i int) {
	classes := o.x.Shape[1]
	for r := i * o.span(); r < min((i+1)*o.span(), len(o.rows)); r++ {
		x := o.x.Data[r*classes : (r+1)*classes]
		switch {
		case o.back:
			o.slopes(w, r, x, o.dx[r*classes:(r+1)*classes])
		case o.counts(r):
			o.measure(w, r, x)
		}
	}
}

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

// slopes is (softmax - target)/counted, times the weight.
func (o *crossEntropyOp) slopes(w *worker, r int, x, dx []float32) {
	if !o.counts(r) {
		clear(dx)
		return
	}
	scale := o.scale * o.weight(r)
	w.k.ExpScale(dx, x, o.rows[r].most, o.rows[r].inverse*scale)
	if o.smoothing > 0 {
		addScalar(dx, dx, -scale*float32(o.smoothing/float64(len(x))))
	}
	dx[o.labels[r]] -= scale * float32(1-o.smoothing)
}

func (o *crossEntropyOp) backward(t *Tape) {
	o.back, o.scale = true, o.y.grad[0]/float32(max(1, o.counted))
	o.dx = t.into(o.x)
	o.run(t)
	t.merge(o.x, o.dx)
}
