package model

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// Metric is a figure besides the loss, over all batches of all ranks. Either it is made of sums
// (Sums, Add, Value), which are added up over batches and ranks, or of what each sample is
// (Samples, Order), of which nothing is lost on the way: both are exact whatever the number of
// ranks, sums but for rounding.
type Metric struct {
	// Name is how records call it, behind "train_" or "eval_": small letters, digits and
	// underscores.
	Name string
	// Title is how a person reads it; empty: Name.
	Title string
	// Percent says that 1 is told as 100 %. Digits is how many follow the point.
	Percent bool
	Digits  int
	// Detail leaves it to records. EvalOnly leaves it out of training.
	Detail, EvalOnly bool
	// Lower says that less is better.
	Lower bool

	// Sums is how many sums there are.
	Sums int
	// Add adds what a pass was like to the sums, which begin at zero.
	Add func(sums []float64, p Pass)
	// Value is the figure; ok is false where there is none.
	Value func(sums []float64) (value float64, ok bool)

	// Samples appends what each sample of a pass is, in a word. It is asked in evaluations alone.
	Samples func(dst []uint64, p Pass) []uint64
	// Order is the figure of the words of all samples, whose order means nothing and which it may
	// change.
	Order func(words []uint64) (value float64, ok bool)

	// Score is the probability of label 1 that the metric is made of; nil: it is of no such kind.
	// While a model trains, the figures of its last samples are made of it.
	Score func(p Pass, sample int) float32
}

var metricName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func (m Metric) validate() error {
	var errs []error
	if !metricName.MatchString(m.Name) {
		errs = append(errs, fmt.Errorf("model: metric %q: want a name of small letters, digits and underscores", m.Name))
	}
	if summed := m.Sums > 0 && m.Add != nil && m.Value != nil; summed == (m.Samples != nil && m.Order != nil) {
		errs = append(errs, fmt.Errorf("model: metric %q: want Sums of at least 1 with Add and Value, or Samples with Order", m.Name))
	}
	return errors.Join(errs...)
}

// Training tells whether it is counted in training, too.
func (m Metric) Training() bool { return m.Sums > 0 && !m.EvalOnly }

// Label is Title, or the name.
func (m Metric) Label() string {
	if m.Title != "" {
		return m.Title
	}
	return m.Name
}

// Text writes a value for a person.
func (m Metric) Text(v float64) string {
	if m.Percent {
		return strconv.FormatFloat(100*v, 'f', m.Digits, 64) + "%"
	}
	return strconv.FormatFloat(v, 'f', m.Digits, 64)
}

// Ratio is the Value of two sums: the first by the second.
func Ratio(sums []float64) (float64, bool) { return sums[0] / sums[1], sums[1] != 0 }

// Accuracy is the share of terms that Loss.Correct counts.
func Accuracy() Metric {
	return Metric{Name: "accuracy", Percent: true, Digits: 2, Sums: 2, Value: Ratio, Add: func(sums []float64, p Pass) {
		sums[0] += float64(p.Loss.Correct)
		sums[1] += float64(p.Loss.Terms)
	}}
}

// addLoss sums up the loss and its terms.
func addLoss(sums []float64, p Pass) {
	sums[0] += float64(p.Loss.Mean.Data[0]) * float64(p.Loss.Terms)
	sums[1] += float64(p.Loss.Terms)
}

// Perplexity is e to the mean loss, where that is a number at all.
func Perplexity() Metric {
	return Metric{Name: "perplexity", Digits: 2, Lower: true, Sums: 2, Add: addLoss, Value: func(sums []float64) (float64, bool) {
		p := math.Exp(sums[0] / sums[1])
		return p, !math.IsInf(p, 0) && !math.IsNaN(p)
	}}
}

// LogLoss is the mean loss by the name that click models know.
func LogLoss() Metric {
	return Metric{Name: "logloss", Title: "log-loss", Digits: 4, Lower: true, EvalOnly: true, Sums: 2, Add: addLoss, Value: Ratio}
}

// MAE is the mean absolute error of the first output, which has a value for each target.
func MAE() Metric {
	return Metric{Name: "mae", Title: "mean absolute error", Digits: 4, Lower: true, Sums: 2, Value: Ratio, Add: func(sums []float64, p Pass) {
		for i, y := range p.Batch.Targets {
			sums[0] += math.Abs(float64(y) - float64(p.Outputs[0].Data[i]))
		}
		sums[1] += float64(len(p.Batch.Targets))
	}}
}

// R2 is the coefficient of determination of the first output, which has a value for each target:
// which share of the targets' variance it explains. Targets whose mean is a million times their
// spread lose it in the sums.
func R2() Metric {
	return Metric{Name: "r2", Title: "R²", Digits: 4, Sums: 4, Add: func(sums []float64, p Pass) {
		for i, y32 := range p.Batch.Targets {
			y, d := float64(y32), float64(y32)-float64(p.Outputs[0].Data[i])
			sums[0]++
			sums[1] += y
			sums[2] += y * y
			sums[3] += d * d
		}
	}, Value: func(sums []float64) (float64, bool) {
		spread := sums[2] - sums[1]*sums[1]/sums[0]
		return 1 - sums[3]/spread, spread > 0
	}}
}

// Calibration is how many events are expected by the probabilities of label 1, of which score is
// each sample's, for each one that came: 1 is right on the whole, as an auction needs it.
func Calibration(score func(p Pass, sample int) float32) Metric {
	return Metric{Name: "calibration", Digits: 4, EvalOnly: true, Score: score, Sums: 2, Value: Ratio, Add: func(sums []float64, p Pass) {
		for i, label := range p.Batch.Labels {
			sums[0] += float64(score(p, i))
			sums[1] += float64(label)
		}
	}}
}
