package trainer

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// Lookup selects the ids or keys of a batch for a table.
type Lookup struct {
	// Rows is the number of rows of a table that is looked up by ids, from 0 to Rows-1; 0 for a
	// table that is looked up by keys, with up to 2^64 rows.
	Rows int
	// Slots has, for a table that is looked up by keys, the number of last keys of each bag, by
	// slot: -1 means all, 0 none, as for slots after its end.
	Slots []int
}

// Batch has the ids and keys that a pass looks up.
type Batch struct {
	// IDs are the ids of the samples, equally many per sample and sample by sample.
	IDs []int32
	// Keys are the keys of the bags of N samples, slot by slot and sample by sample: bag
	// slot*N+sample has Keys[Offsets[slot*N+sample]:Offsets[slot*N+sample+1]].
	Keys    []uint64
	Offsets []int32
	N       int
}

// bag returns the range of a bag's last keys, at most most; below 0: all.
func (b *Batch) bag(slot, sample, most int) (lo, hi int) {
	i := slot*b.N + sample
	lo, hi = int(b.Offsets[i]), int(b.Offsets[i+1])
	if most >= 0 {
		lo = max(lo, hi-most)
	}
	return lo, hi
}

// group has tables with equal lookups, which share the row numbers of a batch. A linear model and
// embeddings of the same slots, as in wide-deep, form one group: the main cost of a batch, finding
// its distinct keys, is paid once for both. Tables of one slot each, as in dlrm, are a group each,
// and together cost the same as one table of all slots.
type group struct {
	Lookup
	tables []int
}

func groups(lookups []Lookup) (out []group) {
	for table, l := range lookups {
		at := slices.IndexFunc(out, func(g group) bool { return g.Rows == l.Rows && slices.Equal(g.Slots, l.Slots) })
		if at < 0 {
			at = len(out)
			out = append(out, group{Lookup: l})
		}
		out[at].tables = append(out[at].tables, table)
	}
	return out
}

// add adds the selected part of a batch to c, and returns the indices, in the memory of mapped.
func (l *Lookup) add(c *keyIndex, b *Batch, mapped []int32) ([]int32, error) {
	if l.Rows > 0 {
		return c.addIDs(b.IDs, l.Rows, mapped)
	}
	if need := len(l.Slots)*b.N + 1; len(l.Slots) > 0 && len(b.Offsets) < need {
		return nil, fmt.Errorf("%d samples have %d offsets of bags: want %d for %d slots", b.N, len(b.Offsets), need, len(l.Slots))
	}
	mapped = bytesview.Sized(mapped, len(b.Keys))
	for slot, most := range l.Slots {
		if most < 0 { // a slot's keys are contiguous
			lo, hi := b.Offsets[slot*b.N], b.Offsets[(slot+1)*b.N]
			c.add(b.Keys[lo:hi], mapped[lo:hi])
			continue
		}
		for sample := range b.N {
			lo, hi := b.bag(slot, sample, most)
			c.add(b.Keys[lo:hi], mapped[lo:hi])
		}
	}
	return mapped, nil
}

// count counts for each row of a batch its shows and its clicks, the samples with label 1.
func (l *Lookup) count(b *Batch, mapped []int32, labels []int32, counts []float32) {
	show := func(rows []int32, label int32) {
		click := float32(0)
		if label == 1 {
			click = 1
		}
		for _, row := range rows {
			counts[2*row]++
			counts[2*row+1] += click
		}
	}
	if l.Rows > 0 {
		each := len(mapped) / len(labels)
		for i, label := range labels {
			show(mapped[i*each:][:each], label)
		}
		return
	}
	for slot, most := range l.Slots {
		for i, label := range labels {
			lo, hi := b.bag(slot, i, most)
			show(mapped[lo:hi], label)
		}
	}
}
