package evalmetrics

import (
	"math"
	"slices"
)

// Scored encodes a sample's score and label as a word. Words have the order of the scores, as the
// bits of non-negative floats do.
func Scored(score float32, positive bool) uint64 {
	s := uint64(math.Float32bits(max(score, 0))) << 1 // max: -0 becomes 0
	if positive {
		s |= 1
	}
	return s
}

// AUC is the area under the ROC curve of words from Scored: the probability that a positive sample
// scores higher than a negative one, with ties counted half (Mann and Whitney 1947). ok is false if
// all samples have the same label. It sorts words, O(n log n).
func AUC(words []uint64) (area float64, ok bool) {
	slices.Sort(words)
	var positives, negatives, wins uint64 // wins counts halves
	for lo := 0; lo < len(words); {
		hi, ties := lo, uint64(0)
		for ; hi < len(words) && words[hi]>>1 == words[lo]>>1; hi++ {
			ties += words[hi] & 1
		}
		others := uint64(hi-lo) - ties
		wins += ties * (2*negatives + others)
		positives, negatives = positives+ties, negatives+others
		lo = hi
	}
	if positives == 0 || negatives == 0 {
		return 0, false
	}
	return float64(wins) / 2 / (float64(positives) * float64(negatives)), true
}

// Softmax appends the probabilities of logits at a temperature above 0.
func Softmax(dst []float64, logits []float32, temperature float64) []float64 {
	from, sum, most := len(dst), 0.0, slices.Max(logits)
	for _, x := range logits {
		e := math.Exp(float64(x-most) / temperature)
		dst, sum = append(dst, e), sum+e
	}
	for i := from; i < len(dst); i++ {
		dst[i] /= sum
	}
	return dst
}
