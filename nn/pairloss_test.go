package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func init() {
	losses := []struct {
		name string
		run  func(t *Tape, x, z *Tensor) *Tensor
		of   func(x, z float64) float64
	}{
		{"mean-squared error", (*Tape).MeanSquaredError, func(x, z float64) float64 { return (x - z) * (x - z) }},
		{"huber", func(t *Tape, x, z *Tensor) *Tensor { return t.Huber(x, z, 0.5) }, func(x, z float64) float64 {
			if d := math.Abs(x - z); d > 0.5 {
				return 0.5 * (d - 0.25)
			}
			return (x - z) * (x - z) / 2
		}},
		{"binary cross-entropy", (*Tape).BinaryCrossEntropy, func(x, z float64) float64 {
			p := 1 / (1 + math.Exp(-x))
			return -z*math.Log(p) - (1-z)*math.Log(1-p)
		}},
	}
	for _, l := range losses {
		twin := func(x, z []float64) []float64 {
			sum := 0.0
			for i, v := range x {
				sum += l.of(v, z[i]) / float64(len(x))
			}
			return []float64{sum}
		}
		shape := []int{5, 7}
		constant := NewTensor(shape...)
		fill(constant.Data, 0.25)
		fixed := slices.Repeat([]float64{0.25}, 35)
		opCases = append(opCases,
			opCase{l.name, shape, shape, nil, true,
				func(t *Tape, x *Tensor, w Layer) *Tensor { return l.run(t, x, t.Parameter(w.W)) },
				func(x, w, _ []float64) []float64 { return twin(x, w) }},
			opCase{l.name + " of a constant target", shape, nil, nil, true,
				func(t *Tape, x *Tensor, _ Layer) *Tensor { return l.run(t, x, constant) },
				func(x, _, _ []float64) []float64 { return twin(x, fixed) }},
			opCase{l.name + " of a constant prediction", shape, nil, nil, true,
				func(t *Tape, x *Tensor, _ Layer) *Tensor { return l.run(t, constant, x) },
				func(x, _, _ []float64) []float64 { return twin(fixed, x) }})
	}
	numbers := slices.Repeat([]float32{0.25}, 35)
	opCases = append(opCases, opCase{"mean-squared error from numbers", []int{5, 7}, nil, nil, true,
		func(t *Tape, x *Tensor, _ Layer) *Tensor { return t.MeanSquaredErrorTo(x, numbers) },
		func(x, _, _ []float64) []float64 {
			sum := 0.0
			for _, v := range x {
				sum += (v - 0.25) * (v - 0.25) / 35
			}
			return []float64{sum}
		}})
	labels := []int32{2, 9, 0, -1, 6}
	for _, s := range []float64{0, 0.1} {
		opCases = append(opCases, opCase{fmt.Sprint("cross-entropy smoothed by ", s), []int{5, 7}, nil, nil, true,
			func(t *Tape, x *Tensor, _ Layer) *Tensor {
				loss, _, _ := t.CrossEntropy(x, labels, CrossEntropy{Smoothing: s, Ignored: []int32{9, -1}})
				return loss
			},
			func(x, _, _ []float64) []float64 { return []float64{twinCrossEntropy(x, labels, s, nil)} }})
		weights := []float32{3, 1, 0.5, 1, 1, 1, 2}
		opCases = append(opCases, opCase{fmt.Sprint("weighted cross-entropy smoothed by ", s), []int{5, 7}, nil, nil, true,
			func(t *Tape, x *Tensor, _ Layer) *Tensor {
				loss, _, _ := t.CrossEntropy(x, labels, CrossEntropy{Smoothing: s, Ignored: []int32{9, -1}, Weights: weights})
				return loss
			},
			func(x, _, _ []float64) []float64 { return []float64{twinCrossEntropy(x, labels, s, weights)} }})
	}
}

// twinCrossEntropy ignores labels that are no classes.
func twinCrossEntropy(x []float64, labels []int32, smoothing float64, weights []float32) (loss float64) {
	classes, counted := len(x)/len(labels), 0.0
	for i, label := range labels {
		if label < 0 || int(label) >= classes {
			continue
		}
		counted++
		weight := 1.0
		if weights != nil {
			weight = float64(weights[label])
		}
		for c, p := range twinSoftmax(x[i*classes : (i+1)*classes]) {
			target := smoothing / float64(classes)
			if c == int(label) {
				target += 1 - smoothing
			}
			loss -= weight * target * math.Log(p)
		}
	}
	return loss / counted
}

// Without smoothing and ignored labels it is SoftmaxCrossEntropy, bit for bit.
func TestCrossEntropyIsSoftmaxCrossEntropy(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x, labels := NewTensor(40, 1000), make([]int32, 40)
	copy(x.Data, random(r, x.Len()))
	for i := range labels {
		labels[i] = int32(r.IntN(1000))
		x.Data[i*1000+int(labels[i])] += float32(i % 3)
	}
	x.RetainGrad()
	tape := NewTape(TapeConfig{Threads: 2})
	defer tape.Close()
	want, wantCorrect := tape.SoftmaxCrossEntropy(x, labels)
	tape.Backward(want, nil)
	dx := slices.Clone(x.Grad())
	loss, correct, counted := tape.CrossEntropy(x, labels, CrossEntropy{})
	tape.Backward(loss, nil)
	if loss.Data[0] != want.Data[0] || correct != wantCorrect || counted != 40 || !slices.Equal(dx, x.Grad()) {
		t.Errorf("loss %v, %d of %d correct; want %v, %d", loss.Data[0], correct, counted, want.Data[0], wantCorrect)
	}
}

