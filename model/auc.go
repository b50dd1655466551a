package model

import (
	"math"

	"github.com/ringo-ml/ringo/internal/evalmetrics"
)

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
// 1947). It is exact up to the final division, in any order. Scores are not negative. It has no
// value if all samples have the same label. Cost: 8 bytes for each sample of the evaluation on each
// rank.
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
