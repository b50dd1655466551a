package trainer

import (
	"fmt"
	"math/bits"
)

// compacter finds the different ids of one batch or of several and numbers them as they appear: a
// table of open addresses that is never cleared, about 5 ns an id while it lies in the caches.
type compacter struct {
	keys []uint64 // the different ids

	slots []slot // 2^n, at most half of which are taken
	round uint32 // slots of other rounds are free
}

type slot struct {
	round  uint32
	id, at int32
}

// begin forgets all ids.
func (c *compacter) begin() {
	c.keys = c.keys[:0]
	if c.round++; c.round == 0 { // after 2^32 rounds
		clear(c.slots)
		c.round = 1
	}
}

// add adds a batch's ids, from 0 to rows-1, and returns for each its place in keys, in the memory
// of mapped.
func (c *compacter) add(ids []int32, rows int, mapped []int32) ([]int32, error) {
	c.room(len(c.keys) + len(ids))
	mapped = mapped[:0]
	for i, id := range ids {
		if uint(id) >= uint(rows) {
			return nil, fmt.Errorf("id %d of the batch is %d: want 0 to %d", i, id, rows-1)
		}
		s := c.find(id)
		if s.round != c.round {
			*s = slot{c.round, id, int32(len(c.keys))}
			c.keys = append(c.keys, uint64(id))
		}
		mapped = append(mapped, s.at)
	}
	return mapped, nil
}

// find is the id's slot, or the free one where it belongs.
func (c *compacter) find(id int32) *slot {
	shift := 32 - bits.Len(uint(len(c.slots)-1))
	at := uint32(id) * 0x9e3779b1 >> shift // Fibonacci hashing
	for c.slots[at].round == c.round && c.slots[at].id != id {
		at = (at + 1) & uint32(len(c.slots)-1)
	}
	return &c.slots[at]
}

// room makes the table large enough for n ids.
func (c *compacter) room(n int) {
	size := 1 << bits.Len(uint(2*n))
	if size <= len(c.slots) {
		return
	}
	c.slots, c.round = make([]slot, size), 1
	for at, key := range c.keys {
		*c.find(int32(key)) = slot{c.round, int32(key), int32(at)}
	}
}
