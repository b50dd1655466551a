package client

import (
	"fmt"
	"math/bits"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/ps/schema"
)

// splitter divides the keys of a batch by the server that has their rows. It is for one goroutine
// at a time.
type splitter struct {
	servers int
	owner   []uint16 // owners of the sent keys
	at      []int32  // start of each server's keys, and the end

	// set is a hash set of a batch's keys. An entry has the key's index and the number of the
	// batch, so that the set need not be cleared.
	set    []uint64
	round  uint64
	unique []int32 // batch indices of distinct keys
}

// duplicate is a repeated key of a batch: the rows at both indices are equal.
type duplicate struct{ place, first int32 }

const roundLimit = 1 << 32 // entries have 32 bits for the round

// merge finds duplicate keys: unique has the index of each key's first occurrence; the indices of
// further occurrences are appended to dups.
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

// split sorts places (nil: all indices of the batch) by the server of the key, stably, and returns
// them in the memory of order. group then returns the range of one server.
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
	copy(s.at[1:], s.at[:s.servers]) // ends become starts
	s.at[0] = 0
	return order
}

// group returns the range of a server's keys in the result of split.
func (s *splitter) group(server int) (lo, hi int) { return int(s.at[server]), int(s.at[server+1]) }

// sum adds up the gradients of duplicate keys in order of appearance: row i of the sum belongs to
// the key at index unique[i].
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

func checkRows(keys []uint64, values []float32, dim int) error {
	if len(values) != len(keys)*dim {
		return fmt.Errorf("%d values for %d rows of %d", len(values), len(keys), dim)
	}
	return nil
}
