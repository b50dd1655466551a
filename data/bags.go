package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// Bags holds the keys of N samples, ordered by slot (field of a sample), and within a slot by
// sample. A bag is the keys of one sample in one slot. Bag slot*N+sample is
// Keys[Offsets[slot*N+sample]:Offsets[slot*N+sample+1]], empty for a missing value. A key is any
// 64-bit number and identifies a value of a slot, see ClickKey.
type Bags struct {
	Keys    []uint64
	Offsets []int32 // slots*N+1 offsets, ascending from 0; nil or 0 alone: no slots
}

// maxKeys limits the keys of a batch.
const maxKeys = datafile.MaxElements

// begin removes all keys and allocates the offsets of n samples.
func (b *Bags) begin(slots, n int) {
	b.Keys = b.Keys[:0]
	if slots == 0 {
		b.Offsets = b.Offsets[:0]
		return
	}
	b.Offsets = bytesview.Sized(b.Offsets, slots*n+1)
	clear(b.Offsets)
}

// Bag returns the keys of a sample in a slot of a batch of n samples.
func (b *Bags) Bag(slot, n, sample int) []uint64 {
	i := slot*n + sample
	return b.Keys[b.Offsets[i]:b.Offsets[i+1]]
}

// validate returns an error if the bags do not fit n samples.
func (b *Bags) validate(slots, n int) error {
	if slots == 0 {
		if len(b.Keys) > 0 || len(b.Offsets) > 1 {
			return fmt.Errorf("data: %d keys and %d offsets of bags, but samples have no slots", len(b.Keys), len(b.Offsets))
		}
		return nil
	}
	if len(b.Offsets) != slots*n+1 || b.Offsets[0] != 0 {
		return fmt.Errorf("data: %d samples with %d slots: want %d offsets of bags, from 0, but there are %d", n, slots, slots*n+1, len(b.Offsets))
	}
	for i := range slots * n {
		if b.Offsets[i+1] < b.Offsets[i] {
			return fmt.Errorf("data: bag %d ends at %d, before it begins at %d", i, b.Offsets[i+1], b.Offsets[i])
		}
	}
	if last := b.Offsets[slots*n]; int(last) != len(b.Keys) {
		return fmt.Errorf("data: the last bag ends at %d, but there are %d keys", last, len(b.Keys))
	}
	return nil
}

// take sets b to the bags of samples idx; all has the bags of n samples.
func (b *Bags) take(all *Bags, slots, n int, idx []int32) error {
	b.begin(slots, len(idx))
	at := 0
	for slot := range slots {
		for _, i := range idx {
			bag := all.Bag(slot, n, int(i))
			if len(b.Keys)+len(bag) > maxKeys {
				return fmt.Errorf("data: a batch of %d samples has more than %d keys: use a smaller batch", len(idx), maxKeys)
			}
			b.Keys = append(b.Keys, bag...)
			at++
			b.Offsets[at] = int32(len(b.Keys))
		}
	}
	return nil
}

// fromRows sets b to the bags of n samples, from rows with one key per slot; key 0 is an empty bag.
func (b *Bags) fromRows(rows []uint64, slots, n int) {
	b.begin(slots, n)
	at := 0
	for slot := range slots {
		for i := range n {
			if key := rows[i*slots+slot]; key != 0 {
				b.Keys = append(b.Keys, key)
			}
			at++
			b.Offsets[at] = int32(len(b.Keys))
		}
	}
}
