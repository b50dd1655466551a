package data

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/prng"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// usualSplit is the default share of samples held out if the set has no evaluation part.
const usualSplit = 0.1

// maxFolds is the largest number of folds, against typing errors.
const maxFolds = 1000

// subset is a selection of a source's samples, in source order.
type subset struct {
	Source
	at []int32
}

func (s subset) Len() int { return len(s.at) }

func (s subset) Fill(b *Batch, idx []int32, d Draw) error {
	b.order = bytesview.Sized(b.order, len(idx)) // idx can be b.order itself in nested splits
	for i, n := range idx {
		b.order[i] = s.at[n]
	}
	return s.Source.Fill(b, b.order, d)
}

func (s subset) evidence(w io.Writer) {
	if e, ok := s.Source.(interface{ evidence(io.Writer) }); ok {
		e.evidence(w)
	}
	_, _ = w.Write(bytesview.Bytes(s.at)) // hash.Write never fails
}

// Split holds out a share of the samples for evaluation. A hash of each sample's index decides, so
// the split is equal in all runs, and appending samples does not move earlier samples. share is
// above 0 and below 1. Fewer than two samples are an error: each part has at least one.
func Split(s Source, share float64) (train, eval Source, err error) {
	if !(share > 0 && share < 1) {
		return nil, nil, setting.Errorf(datafile.SplitPath, "%s: want a share above 0 and below 1", quantity.Exact(share))
	}
	return holdout{hi: share}.split(s)
}

// Held reports whether Split holds out the sample at an index.
func Held(index int, share float64) bool { return holdout{hi: share}.holds(uint64(index)) }

// holdout selects the samples to evaluate on: those with a hash, from 0 to below 1, of at least lo
// and below hi. The zero value selects none.
type holdout struct {
	lo, hi float64
	fold   string // "fold 2 of 5"; "" for a share
}

// holdout returns the selection of the fold or the share.
func (c Config) holdout() holdout {
	if c.Folds == 0 {
		return holdout{hi: cmp.Or(c.Split, usualSplit)}
	}
	return holdout{float64(c.Fold) / float64(c.Folds), float64(c.Fold+1) / float64(c.Folds), fmt.Sprintf("fold %d of %d", c.Fold+1, c.Folds)}
}

// String describes which samples are held out.
func (h holdout) String() string {
	if h.fold != "" {
		return h.fold
	}
	return fmt.Sprintf("%v %s", datafile.SplitPath, quantity.Exact(h.hi))
}

// note describes which samples are held out, for one of the first lines that a run prints.
func (h holdout) note() string {
	if h.fold != "" {
		return "held out for evaluation: " + h.fold
	}
	return fmt.Sprintf("held out for evaluation: a share of %s (%v)", quantity.Exact(h.hi), datafile.SplitPath)
}

// holds reports whether the sample with a number is held out.
func (h holdout) holds(number uint64) bool {
	const purpose = 0x3c6ef372fe94f82b
	r := prng.New(purpose, 0, number)
	u := r.Unit()
	return h.lo <= u && u < h.hi
}

// holdsPath reports whether an image is held out, by the path below its part's folder.
func (h holdout) holdsPath(path string) bool {
	sum := fnv.New64a()
	_, _ = io.WriteString(sum, path) // hash.Write never fails
	return h.holds(sum.Sum64())
}

// split divides a source. An empty part gets the last sample; with folds it is an error.
func (h holdout) split(s Source) (train, eval Source, err error) {
	n := s.Len()
	if n < 2 {
		return nil, nil, fmt.Errorf("%d samples cannot be split: both parts need at least one", n)
	}
	var in, out []int32
	for i := range int32(n) {
		if h.holds(uint64(i)) {
			out = append(out, i)
		} else {
			in = append(in, i)
		}
	}
	switch last := []int32{int32(n) - 1}; {
	case len(in) > 0 && len(out) > 0:
	case h.fold != "":
		return nil, nil, fmt.Errorf("%s has %d of %d samples: both parts need at least one: use fewer folds", h.fold, len(out), n)
	case len(out) == 0:
		in, out = in[:n-1], last
	default:
		in, out = last, out[:n-1]
	}
	return subset{s, in}, subset{s, out}, nil
}

// checkHoldout returns an error if the settings hold out samples although the data have an
// evaluation part, which format describes.
func (c Config) checkHoldout(format string, args ...any) error {
	format = "%v: no samples are held out, because " + format + ": remove one of the two"
	switch {
	case c.Folds > 0:
		return setting.Errorf(datafile.FoldsPath, format, slices.Insert(args, 0, any(c.Folds))...)
	case c.Split != 0:
		return setting.Errorf(datafile.SplitPath, format, slices.Insert(args, 0, any(quantity.Exact(c.Split)))...)
	}
	return nil
}
