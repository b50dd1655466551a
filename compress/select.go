package compress

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// Entries is the number of values out of n that a ratio selects: ceil(ratio*n), at least 1.
func Entries(ratio float64, n int) int {
	return min(n, max(1, int(math.Ceil(ratio*float64(n)))))
}

func checkRatio(name string, ratio float64) error {
	if !(ratio > 0 && ratio <= 1) {
		return fmt.Errorf("%s: ratio %v: want more than 0 and at most 1", name, ratio)
	}
	return nil
}

// TopK sends the share Ratio of largest magnitude of every group, exactly and in every step; lower
// indices come first among equal magnitudes.
type TopK struct {
	// Ratio is the share of values to send, above 0 and at most 1.
	Ratio float64
}

// Name returns a text such as "topk(0.01)".
func (c TopK) Name() string { return fmt.Sprintf("topk(%v)", c.Ratio) }

// Validate reports an invalid ratio.
func (c TopK) Validate() error { return checkRatio("topk", c.Ratio) }

// Bind creates the state for n values.
func (c TopK) Bind(n int) Selection { return &topK{k: Entries(c.Ratio, n)} }

type topK struct {
	k    int
	last float32
}

func (t *topK) Select(w *Workspace, s *Sparse, base int, residual, grad []float32) {
	t.last = w.Exact(s, base, residual, grad, t.k)
}

func (t *topK) Last() Pick           { return Pick{Threshold: t.last, Exact: true} }
func (t *topK) State() []optim.State { return nil }

// Threshold sends every nonzero entry of magnitude Least or more, without a limit on their number
// (Strom, Interspeech 2015; ringo sends exact values).
type Threshold struct {
	// Least is the smallest magnitude to send, 0 or more. 0 sends all values but zeros.
	Least float64
}

// Name returns a text such as "threshold(0.001)".
func (c Threshold) Name() string { return fmt.Sprintf("threshold(%v)", c.Least) }

// Validate reports an invalid threshold.
func (c Threshold) Validate() error {
	if !(c.Least >= 0 && c.Least <= math.MaxFloat32) {
		return fmt.Errorf("threshold: %v: want a finite number, 0 or more", c.Least)
	}
	return nil
}

// Bind creates the state.
func (c Threshold) Bind(int) Selection { return fixed(c.Least) }

type fixed float32

func (f fixed) Select(w *Workspace, s *Sparse, base int, residual, grad []float32) {
	w.Reaching(s, base, residual, grad, float32(f), len(residual))
}

func (f fixed) Last() Pick           { return Pick{Threshold: float32(f)} }
func (f fixed) State() []optim.State { return nil }

// Reaching adds grad (nil: none) to residual and moves the nonzero values of magnitude least or
// more to s, if these are at most limit; otherwise it moves none. It returns their number; above
// limit, the result may be too small.
func (w *Workspace) Reaching(s *Sparse, base int, residual, grad []float32, least float32, limit int) int {
	return w.reaching(s, base, residual, grad, least, limit, 0)
}

// reaching does the same as Reaching. It is fastest if about expected values reach least.
func (w *Workspace) reaching(s *Sparse, base int, residual, grad []float32, least float32, limit, expected int) int {
	w.take = take{residual: residual, grad: grad, base: base, least: max(1, simd.Magnitude(least)), limit: limit, expected: expected}
	return w.over(s)
}

// near moves nonzero values of magnitude least or more to s if their number, count, is from k/4 to
// 4k. Otherwise ok is false, and grad is only added to residual.
func (w *Workspace) near(s *Sparse, base int, residual, grad []float32, least float32, k int) (count int, ok bool) {
	start, most := len(s.Index), min(4*k, len(residual))
	count = w.reaching(s, base, residual, grad, least, most, k)
	if count <= most && 4*count >= k {
		return count, true
	}
	if count <= most {
		s.giveBack(start, residual, base)
	}
	return count, false
}

// Sampled estimates the threshold of the share Ratio from a sample in every step (Deep Gradient
// Compression, Lin et al., ICLR 2018). If more than twice the requested number of values reach it,
// the requested number of the largest of these are sent. If fewer than a quarter or more than four
// times the requested number reach it, the entries are selected exactly.
type Sampled struct {
	// Ratio is the share of values to send, above 0 and at most 1.
	Ratio float64
	// Share is the part of the values in the sample, above 0 and at most 1. 0 means 0.01.
	Share float64
}

// Name returns a text such as "sampled(0.01)", or "sampled(0.01, of 0.05)" if Share is 0.05.
func (c Sampled) Name() string {
	of := ""
	if c.Share != 0 && c.Share != sampledShare {
		of = fmt.Sprintf(", of %v", c.Share)
	}
	return fmt.Sprintf("sampled(%v%s)", c.Ratio, of)
}

// sampledShare is the default of Sampled's Share.
const sampledShare = 0.01

// Validate reports bad settings.
func (c Sampled) Validate() error {
	if !(c.Share >= 0 && c.Share <= 1) {
		return fmt.Errorf("sampled: share %v: want more than 0 and at most 1, or 0 for 0.01", c.Share)
	}
	return checkRatio("sampled", c.Ratio)
}

// Bind creates the state for n values: a count of steps, so that each step samples other values.
func (c Sampled) Bind(n int) Selection {
	if c.Share == 0 {
		c.Share = sampledShare
	}
	d := &sampled{k: Entries(c.Ratio, n), every: int(1 / c.Share)}
	d.data = []optim.State{{Name: "sample", Data: make([]float32, 1)}}
	return d
}

type sampled struct {
	k, every int
	last     Pick
	data     []optim.State
}

// sampleTurns is the number of steps until samples repeat.
const sampleTurns = 1 << 20

func (d *sampled) Select(w *Workspace, s *Sparse, base int, residual, grad []float32) {
	n, start, turn := len(residual), len(s.Index), &d.data[0].Data[0]
	seed := uint32(*turn)
	if *turn++; *turn >= sampleTurns {
		*turn = 0
	}
	w.sampleOf(residual, grad, d.every, seed<<12)
	rank := int(math.Ceil(float64(d.k) * float64(len(w.sample)) / float64(n)))
	if len(w.sample) == 0 || n <= smallSelection {
		d.last = Pick{w.Exact(s, base, residual, grad, d.k), true}
		return
	}
	bits, _ := w.kthLargest(w.sample, max(1, rank), 0)
	least := math.Float32frombits(bits)
	switch count, ok := w.near(s, base, residual, grad, least, d.k); {
	case !ok:
		d.last = Pick{w.Exact(s, base, residual, nil, d.k), true}
	case count > 2*d.k:
		d.last = Pick{w.trim(s, start, residual, base, d.k, max(1, bits), noBound), false}
	default:
		d.last = Pick{least, false}
	}
}

func (d *sampled) Last() Pick           { return d.last }
func (d *sampled) State() []optim.State { return d.data }
