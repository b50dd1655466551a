package trainer

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// Lookup says what of a batch a table is looked up by.
type Lookup struct {
	// Rows is how many rows a table has that is looked up by ids, from 0 to Rows-1; one that is looked up by keys has 0: it
	// may have 2^64.
	Rows int
	// Slots are, where it is looked up by keys, how many of the last keys of each bag are, by slot: -1 is all, 0 none, as of slots
	// behind its end.
	Slots []int
}

// Batch is what a pass looks up.
type Batch struct {
	// IDs are those of the samples, one sample after the other and as many each.
	IDs []int32
	// Keys are those of bags of N samples, slot after slot and within a slot sample after sample: bag slot*N+sample has
	// Keys[Offsets[slot*N+sample]:Offsets[slot*N+sample+1]].
	Keys    []uint64
	Offsets []int32
	N       int
}

// bag is where the keys of a bag are, the last most of them; below 0: all.
func (b *Batch) bag(slot, sample, most int) (lo, hi int) {
	i := slot*b.N + sample
	lo, hi = int(b.Offsets[i]), int(b.Offsets[i+1])
	if most >= 0 {
		lo = max(lo, hi-most)
	}
	return lo, hi
}

// group are tables that are looked up by the same: in a batch their rows have the same places. A linear model and embeddings of the same
// slots, as wide-deep has them, are one group: what costs most of a batch, to find its different keys, is done once for both. Tables
// of a slot each, as those of dlrm, are a group each, and together cost what one of all slots would.
type group struct {
	Lookup
	tables []int
}

// groups are those of tables.
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

// add adds what of a batch is looked up to c, and returns its places, in the memory of mapped.
func (l *Lookup) add(c *keyIndex, b *Batch, mapped []int32) ([]int32, error) {
	if l.Rows > 0 {
		return c.addIDs(b.IDs, l.Rows, mapped)
	}
	if need := len(l.Slots)*b.N + 1; len(l.Slots) > 0 && len(b.Offsets) < need {
		return nil, fmt.Errorf("%d samples have %d offsets of bags: want %d for %d slots", b.N, len(b.Offsets), need, len(l.Slots))
	}
	mapped = bytesview.Sized(mapped, len(b.Keys))
	for slot, most := range l.Slots {
		if most < 0 { // the slot's are side by side
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

// count counts for each row of a batch its shows and, of samples whose label is 1, its clicks.
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
