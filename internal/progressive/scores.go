// Package progressive keeps the scores of the last samples that a model was trained on, and what
// they come to.
package progressive

import (
	"encoding/binary"
	"errors"
	"math"
)

// Window knows the figures of the last samples that a model was trained on, each of which was scored before it was
// learnt from (progressive validation: Blum, Kalai and Langford 1999): a held-out set without holding anything out.
//
// It keeps 8 bytes for each sample of the window and a histogram of the scores: a sample that comes or goes costs a few
// additions and one logarithm, whatever the window's length. Sums are of integers, so that they have the same value
// whatever the order, and after any number of samples that have gone.
//
// The area under the curve takes scores of one bin for equal ones. Bins are 1/512 of a score wide, and of its distance from 1
// where that is smaller, so that odds of a million to one still have bins of their own. What
// that may have changed is known exactly: Figures.AUCError.
type Window struct {
	ring   []shownSample
	next   int
	counts Counts
}

// shownSample is what a sample of the window has added.
type shownSample struct {
	score float32 // its sign says that the sample was positive
	loss  float32
}

// Counts are those of some samples, of one rank or of all: counts of several ranks are merged without a loss.
type Counts struct {
	// bins has the negative samples of each bin, and then the positive ones.
	bins           [2 * scoreBins]uint32
	scores, losses int64 // in units of 2^-32
}

const (
	scoreBits = 9 // of the mantissa that tell bins apart
	binShift  = 23 - scoreBits
	// Scores below 2^-24, and from 1-2^-24 on, are one bin.
	leastBin  = (127 - 24) << scoreBits
	halfBins  = (127-1)<<scoreBits - leastBin + 2 // of scores up to 1/2
	scoreBins = 2 * halfBins
	unit      = 1 << 32
	leastLog  = 1e-12 // for which a probability of 0 stands in the log-loss
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

// Add adds a sample's score, a probability, and takes out the one that is too old.
func (p *Window) Add(score float32, positive bool) {
	score = min(max(score, 0), 1)
	if score != score { // a model that has diverged, which others tell of
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

// count adds a sample so many times.
func (c *Counts) count(s shownSample, times int64) {
	bits := math.Float32bits(s.score)
	score := math.Float32frombits(bits &^ (1 << 31))
	c.bins[int(bits>>31)*scoreBins+binOf(score)] += uint32(times) // modulo 2^32: takes away, too
	c.scores += times * int64(float64(score)*unit)
	c.losses += times * int64(float64(s.loss)*unit)
}

// Counts are those of the window, good until the next Add.
func (p *Window) Counts() *Counts { return &p.counts }

// Append appends the counts as bytes that Merge reads: a few for each bin that has samples.
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

// errCounts is what Merge says of bytes that are no counts.
var errCounts = errors.New("scores: these are no counts of scores")

// Merge adds the counts that another one's Append has written.
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

// Figures are what counts come to.
type Figures struct {
	Samples, Positives int64
	// AUC is the area under the ROC curve, and AUCError by how much at most the one without bins differs. Ranked is false where all
	// samples are of one kind: then there is none.
	AUC, AUCError float64
	Ranked        bool
	// LogLoss is the mean of -log of the probability of what came.
	LogLoss float64
	// Calibration is how many positive samples were expected for each one that came; 0 where none came.
	Calibration float64
}

// Figures are those of the counts. It costs a pass over the bins, some 20 us.
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
