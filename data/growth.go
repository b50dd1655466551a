package data

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/quantity"
)

const (
	maxSums     = 1 << 16 // checksums of a part; in a larger part each covers several samples
	maxDigested = 1 << 22 // samples of a part with a digest: one pass over them takes a second
)

// Digest identifies the samples of a set by checksums, in order. A run stores the digest in its
// checkpoints: [Dataset.CheckGrowth] then detects whether samples were only added.
type Digest struct {
	Train, Eval digestPart
	// Files are the names of the training files of a stream, which has no digest of its samples.
	Files []string `json:",omitempty"`
}

// digestPart is the digest of the training or of the evaluation samples.
type digestPart struct {
	N   int
	Per int      // samples of a checksum: 1 for up to 65,536 samples
	Set bool     // the order has no meaning, as in folders of images: Sums are sorted
	Sum []uint32 `json:",omitempty"` // CRC-32C
}

// Digest returns the digest of a set of files; nil for other sets and for more than 4,194,304
// samples. Cost: a pass over the samples, 0.1 µs each; images count by name and label, unread.
func (s *Dataset) Digest() *Digest {
	if s.Eval == nil || !slices.Contains([]string{"table", "images", "imagenet", "text", "chars", "criteo", "clicks"}, s.Name) {
		return nil
	}
	d := new(Digest)
	for _, f := range s.Files {
		d.Files = append(d.Files, filepath.Base(f))
	}
	for part, src := range map[*digestPart]Source{&d.Train: s.Train, &d.Eval: s.Eval} {
		if src == nil {
			continue
		}
		if part.N = src.Len(); part.N > maxDigested {
			return nil
		}
		for part.Per = 1; part.N > maxSums*part.Per; {
			part.Per *= 2
		}
		var err error
		if part.Sum, part.Set, err = sumsOf(src, part.N, part.Per); err != nil || part.Set && part.Per > 1 {
			return nil // the run reports the error when it reads the samples
		}
	}
	return d
}

// sumsOf returns checksums of the first n samples. set reports that the order has no meaning.
func sumsOf(src Source, n, per int) (sums []uint32, set bool, err error) {
	for {
		limited, ok := src.(head)
		if !ok {
			break
		}
		src = limited.Source
	}
	if e, ok := src.(*encoded); ok {
		for i := range n {
			sums = append(sums, crc32c.Checksum(fmt.Appendf(nil, "%d %s", e.Labels[i], e.Pictures[i].Key)))
		}
		slices.Sort(sums)
		return sums, true, nil
	}
	one, shape := []int32{0}, src.Shape()
	var b Batch
	for lo := 0; lo < n; lo += per {
		sum := crc32c.New()
		for i := lo; i < min(lo+per, n); i++ {
			one[0] = int32(i)
			if err := src.Fill(&b, one, Draw{}); err != nil {
				return nil, false, err
			}
			(&memory{shape, b}).evidence(io.Writer(sum))
		}
		sums = append(sums, sum.Sum32())
	}
	return sums, false, nil
}

// changedSamples are samples that differ from those of a checkpoint.
type changedSamples struct {
	eval     bool // evaluation samples
	lo, hi   int  // range of the first difference, counted from 0; hi is 0 for images
	n, lacks int  // earlier samples and, for images, the number that are now missing
}

// text describes the samples, with the place of a row of a table.
func (c *changedSamples) text(rows [2]tableRows) string {
	part, place := map[bool]string{false: "training", true: "evaluation"}[c.eval], ""
	switch {
	case c.hi == 0:
		return fmt.Sprintf("%d of the %s %s samples of the checkpoint are missing", c.lacks, quantity.Group(c.n), part)
	default:
		of := rows[0]
		if c.eval {
			of = rows[1]
		}
		if places, _ := of.places([]int32{int32(c.lo)}, 0); places[0] != "" {
			place = ": " + places[0]
		}
	}
	if c.hi == c.lo+1 {
		return fmt.Sprintf("%s sample %d of the %d of the checkpoint differs or is missing%s", part, c.hi, c.n, place)
	}
	return fmt.Sprintf("one of the %s samples %d to %d of the %d of the checkpoint differs or is missing%s", part, c.lo+1, c.hi, c.n, place)
}

