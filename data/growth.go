package data

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

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

// sumsOf returns checksums of the first n samples. set reports whether their order has no meaning,
// as for images.
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
	eval bool    // evaluation samples
	per  int     // samples of a checksum; 0 for images
	at   []int32 // the first samples of the first differing checksums, at most 5, from 0
	n    int     // samples of the checkpoint
	sums int     // differing checksums; of images, samples that are missing
}

// text describes the samples, with the places of rows of a table.
func (c *changedSamples) text(rows [2]tableRows) string {
	part, of := "training", rows[0]
	if c.eval {
		part, of = "evaluation", rows[1]
	}
	if c.per == 0 {
		return fmt.Sprintf("%d of the %s %s samples of the checkpoint are missing", c.sums, quantity.Group(c.n), part)
	}
	var names []string
	places, _ := of.places(c.at, 0)
	for i, lo := range c.at {
		name := quantity.Group(int(lo) + 1)
		if hi := min(int(lo)+c.per, c.n); hi > int(lo)+1 {
			name += " to " + quantity.Group(hi)
		}
		if places[i] != "" {
			name += " (" + places[i] + ")"
		}
		names = append(names, name)
	}
	several, number := "", "number "
	if c.per > 1 {
		several, number = fmt.Sprintf("groups of %d of the ", c.per), "samples "
	}
	if c.sums > len(c.at) {
		number = "first " + number
	}
	return fmt.Sprintf("%s of the %s%s %s samples of the checkpoint differ or are missing: %s%s",
		quantity.Group(c.sums), several, quantity.Group(c.n), part, number, strings.Join(names, ", "))
}

// CheckGrowth compares the set with a digest of the same run's earlier data. The earlier samples
// must still come first in each part (images: anywhere); else the error lists the first five that
// differ. If other is true (files of another name), all samples may be new. But no earlier training
// sample may be an evaluation sample or, in a table that a hash divides, the reverse; and at most
// half of the earlier training samples may be among the new ones: a file with more is an edited
// copy. lines describes the new samples.
func (s *Dataset) CheckGrowth(before *Digest, other bool) (lines []string, err error) {
	var more [2]int
	var faults []string
	var train *changedSamples
	later := other
	for i, p := range []struct {
		before digestPart
		src    Source
	}{{before.Train, s.Train}, {before.Eval, s.Eval}} {
		if p.src == nil {
			continue
		}
		more[i] = p.src.Len() - p.before.N
		if c := p.before.changed(p.src); c != nil {
			if c.eval = i == 1; !c.eval {
				train = c
			}
			faults = append(faults, c.text(s.rows))
			later = later && c.per > 0
		}
	}
	if len(s.Files) > 0 {
		fresh := slices.DeleteFunc(slices.Clone(s.Files), func(f string) bool { return slices.Contains(before.Files, filepath.Base(f)) })
		lines = append(lines, fmt.Sprintf("the checkpoint's training files and these: %s of %d new", quantity.Group(len(fresh)), len(s.Files)))
	}
	switch {
	case len(faults) > 0 && later:
		replaced, err := s.replaces(before, train)
		return append(lines, replaced...), err
	case len(faults) > 0:
		remedy := "append new rows after the earlier ones, name another file"
		if before.Train.Set || before.Eval.Set {
			remedy = "restore them (data.train-limit and data.eval-limit select other images after additions)"
		}
		return nil, fmt.Errorf("%s: %s, or begin another run with --init-from", strings.Join(faults, "; "), remedy)
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
			return &changedSamples{n: p.N, sums: lacks}
		}
		return nil
	}
	c := &changedSamples{per: max(1, p.Per), n: p.N}
	for i, sum := range p.Sum {
		if i >= len(sums) || sums[i] != sum {
			if c.sums++; len(c.at) < 5 {
				c.at = append(c.at, int32(i*c.per))
			}
		}
	}
	if c.sums == 0 {
		return nil
	}
	return c
}

// replaces checks and describes a set in which other samples replace all of before. train are the
// training samples that differ at the same places, or nil.
func (s *Dataset) replaces(before *Digest, train *changedSamples) ([]string, error) {
	now, err := s.sums()
	if err != nil {
		return nil, err
	}
	var held, trained, kept int
	n, per := before.Eval.N, max(before.Train.Per, before.Eval.Per)
	if before.Eval.Per == 1 {
		held = among(before.Eval.Sum, now[0])
	}
	if before.Train.Per == 1 {
		trained, kept = among(now[1], before.Train.Sum), among(before.Train.Sum, now[0])
	}
	// equal is the share of samples that are equal to others by chance.
	equal := float64(among(now[1], now[0])) / float64(max(1, len(now[1])))
	if per == 1 {
		equal = float64(among(before.Eval.Sum, before.Train.Sum)) / float64(max(1, n))
	}
	most := func(n int) int { return 2 + n/100 + int(2*equal*float64(n)) }
	const remedy = "append new rows after the earlier ones, or begin another run with --init-from"
	switch {
	case held > most(n) && s.rows[0].Reader != nil && s.rows[0].Reader == s.rows[1].Reader:
		return nil, fmt.Errorf("%d of the %d samples that the checkpoint's run held out for evaluation are training samples here: %s", held, n, remedy)
	case trained > most(len(now[1])):
		return nil, fmt.Errorf("%d of the %d evaluation samples were training samples of the checkpoint's run: %s", trained, len(now[1]), remedy)
	case train != nil && (kept > max(train.n/2, most(train.n)) || equal < 0.5 && train.sums*train.per < train.n/10):
		return nil, fmt.Errorf("%s, but %s of these are here: a file of another name has either only later rows, or all earlier rows unchanged and further ones after them; begin another run with --init-from",
			train.text(s.rows), quantity.Group(max(kept, train.n-train.sums*train.per)))
	}
	text := fmt.Sprintf("other samples: %s to train on, %s to evaluate on, instead of %s and %s of the checkpoint",
		quantity.Group(len(now[0])), quantity.Group(len(now[1])), quantity.Group(before.Train.N), quantity.Group(n))
	if s.Train == nil {
		text = fmt.Sprintf("other samples to evaluate on: %s instead of %s of the checkpoint", quantity.Group(len(now[1])), quantity.Group(n))
	}
	switch {
	case held > most(n):
		text += fmt.Sprintf("; %s that were held out before are training samples now", quantity.Group(held))
	case per > 1 || s.Train == nil:
		text += "; too many, or a stream: not compared with the samples that were held out or trained on before"
	}
	return []string{text}, nil
}

// sums returns the checksums of each training sample (none of a stream) and evaluation sample.
func (s *Dataset) sums() (now [2][]uint32, err error) {
	for i, src := range []Source{s.Train, s.Eval} {
		if src != nil && err == nil {
			now[i], _, err = sumsOf(src, src.Len(), 1)
		}
	}
	return now, err
}

// among returns the number of checksums that are also in others.
func among(sums, others []uint32) (n int) {
	has := map[uint32]bool{}
	for _, sum := range others {
		has[sum] = true
	}
	for _, sum := range sums {
		if has[sum] {
			n++
		}
	}
	return n
}
