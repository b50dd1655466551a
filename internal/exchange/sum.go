package exchange

import (
	"github.com/ringo-ml/ringo/compress"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// sumBlock is how many values of a sum are made at a time: they stay in the second
// level's cache while all ranks' entries are added.
const sumBlock = 1 << 15

// sum makes x the sum of vectors of its length, added in their order to zero. Each
// place of x goes through memory once: O(len(x) + entries).
func (e *GroupReducer) sum(x []float32, vectors []*compress.Sparse) {
	e.from = bytesview.Sized(e.from, len(vectors))
	clear(e.from)
	for at := 0; at < len(x); at += sumBlock {
		block := x[at:min(at+sumBlock, len(x))]
		clear(block)
		for i, v := range vectors {
			if len(v.Value) == len(x) { // every entry is present
				e.kernels.Add(block, v.Value[at:at+len(block)])
				continue
			}
			e.from[i] += addEntries(block, v.Index[e.from[i]:], v.Value[e.from[i]:], uint32(at))
		}
	}
}

// addEntries adds the entries that lie in block, which begins at place at, and
// returns how many these are.
func addEntries(block []float32, index []int32, value []float32, at uint32) int {
	value = value[:len(index)]
	for i, place := range index {
		to := uint(uint32(place) - at)
		if to >= uint(len(block)) {
			return i
		}
		block[to] += value[i]
	}
	return len(index)
}
