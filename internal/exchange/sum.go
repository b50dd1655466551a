package exchange

import (
	"github.com/ringo-ml/ringo/compress"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// sumBlock is the number of values summed at a time, which stay in the second-level cache while all
// ranks' entries are added.
const sumBlock = 1 << 15

// sum sets x to the sum of vectors of its length, added in order to zero. x passes through memory
// once: O(len(x) + entries).
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

// addEntries adds the entries within block, which begins at index at, and returns their number.
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
