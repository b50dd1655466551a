package trainer

import (
	"fmt"
	"math/bits"
)

// keyIndex finds the different keys of one batch or of several and numbers them as they appear: a
// table of open addresses that is never cleared, about 5 ns a key while it lies in the caches.
type keyIndex struct {
	keys []uint64 // the different ones

	slots []slot // 2^n, at most half of which are taken
	round uint32 // slots of other rounds are free
}

type slot struct {
	key   uint64
	round uint32
	at    int32
}

// begin forgets all keys.
func (c *keyIndex) begin() {
	c.keys = c.keys[:0]
	if c.round++; c.round == 0 { // after 2^32 rounds
		clear(c.slots)
		c.round = 1
	}
}

// addIDs adds a batch's ids, from 0 to rows-1, and returns for each its place in keys, in the memory
// of mapped.
func (c *keyIndex) addIDs(ids []int32, rows int, mapped []int32) ([]int32, error) {
	c.room(len(c.keys) + len(ids))
	mapped = mapped[:0]
	for i, id := range ids {
		if uint(id) >= uint(rows) {
			return nil, fmt.Errorf("id %d of the batch is %d: want 0 to %d", i, id, rows-1)
		}
		mapped = append(mapped, c.place(uint64(id)))
	}
	return mapped, nil
}

// add adds keys and writes for each its place in keys to mapped.
func (c *keyIndex) add(keys []uint64, mapped []int32) {
	c.room(len(c.keys) + len(keys))
	for i, key := range keys {
		mapped[i] = c.place(key)
	}
}

// place is the key's place in keys. There is room for it.
func (c *keyIndex) place(key uint64) int32 {
	s := c.find(key)
	if s.round != c.round {
		*s = slot{key, c.round, int32(len(c.keys))}
		c.keys = append(c.keys, key)
	}
	return s.at
}

// find is the key's slot, or the free one where it belongs.
func (c *keyIndex) find(key uint64) *slot {
	shift := 64 - bits.Len(uint(len(c.slots)-1))
	at := key * 0x9e3779b97f4a7c15 >> shift // Fibonacci hashing
	for c.slots[at].round == c.round && c.slots[at].key != key {
		at = (at + 1) & uint64(len(c.slots)-1)
	}
	return &c.slots[at]
}

// room makes the table large enough for n keys.
func (c *keyIndex) room(n int) {
	size := 1 << bits.Len(uint(2*n))
	if size <= len(c.slots) {
		return
	}
	c.slots, c.round = make([]slot, size), 1
	for at, key := range c.keys {
		*c.find(key) = slot{key, c.round, int32(at)}
	}
}
