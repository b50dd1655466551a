package compress

import (
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

type corrected struct{ reused }

func (d *corrected) Select(w *Workspace, s *Sparse, base int, residual, grad []float32) {
	start := len(s.Index)
	if d.takes() {
		if d.reuse(w, s, base, residual, grad) {
			d.last = Pick{Threshold: d.savedState[dlgsThreshold]}
			d.correct(w, s.Value[start:])
			return
		}
		grad = nil // added by reuse
	}
	d.exact(w, s, base, residual, grad)
	d.correct(w, s.Value[start:])
}

// reuse sends the entries that reach the threshold, and returns true. If they are too few or too
// many, reuse sends none, adds grad to residual, and returns false.
func (d *corrected) reuse(w *Workspace, s *Sparse, base int, residual, grad []float32) bool {
	d.look(w, residual, grad)
	count, ok := w.near(s, base, residual, grad, d.savedState[dlgsThreshold], d.k)
	if !ok {
		d.deviates(min(4, d.share(count)))
	}
	return ok
}

// Limits of the sample that a step takes before it reuses a threshold.
const (
	lookFrom   = 1 << 16 // least values of a group: a pass over fewer takes no longer than a sample
	lookEvery  = 64      // one value in 64, as exact selections do,
	lookLeast  = 1 << 12 // at least 4 Ki, or an eighth of the values,
	lookHits   = 1 << 9  // at most a sample that holds 512 entries
	lookEnough = 1 << 5  // least expected entries for a usable estimate
	lookBound  = 3       // H stays if the number of hits is off by at most 3 standard deviations
)

// look replaces the threshold by an estimate from a sample if the two differ too much. It takes 1.6
// to 1.8 us for groups of up to 256 Ki values, and 3 % of a pass for larger ones. The unit of the
// following times of a whole step is one streaming pass. At a ratio of 0.01: 1 to 1.47 from 16 Ki
// values on; at 0.1, from 256 Ki on, 1 to 1.25 with AVX-512 and up to 1.44 with AVX2. Groups that
// fit the caches: 1.7 to 2, with 1.5 for compaction, which is limited by two of the core's ports.
// With AVX2 compaction takes about 3 there (16 to 64 Ki values, 20 instructions for 8 values), and
// a step with residuals outside the caches 1.5 to 1.8 up to 128 Ki.
func (d *corrected) look(w *Workspace, residual, grad []float32) {
	n, h := len(residual), d.savedState[dlgsThreshold]
	if n < lookFrom || !(h > 0 && h <= math.MaxFloat32) {
		return
	}
	m := min(max(n/lookEvery, min(n/8, lookLeast)), lookHits*(n/d.k))
	m = n / (n / m * sampleRun) * sampleRun // size that sampleOf takes
	wanted := float64(d.k) * float64(m) / float64(n) * d.wish()
	if wanted < lookEnough {
		return
	}
	w.sampleOf(residual, grad, n/m, uint32(d.savedState[dlgsLeft]))
	reach := w.kernel().CountAtLeast(w.sample, simd.Magnitude(h))
	if math.Abs(float64(reach)-wanted) <= lookBound*math.Sqrt(wanted) {
		return
	}
	if bits, _ := w.kthLargest(w.sample, min(m, int(wanted)), 0); bits > 0 {
		d.savedState[dlgsThreshold] = math.Float32frombits(bits)
	}
}

// wish returns the number of entries to send in a step, as a multiple of k. It is 2 if earlier
// steps together sent dlgsOverSteps*k or more entries too few, 1/2 if they sent as many too many,
// and about 2^(-excess/dlgsOverSteps) between.
func (d *corrected) wish() float64 {
	over := min(1, max(-1, float64(d.savedState[dlgsOver])/dlgsOverSteps))
	if over < 0 {
		return 1 - over
	}
	return 1 / (1 + over)
}

// share is a number of entries relative to k.
func (d *corrected) share(count int) float64 { return float64(count) / float64(d.k) }

// deviates adds share-1, a step's relative deviation from k, to the deviation of all steps.
func (d *corrected) deviates(share float64) {
	over := float64(d.savedState[dlgsOver]) + share - 1
	d.savedState[dlgsOver] = float32(min(dlgsOverMost, max(-dlgsOverMost, over)))
}

// Parameters of the correction.
const (
	dlgsStepShare = 0.5 // part of a step's deviation that the next step corrects
	dlgsOverSteps = 2   // steps to correct the accumulated deviation
	dlgsOverMost  = 16  // limit of the accumulated deviation
)

// correct adjusts the threshold, H, after a step that sent c entries, the values:
//
//	over += c/k - 1                    also where a reuse step was given up, at most 3
//	e     = log2(c/k)/2 + over/2       halvings of the count that are wanted
//	H    *= 1 + e (M/H - 1), where e < 0: H /= 1 - e (M/H - 1)
//
// M is the median magnitude of the sent entries. M/H - 1, limited to 1, is the relative increase of
// H that would have halved the count. The rule is a controller with a proportional and an integral
// part: the integral part corrects lasting growth, and a single random count changes H little. The
// median is of up to 512 entries, which costs far less than the pass.
func (d *corrected) correct(w *Workspace, sent []float32) {
	if d.every == 1 {
		return
	}
	share := d.share(len(sent))
	d.deviates(share)
	h := float64(d.savedState[dlgsThreshold])
	if d.savedState[dlgsLeft] < 1 || !(h > 0 && h <= math.MaxFloat32) {
		return // next step exact, or H without meaning: 0 or not finite
	}
	spread := min(1, float64(w.middleOf(sent, d.savedState[dlgsThreshold]))/h-1)
	e := float64(dlgsStepShare*log2(share)) + float64(d.savedState[dlgsOver])/dlgsOverSteps
	change := 1 + math.Abs(float64(e*spread))
	if e < 0 {
		change = 1 / change
	}
	d.savedState[dlgsThreshold] = float32(h * change)
}

// middleMost is the number of entries for an estimate of the median.
const middleMost = 512

// middleOf returns the median magnitude of x, or of evenly spaced samples of x. x is not empty, and
// all magnitudes are at least `least`.
func (w *Workspace) middleOf(x []float32, least float32) float32 {
	if stride := len(x) / middleMost; stride > 1 {
		w.sample = bytesview.Sized(w.sample, middleMost)
		for i := range w.sample {
			w.sample[i] = x[i*stride]
		}
		x = w.sample
	}
	bits, _ := w.kthLargest(x, (len(x)+1)/2, simd.Magnitude(least))
	return math.Float32frombits(bits)
}

// log2 approximates the logarithm of x > 0, linearly between powers of two: at most 0.09 too small,
// and with the same bits on every machine.
func log2(x float64) float64 {
	part, exponent := math.Frexp(x)
	return float64(exponent-2) + 2*part
}
