package data

import (
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/prng"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// usualSplit is the default share of samples held out if the set has no evaluation part.
const usualSplit = 0.1

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
	held, err := heldOut(s.Len(), share)
	if err != nil {
		return nil, nil, err
	}
	var in, out []int32
	for i, h := range held {
		if h {
			out = append(out, int32(i))
		} else {
			in = append(in, int32(i))
		}
	}
	return subset{s, in}, subset{s, out}, nil
}

// heldOut returns for each of n samples whether it is held out.
func heldOut(n int, share float64) ([]bool, error) {
	if !(share > 0 && share < 1) {
		return nil, setting.Errorf(datafile.SplitPath, "%s: want a share above 0 and below 1", quantity.Exact(share))
	}
	if n < 2 {
		return nil, fmt.Errorf("%d samples cannot be split: both parts need at least one", n)
	}
	held := make([]bool, n)
	count := 0
	for i := range held {
		if held[i] = Held(i, share); held[i] {
			count++
		}
	}
	if count == 0 || count == n { // few samples: the last sample is the other part
		held[n-1] = count == 0
	}
	return held, nil
}

// Held reports whether Split holds out the sample at an index.
func Held(index int, share float64) bool {
	const purpose = 0x3c6ef372fe94f82b
	r := prng.New(purpose, 0, uint64(index))
	return r.Unit() < share
}
