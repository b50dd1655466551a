package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// Bags are the keys of N samples in some slots, slot after slot and within a slot sample after sample. Bag slot*N+sample has
// Keys[Offsets[slot*N+sample]:Offsets[slot*N+sample+1]]: none where the sample has nothing there. A key stands for a value in
// a slot, see ClickKey; any 64 bits are one.
type Bags struct {
	Keys    []uint64
	Offsets []int32 // slots*N+1, from 0 and never falling; nil or 0 alone: no slots
}

// maxKeys is how many keys a batch can have at most.
const maxKeys = datafile.MaxElements

// begin makes room for the offsets of n samples, and has no keys.
func (b *Bags) begin(slots, n int) {
	b.Keys = b.Keys[:0]
	if slots == 0 {
		b.Offsets = b.Offsets[:0]
		return
	}
	b.Offsets = bytesview.Sized(b.Offsets, slots*n+1)
	clear(b.Offsets)
}

// Bag is the keys of a sample, of n, in a slot.
func (b *Bags) Bag(slot, n, sample int) []uint64 {
	i := slot*n + sample
	return b.Keys[b.Offsets[i]:b.Offsets[i+1]]
}

// validate reports bags that are not those of n samples.
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

// take makes b the bags of some samples of all, which has those of n.
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

// fromRows makes b the bags of n samples from rows of one key for each slot, where 0 stands for an empty bag.
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
