package compress

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// GaussianK treats gradients as normally distributed and computes the threshold for the share Ratio
// from their mean and deviation (Shi et al., Understanding Top-k Sparsification in Distributed Deep
// Learning, 2019). While the number of selected entries differs from the requested k by more than a
// third, the threshold is halved or raised by half, at most four times. If the count still is
// outside [k/4, 4k], the entries are selected exactly. Cost: three to six passes, and in the worst
// case an exact selection.
type GaussianK struct {
	// Ratio is the share of values to send, above 0 and at most 1.
	Ratio float64
}

// Name returns a text such as "gaussiank(0.01)".
func (c GaussianK) Name() string { return fmt.Sprintf("gaussiank(%v)", c.Ratio) }

// Validate reports an invalid ratio.
func (c GaussianK) Validate() error { return checkRatio("gaussiank", c.Ratio) }

// Bind creates the state for n values.
func (c GaussianK) Bind(n int) Selection {
	return &gaussian{n: n, k: Entries(c.Ratio, n), ratio: c.Ratio}
}

type gaussian struct {
	n, k  int // values without padding; entries to send
	ratio float64
	last  Pick
}

const gaussianTurns = 4

func (d *gaussian) Select(w *Workspace, s *Sparse, base int, residual, grad []float32) {
	k := w.kernel()
	var sum, squares float64
	for lo := 0; lo < len(grad); lo += takeChunk {
		x := residual[lo:min(lo+takeChunk, len(grad))]
		k.Add(x, grad[lo:lo+len(x)])
		sum += k.Sum(x)
		squares += k.SumSquares(x)
	}
	n := float64(d.n)
	mean := sum / n
	deviation := math.Sqrt(max(0, squares/n-float64(mean*mean)))
	least := float32(math.Abs(mean) + float64(deviation*math.Sqrt2*math.Erfinv(1-d.ratio)))
	for range gaussianTurns {
		count := k.CountAtLeast(residual, max(1, simd.Magnitude(least)))
		if 3*count < 2*d.k {
			least *= 0.5
		} else if 3*count > 4*d.k {
			least *= 1.5
		} else {
			break
		}
	}
	d.last = Pick{Threshold: least}
	if _, ok := w.near(s, base, residual, nil, least, d.k); !ok {
		d.last = Pick{w.Exact(s, base, residual, nil, d.k), true}
	}
}

func (d *gaussian) Last() Pick           { return d.last }
func (d *gaussian) State() []optim.State { return nil }
