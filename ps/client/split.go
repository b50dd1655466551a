package client

import (
	"fmt"
	"math/bits"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/ps/schema"
)

// splitter cuts the keys of a batch by owner. It belongs to one goroutine at a time.
type splitter struct {
	servers int
	owner   []uint16 // of each key that travels
	at      []int32  // by server, where its keys begin in order; one more: the end

	// A set of the keys of a batch: an entry is the round in which it was made, so
	// that nothing has to be cleared, and the key's place among those that travel.
	set    []uint64
	round  uint64
	unique []int32 // places in the batch of the keys that travel
}

// duplicate is a key that is in a batch again: the rows at two of its places are equal.
type duplicate struct{ place, first int32 }

const roundLimit = 1 << 32 // an entry has 32 bits for its round

// merge finds keys that are in the batch more than once: unique are the places where
// each is first, dups, appended to what is given, the others.
func (s *splitter) merge(keys []uint64, dups []duplicate) (unique []int32, _ []duplicate) {
	size := 2 << bits.Len(uint(len(keys)))
	if len(s.set) < size {
		s.set, s.round = make([]uint64, size), 0
	}
	if s.round++; s.round >= roundLimit {
		clear(s.set)
		s.round = 1
	}
	s.unique = s.unique[:0]
	shift := uint(64 - bits.Len(uint(len(s.set)-1)))
	mask := uint64(len(s.set) - 1)
next:
	for i, key := range keys {
		at := key * 0x9e3779b97f4a7c15 >> shift
		for ; s.set[at]>>32 == s.round; at = (at + 1) & mask {
			if first := int32(uint32(s.set[at])); keys[first] == key {
				dups = append(dups, duplicate{int32(i), first})
				continue next
			}
		}
		s.set[at] = s.round<<32 | uint64(i)
		s.unique = append(s.unique, int32(i))
	}
	return s.unique, dups
}

// split sorts places of the batch by the owner of the key there, in order, into order.
// places nil stands for all. group returns then which of them a server has.
func (s *splitter) split(keys []uint64, places []int32, order []int32) []int32 {
	n := len(places)
	if places == nil {
		n = len(keys)
	}
	s.owner, order = bytesview.Sized(s.owner, n), bytesview.Sized(order, n)
	s.at = bytesview.Sized(s.at, s.servers+1)
	clear(s.at)
	for i := range n {
		p := int32(i)
		if places != nil {
			p = places[i]
		}
		o := schema.Owner(keys[p], s.servers)
		s.owner[i] = uint16(o)
		s.at[o]++
	}
	sum := int32(0)
	for o, count := range s.at[:s.servers] {
		s.at[o] = sum
		sum += count
	}
	for i := range n {
		p := int32(i)
		if places != nil {
			p = places[i]
		}
		to := &s.at[s.owner[i]]
		order[*to] = p
		*to++
	}
	copy(s.at[1:], s.at[:s.servers]) // each is where the next begins
	s.at[0] = 0
	return order
}

// group is the range of a server's keys in what split returned.
func (s *splitter) group(server int) (lo, hi int) { return int(s.at[server]), int(s.at[server+1]) }

// sum adds up the gradients of keys that are in the batch more than once, in the order
// in which they appear: row i of the sum is that of place unique[i].
func sum(dst, grads []float32, dim int, unique []int32, dups []duplicate, row []int32) []float32 {
	dst = bytesview.Sized(dst, len(unique)*dim)
	for i, p := range unique {
		copy(dst[i*dim:][:dim], grads[int(p)*dim:][:dim])
		row[p] = int32(i)
	}
	for _, d := range dups {
		to, from := dst[int(row[d.first])*dim:][:dim], grads[int(d.place)*dim:][:dim]
		for j, v := range from {
			to[j] += v
		}
	}
	return dst
}

// checkRows compares the lengths of keys and values.
func checkRows(keys []uint64, values []float32, dim int) error {
	if len(values) != len(keys)*dim {
		return fmt.Errorf("%d values for %d rows of %d", len(values), len(keys), dim)
	}
	return nil
}