// CheckGrowth compares the set with an earlier digest of a run. The earlier samples must still come
// first in each part (images: anywhere); else the error has the first difference. With other, as
// for files of another name, all samples may be new, but no earlier evaluation sample may be a
// training sample. The result describes the new samples.
func (s *Dataset) CheckGrowth(before *Digest, other bool) (lines []string, err error) {
	var more [2]int
	for i, p := range []struct {
		before digestPart
		src    Source
	}{{before.Train, s.Train}, {before.Eval, s.Eval}} {
		if p.src == nil {
			continue
		}
		more[i] = p.src.Len() - p.before.N
		if c := p.before.changed(p.src); c != nil {
			if c.eval = i == 1; !other || c.lo > c.n/100 || c.hi == 0 {
				return nil, fmt.Errorf("%s: append new rows after the earlier ones, name another file, or begin another run with --init-from", c.text(s.rows))
			}
			return s.replaces(before)
		}
	}
	if len(s.Files) > 0 {
		fresh := slices.DeleteFunc(slices.Clone(s.Files), func(f string) bool { return slices.Contains(before.Files, filepath.Base(f)) })
		lines = append(lines, fmt.Sprintf("the checkpoint's training files and these: %s of %d new", quantity.Group(len(fresh)), len(s.Files)))
	}
	if more != [2]int{} {
		lines = append(lines, fmt.Sprintf("new samples: %s to train on, %s to evaluate on; the %s and %s of the checkpoint are unchanged",
			quantity.Group(more[0]), quantity.Group(more[1]), quantity.Group(before.Train.N), quantity.Group(before.Eval.N)))
	}
	return lines, nil
}

// changed compares the first samples of a source with the digest; nil means equal.
func (p digestPart) changed(src Source) *changedSamples {
	n := min(p.N, src.Len())
	if p.Set {
		n = src.Len()
	}
	sums, set, err := sumsOf(src, n, max(1, p.Per))
	if set || err != nil || p.Set {
		lacks := 0
		for i, k := 0, 0; i < len(p.Sum); i++ {
			for k < len(sums) && sums[k] < p.Sum[i] {
				k++
			}
			if k < len(sums) && sums[k] == p.Sum[i] {
				k++
			} else {
				lacks++
			}
		}
		if lacks > 0 || err != nil || set != p.Set {
			return &changedSamples{n: p.N, lacks: lacks}
		}
		return nil
	}
	for i, sum := range p.Sum {
		if i >= len(sums) || sums[i] != sum {
			return &changedSamples{lo: i * p.Per, hi: min((i+1)*p.Per, p.N), n: p.N}
		}
	}
	return nil
}

// replaces describes a set in which other samples replace all samples of before.
func (s *Dataset) replaces(before *Digest) ([]string, error) {
	held := map[uint32]bool{}
	for _, sum := range before.Eval.Sum {
		held[sum] = before.Eval.Per == 1
	}
	sums, _, err := sumsOf(s.Train, s.Train.Len(), 1)
	if err != nil {
		return nil, err
	}
	among := func(sums []uint32) int {
		found := map[uint32]bool{}
		for _, sum := range sums {
			if held[sum] {
				found[sum] = true
			}
		}
		return len(found)
	}
	n, equal := among(sums), among(before.Train.Sum) // rows of few different values are often equal
	if n > 2+2*equal+before.Eval.N/100 {
		return nil, fmt.Errorf("%d of the %d samples that the checkpoint's run held out for evaluation are training samples here: append new rows after the earlier ones, or begin another run with --init-from", n, before.Eval.N)
	}
	text := fmt.Sprintf("other samples: %s to train on, %s to evaluate on, instead of %s and %s of the checkpoint",
		quantity.Group(s.Train.Len()), quantity.Group(s.Eval.Len()), quantity.Group(before.Train.N), quantity.Group(before.Eval.N))
	if before.Eval.Per > 1 {
		text += "; too many for a search for samples that were held out before"
	}
	return []string{text}, nil
}
