package train

import (
	"math"
	"slices"
)

// scored is one sample's score and whether it was positive, as a number that is
// ordered by the score: of floats that are not negative, the bits are.
type scored uint64

func newScored(score float32, positive bool) scored {
	s := scored(math.Float32bits(max(score, 0))) << 1 // max: -0 is 0, too
	if positive {
		s |= 1
	}
	return s
}

// auc is the area under the ROC curve: the probability that a positive sample
// scores higher than a negative one, where a tie counts half (Mann and Whitney
// 1947). It is exact up to the final division, whatever the order. It sorts x,
// O(n log n). ok is false where all samples are of one kind.
func auc(x []scored) (area float64, ok bool) {
	slices.Sort(x)
	var positives, negatives, wins uint64 // wins counts halves
	for lo := 0; lo < len(x); {
		hi, ties := lo, uint64(0)
		for ; hi < len(x) && x[hi]>>1 == x[lo]>>1; hi++ {
			ties += uint64(x[hi] & 1)
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
