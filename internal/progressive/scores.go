// Package progressive keeps the scores of a model's last training samples, and computes metrics.
package progressive

import (
	"encoding/binary"
	"errors"
	"math"
)

// Window has the metrics of the last training samples, each scored before training on the sample
// (progressive validation: Blum, Kalai and Langford 1999): a held-out set without held-out samples.
//
// A Window has 8 bytes per sample and a histogram of scores: a sample's arrival or departure costs
// a few additions and one logarithm, for every window length. Sums are of integers, and so
// independent of order and of departed samples.
//
// The area under the curve treats a bin's scores as equal. A bin's width is 1/512 of the score, or
// of the distance to 1 if smaller, so that odds of a million to one have separate bins.
// Figures.AUCError is the exact bound of the effect.
type Window struct {
	ring   []shownSample
	next   int
	counts Counts
}

// shownSample is a sample's contribution.
type shownSample struct {
	score float32 // negative for a positive sample
	loss  float32
}

// Counts are the counts of samples, of one rank or several: merging is exact.
type Counts struct {
	// bins has each bin's negative samples, then each bin's positive samples.
	bins           [2 * scoreBins]uint32
	scores, losses int64 // unit: 2^-32
}

const (
	scoreBits = 9 // mantissa bits of a bin
	binShift  = 23 - scoreBits
	// leastBin belongs to 2^-24: scores below share a bin, and so do scores from 1-2^-24 on.
	leastBin  = (127 - 24) << scoreBits
	halfBins  = (127-1)<<scoreBits - leastBin + 2 // bins of scores up to 1/2
	scoreBins = 2 * halfBins
	unit      = 1 << 32
	leastLog  = 1e-12 // substitute for probability 0 in the log-loss
)

// New is an empty window of n samples, at least 1.
func New(n int) *Window { return &Window{ring: make([]shownSample, 0, n)} }

// binOf is the bin of a score in [0, 1], in the order of scores.
func binOf(score float32) int {
	if score > 0.5 {
		return scoreBins - 1 - lowBin(1-score) // 1-score is exact
	}
	return lowBin(score)
}

func lowBin(score float32) int {
	return max(0, int(math.Float32bits(max(score, 0))>>binShift)-leastBin+1)
}

// Add adds a sample's score, a probability, and removes the oldest sample of a full window.
func (p *Window) Add(score float32, positive bool) {
	score = min(max(score, 0), 1)
	if score != score { // diverged model, reported elsewhere
		score = 0.5
	}
	right := float64(score)
	if !positive {
		right = 1 - right
	}
	s := shownSample{score, float32(-math.Log(max(right, leastLog)))}
	if positive {
		s.score = -s.score // -0, too
	}
	p.counts.count(s, 1)
	if len(p.ring) < cap(p.ring) {
		p.ring = append(p.ring, s)
		return
	}
	p.counts.count(p.ring[p.next], -1)
	p.ring[p.next] = s
	if p.next++; p.next == len(p.ring) {
		p.next = 0
	}
}

// count adds a sample, or removes it for times -1.
func (c *Counts) count(s shownSample, times int64) {
	bits := math.Float32bits(s.score)
	score := math.Float32frombits(bits &^ (1 << 31))
	c.bins[int(bits>>31)*scoreBins+binOf(score)] += uint32(times) // modulo 2^32: subtracts, too
	c.scores += times * int64(float64(score)*unit)
	c.losses += times * int64(float64(s.loss)*unit)
}

// Counts are the window's counts, valid until the next Add.
func (p *Window) Counts() *Counts { return &p.counts }

// Append appends the counts as bytes for Merge: a few per bin with samples.
func (c *Counts) Append(dst []byte) []byte {
	dst = binary.AppendVarint(binary.AppendVarint(dst, c.scores), c.losses)
	last := 0
	for i, n := range c.bins {
		if n > 0 {
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(i-last)), uint64(n))
			last = i
		}
	}
	return dst
}

// errCounts is Merge's error for invalid bytes.
var errCounts = errors.New("scores: these are no counts of scores")

// Merge adds counts written by Append.
func (c *Counts) Merge(b []byte) error {
	for _, sum := range []*int64{&c.scores, &c.losses} {
		v, n := binary.Varint(b)
		if n <= 0 {
			return errCounts
		}
		*sum += v
		b = b[n:]
	}
	for at := uint64(0); len(b) > 0; {
		gap, n := binary.Uvarint(b)
		if n <= 0 || gap >= uint64(len(c.bins)) {
			return errCounts
		}
		count, m := binary.Uvarint(b[n:])
		if at += gap; m <= 0 || at >= uint64(len(c.bins)) || count > math.MaxUint32 {
			return errCounts
		}
		c.bins[at] += uint32(count)
		b = b[n+m:]
	}
	return nil
}

// Figures are metrics of counts.
type Figures struct {
	Samples, Positives int64
	// AUC is the area under the ROC curve, and AUCError the bound of the error by bins. Ranked is
	// false without both kinds of samples: AUC is then undefined.
	AUC, AUCError float64
	Ranked        bool
	// LogLoss is the mean of -log of the outcome's probability.
	LogLoss float64
	// Calibration is expected over actual positive samples; 0 without positive samples.
	Calibration float64
}

// Figures computes the metrics in a pass over the bins, some 20 us.
func (c *Counts) Figures() (f Figures) {
	var negatives, wins, ties float64
	for i, n := range c.bins[:scoreBins] {
		p := c.bins[scoreBins+i]
		if n|p == 0 {
			continue
		}
		wins += float64(p) * (negatives + float64(n)/2)
		ties += float64(p) * float64(n) / 2
		negatives += float64(n)
		f.Positives += int64(p)
	}
	if f.Samples = f.Positives + int64(negatives); f.Samples == 0 {
		return f
	}
	if pairs := float64(f.Positives) * negatives; pairs > 0 {
		f.AUC, f.AUCError, f.Ranked = wins/pairs, ties/pairs, true
	}
	f.LogLoss = float64(c.losses) / unit / float64(f.Samples)
	if f.Positives > 0 {
		f.Calibration = float64(c.scores) / unit / float64(f.Positives)
	}
	return f
}