// What is ignored is not counted as correct, and all may be ignored.
func TestCrossEntropyIgnores(t *testing.T) {
	x := NewTensor(2, 3)
	x.RetainGrad()
	tape := NewTape(TapeConfig{})
	if _, correct, counted := tape.CrossEntropy(x, []int32{0, 0}, CrossEntropy{Ignored: []int32{7}}); correct != 2 || counted != 2 {
		t.Errorf("%d of %d correct, want 2 of 2", correct, counted)
	}
	loss, correct, counted := tape.CrossEntropy(x, []int32{0, 0}, CrossEntropy{Ignored: []int32{0}})
	tape.Backward(loss, nil)
	if loss.Data[0] != 0 || correct != 0 || counted != 0 || !slices.Equal(x.Grad(), make([]float32, 6)) {
		t.Errorf("all ignored: loss %v, %d of %d, gradient %v", loss.Data[0], correct, counted, x.Grad())
	}
}

func TestLogisticLossOfLargeLogits(t *testing.T) {
	x, z := NewTensor(4), NewTensor(4)
	copy(x.Data, []float32{1000, -1000, 1000, -1000})
	copy(z.Data, []float32{1, 0, 0, 1})
	x.RetainGrad()
	tape := NewTape(TapeConfig{})
	loss := tape.BinaryCrossEntropy(x, z)
	tape.Backward(loss, nil)
	if loss.Data[0] != 500 || !slices.Equal(x.Grad(), []float32{0, 0, 0.25, -0.25}) {
		t.Errorf("loss %v, gradient %v", loss.Data[0], x.Grad())
	}
}

// Labels are copied to memory of their own, whatever stood at the same place of the tape before.
func TestLabelsAreNotWrittenToTargets(t *testing.T) {
	x, targets := NewTensor(2), []float32{5, 7}
	tape := NewTape(TapeConfig{})
	tape.MeanSquaredErrorTo(x, targets)
	tape.Reset()
	tape.BinaryCrossEntropyTo(x, []int32{1, 0})
	if !slices.Equal(targets, []float32{5, 7}) {
		t.Errorf("the targets became %v", targets)
	}
}

// Losses of many parts have the same bits on any number of threads.
func TestPairLossOfManyParts(t *testing.T) {
	x, z := NewTensor(3*pairPart+5), NewTensor(3*pairPart+5)
	r := rand.New(rand.NewPCG(1, 2))
	copy(x.Data, random(r, x.Len()))
	copy(z.Data, random(r, z.Len()))
	for name, loss := range map[string]func(t *Tape) *Tensor{
		"squared":  func(t *Tape) *Tensor { return t.MeanSquaredError(x, z) },
		"numbers":  func(t *Tape) *Tensor { return t.MeanSquaredErrorTo(x, z.Data) },
		"huber":    func(t *Tape) *Tensor { return t.Huber(x, z, 0.3) },
		"logistic": func(t *Tape) *Tensor { return t.BinaryCrossEntropy(x, z) },
	} {
		var want float32
		for threads := 1; threads <= 3; threads++ {
			tape := NewTape(TapeConfig{Threads: threads})
			defer tape.Close()
			got := loss(tape).Data[0]
			if threads == 1 {
				want = got
			}
			if got != want {
				t.Errorf("%s: %d threads have other bits than 1", name, threads)
			}
		}
	}
}

func TestLossFaults(t *testing.T) {
	x := NewTensor(2, 3)
	for want, f := range map[string]func(t *Tape){
		"mean-squared error: got [6], want a target of shape [2 3]":     func(t *Tape) { t.MeanSquaredError(x, NewTensor(6)) },
		"mean-squared error: got [5], want as many targets as values":   func(t *Tape) { t.MeanSquaredErrorTo(x, make([]float32, 5)) },
		"binary cross-entropy: got [3 2], want a target of shape [2 3]": func(t *Tape) { t.BinaryCrossEntropy(x, NewTensor(3, 2)) },
		"Huber loss: got [0 3], want one value at least":                func(t *Tape) { t.Huber(NewTensor(0, 3), NewTensor(0, 3), 1) },
		"Huber loss: got [-1], want a positive delta":                   func(t *Tape) { t.Huber(x, x, -1) },
		"cross-entropy: got [1 2], want one label per sample":           func(t *Tape) { t.CrossEntropy(x, []int32{1}, CrossEntropy{}) },
		"cross-entropy: got [6], want logits [n, classes]":              func(t *Tape) { t.CrossEntropy(NewTensor(6), nil, CrossEntropy{}) },
		"cross-entropy: got [2 3], want one weight per class":           func(t *Tape) { t.CrossEntropy(x, []int32{1, 1}, CrossEntropy{Weights: make([]float32, 2)}) },
	} {
		wantShapeError(t, want, f)
	}
	for want, cfg := range map[string]CrossEntropy{
		"sample 1 has label 5, but there are 3 classes": {},
		"smoothing 1: want at least 0":                  {Smoothing: 1, Ignored: []int32{5}},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %s, want it to hold %s", got, want)
				}
			}()
			NewTape(TapeConfig{}).CrossEntropy(x, []int32{0, 5}, cfg)
		}()
	}
}
