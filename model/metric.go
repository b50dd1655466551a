package model

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/ringo-ml/ringo/internal/evalmetrics"
)

// Metric is a metric in addition to the loss, over all batches of all ranks. It is computed either
// from sums over batches and ranks (Sums, Add, Value), or from one uint64 per sample (Samples,
// Order). Samples and Order give the same value for any number of ranks; sums differ by rounding.
type Metric struct {
	// Name is the name in records, after "train_" or "eval_": small letters, digits and
	// underscores.
	Name string
	// Title is the name for display; empty means Name.
	Title string
	// Percent displays 1 as 100 %. Digits is the number of digits after the point.
	Percent bool
	Digits  int
	// Detail reports whether the metric is in records only and not displayed. EvalOnly reports
	// whether training omits it.
	Detail, EvalOnly bool
	// Lower reports whether less is better.
	Lower bool

	// Sums is the number of sums that the metric needs.
	Sums int
	// Add adds a pass to the sums, initially zero.
	Add func(sums []float64, p Pass)
	// Value computes the metric from the sums; ok is false if the metric has no value.
	Value func(sums []float64) (value float64, ok bool)

	// Samples appends a uint64, a word, for each sample of a pass, in evaluations only.
	Samples func(dst []uint64, p Pass) []uint64
	// Order computes the metric from the words of all samples, in any order; it may change words.
	Order func(words []uint64) (value float64, ok bool)

	// Score returns the probability of label 1 from which the metric is computed. If it is set,
	// metrics during training cover the last samples.
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

// Training reports whether the metric is counted in training.
func (m Metric) Training() bool { return m.Sums > 0 && !m.EvalOnly }

// Label is Title, or the name.
func (m Metric) Label() string {
	if m.Title != "" {
		return m.Title
	}
	return m.Name
}

// Text formats a value for display.
func (m Metric) Text(v float64) string {
	if m.Percent {
		return strconv.FormatFloat(100*v, 'f', m.Digits, 64) + "%"
	}
	return strconv.FormatFloat(v, 'f', m.Digits, 64)
}

// Ratio is the Value of two sums: the first by the second.
func Ratio(sums []float64) (float64, bool) { return sums[0] / sums[1], sums[1] != 0 }

// Accuracy is the share of terms counted by Loss.Correct.
func Accuracy() Metric {
	return Metric{Name: "accuracy", Percent: true, Digits: 2, Sums: 2, Value: Ratio, Add: func(sums []float64, p Pass) {
		sums[0] += float64(p.Loss.Correct)
		sums[1] += float64(p.Loss.Terms)
	}}
}

// addLoss adds the loss and its number of terms to the sums.
func addLoss(sums []float64, p Pass) {
	sums[0] += float64(p.Loss.Mean.Data[0]) * float64(p.Loss.Terms)
	sums[1] += float64(p.Loss.Terms)
}

// Perplexity is e to the mean loss, if finite.
func Perplexity() Metric {
	return Metric{Name: "perplexity", Digits: 2, Lower: true, Sums: 2, Add: addLoss, Value: func(sums []float64) (float64, bool) {
		p := math.Exp(sums[0] / sums[1])
		return p, !math.IsInf(p, 0) && !math.IsNaN(p)
	}}
}

// LogLoss is the mean loss, under its name in click models.
func LogLoss() Metric {
	return Metric{Name: "logloss", Title: "log-loss", Digits: 4, Lower: true, EvalOnly: true, Sums: 2, Add: addLoss, Value: Ratio}
}

// MAE is the mean absolute error of the first output, with a value for each target.
func MAE() Metric {
	return Metric{Name: "mae", Title: "mean absolute error", Digits: 4, Lower: true, Sums: 2, Value: Ratio, Add: func(sums []float64, p Pass) {
		for i, y := range p.Batch.Targets {
			sums[0] += math.Abs(float64(y) - float64(p.Outputs[0].Data[i]))
		}
		sums[1] += float64(len(p.Batch.Targets))
	}}
}

// R2 is the coefficient of determination of the first output, with a value for each target: the
// explained share of the targets' variance. Rounding makes the value useless if the targets' mean
// is a million times their spread.
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

// Calibration is the number of events expected by the probabilities of label 1, from score, divided
// by the number of actual events. At 1 predictions are right on average, as auctions require.
func Calibration(score func(p Pass, sample int) float32) Metric {
	return Metric{Name: "calibration", Digits: 4, EvalOnly: true, Score: score, Sums: 2, Value: Ratio, Add: func(sums []float64, p Pass) {
		for i, label := range p.Batch.Labels {
			sums[0] += float64(score(p, i))
			sums[1] += float64(label)
		}
	}}
}

// Probability is a sample's probability of label 1 by the first output: logits of both labels, [n,
// 2], or of label 1 against 0, [n, 1].
func Probability(p Pass, sample int) float32 {
	logits := p.Outputs[0].Data
	if shape := p.Outputs[0].Shape; shape[len(shape)-1] == 1 {
		return float32(1 / (1 + math.Exp(-float64(logits[sample]))))
	}
	return float32(1 / (1 + math.Exp(float64(logits[2*sample])-float64(logits[2*sample+1]))))
}

// AUC is the area under the ROC curve over the samples of all ranks: the probability that a sample
// of label 1 scores higher than a sample of label 0, with ties counted half (Mann and Whitney
// 1947). Counts are exact for any order of samples; only the final division rounds. Scores must not
// be negative. AUC has no value if all samples have the same label. Cost: 8 bytes for each sample
// of the evaluation on each rank.
func AUC(score func(p Pass, sample int) float32) Metric {
	return Metric{
		Name: "auc", Title: "AUC", Digits: 4, EvalOnly: true,
		Samples: func(dst []uint64, p Pass) []uint64 {
			for i, label := range p.Batch.Labels {
				dst = append(dst, evalmetrics.Scored(score(p, i), label == 1))
			}
			return dst
		},
		Order: evalmetrics.AUC,
	}
}
