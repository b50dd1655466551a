package trainer

import (
	"fmt"
	"math/bits"
)

// compacter finds the different ids of a batch and numbers them as they appear: a table of
// open addresses that is never cleared, about 5 ns an id while it lies in the caches.
type compacter struct {
	keys   []uint64 // the different ids
	mapped []int32  // for each id of the batch, its place in keys

	slots []slot // 2^n, at most half of which are taken
	round uint32 // slots of other rounds are free
}

type slot struct {
	round  uint32
	id, at int32
}

// map32 fills keys and mapped.
func (c *compacter) map32(ids []int32, rows int) error {
	if n := 1 << bits.Len(uint(2*len(ids))); n > len(c.slots) {
		c.slots, c.round = make([]slot, n), 0
	}
	if c.round++; c.round == 0 { // after 2^32 batches
		clear(c.slots)
		c.round = 1
	}
	c.keys, c.mapped = c.keys[:0], c.mapped[:0]
	shift := 32 - bits.Len(uint(len(c.slots)-1))
	for i, id := range ids {
		if uint(id) >= uint(rows) {
			return fmt.Errorf("id %d of the batch is %d: want 0 to %d", i, id, rows-1)
		}
		at := uint32(id) * 0x9e3779b1 >> shift // Fibonacci hashing
		for c.slots[at].round == c.round && c.slots[at].id != id {
			at = (at + 1) & uint32(len(c.slots)-1)
		}
		s := &c.slots[at]
		if s.round != c.round {
			*s = slot{c.round, id, int32(len(c.keys))}
			c.keys = append(c.keys, uint64(id))
		}
		c.mapped = append(c.mapped, s.at)
	}
	return nil
}
