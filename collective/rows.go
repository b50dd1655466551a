package collective

import "slices"

// Allreduce by rows, the form of the pairwise allreduce for up to 11 ranks. The segments at the
// same offset of all chunks form a row. Every rank sends each other rank its operand for that
// rank's segment, adds the operands for its own segment in one pass, in the order of the ranks, and
// sends the sum to all, while the sums of the previous row arrive.
//
// Cost: 2a + 2(N-1)/N K/B + K/N/G, in 2(N-1) messages per row: the ring's bytes in two steps
// instead of 2(N-1). Ranks that share a host gain most: operands are added while in the cache, an
// owner's chunk is read and written once instead of in each of N-1 steps, and other ranks read sums
// that are still in its cache.

// rows is an allreduce by rows.
type rows struct {
	*Work
	bytes int // bytes of a segment
	count int // number of rows
}

const (
	// rowCache is the maximum size in bytes of the operands of one row: longer rows leave the
	// caches, and shorter ones make ranks wait for each other more often.
	rowCache = 4 << 20
	leastRow = 64 << 10
)

// most returns the maximum segment size, in general Config.SegmentBytes. More than two ranks often
// share cores. For them the maximum is doubled if one row then suffices, since ranks wait for each
// other in each row: on two cores four ranks took 4 % less time and three 8 % less, but two 14 %
// more. Longer chunks take several rows anyway; there the smaller segments keep more operands in a
// cache: four ranks took 17 to 22 % less time for 8 MiB, 11 to 12 % for 16 and 14 % for 64 (AMD
// EPYC, Zen 5).
func (r rows) most() int {
	n := r.segmentBytes()
	if r.scope.size > 2 && r.largest() <= 2*n {
		return 2 * n
	}
	return n
}

// newRows plans the rows; ok is false if they need more simultaneous receives than slots.
func (w *Work) newRows() (r rows, ok bool) {
	peers := w.scope.size - 1
	if 3*peers > slots {
		return r, false
	}
	r = rows{Work: w}
	r.bytes = min(r.most(), max(leastRow, rowCache/peers&^(leastRow-1)))
	r.count = (w.largest() + r.bytes - 1) / r.bytes
	return r, true
}

// part returns the segment, possibly empty, that a row has of the chunk of the rank at place.
func (r rows) part(place, row int) []byte {
	p := r.region(place)
	return p[min(len(p), row*r.bytes):min(len(p), (row+1)*r.bytes)]
}

func (r rows) allReduce() error {
	r.arrivalBuffers(r.scope.size-1, r.bytes)
	for row := range r.count {
		if err := r.spread(row); err != nil {
			return err
		}
		if err := r.sum(row); err != nil {
			return err
		}
		if row > 0 { // the sums of the current row have just begun to arrive
			if err := r.take(row - 1); err != nil {
				return err
			}
		}
	}
	if r.count == 0 {
		return nil
	}
	return r.take(r.count - 1)
}

// Slots of receives: one per peer for operands, then two per peer for sums, for alternate rows.

func (r rows) operandSlot(k int) int { return k - 1 }

func (r rows) sumSlot(row, k int) int { return (1+row%2)*(r.scope.size-1) + k - 1 }

// operand returns the buffer, of n bytes, for the operand from the rank k places back.
func (r rows) operand(k, n int) []byte { return r.spaceOf(r.operandSlot(k), r.scope.size-1, n) }

// spread posts the receives of a row, and sends each rank the operand for its segment.
func (r rows) spread(row int) error {
	own := r.part(r.scope.rank, row)
	for k := 1; k < r.scope.size; k++ {
		_, from := r.places(k)
		if len(own) > 0 {
			r.postTo(r.operandSlot(k), row, from, r.operand(k, len(own)))
		}
		if sum := r.part(from, row); len(sum) > 0 {
			r.postTo(r.sumSlot(row, k), sumNumber|row, from, sum)
		}
	}
	for k := 1; k < r.scope.size; k++ {
		to, _ := r.places(k)
		if p := r.part(to, row); len(p) > 0 {
			if err := r.send(row, to, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// sumNumber is added to the message numbers of sums; messages with lower numbers have operands.
const sumNumber = 1 << numberBits

// sum adds a row's operands, in the order of the ranks, and sends the result to all ranks.
func (r rows) sum(row int) error {
	own := r.part(r.scope.rank, row)
	if len(own) == 0 {
		return nil
	}
	r.srcs = slices.Grow(r.srcs[:0], r.scope.size)[:r.scope.size]
	r.srcs[r.scope.rank] = own
	for k := 1; k < r.scope.size; k++ {
		_, from := r.places(k)
		if err := r.waitFor(r.operandSlot(k), from); err != nil {
			return err
		}
		r.srcs[from] = r.operand(k, len(own))
	}
	r.dsts = append(r.dsts[:0], own)
	r.fold(r.dsts, r.srcs)
	for k := 1; k < r.scope.size; k++ {
		to, _ := r.places(k)
		if err := r.send(sumNumber|row, to, own); err != nil {
			return err
		}
	}
	return nil
}

// take waits for the sums of a row.
func (r rows) take(row int) error {
	for k := 1; k < r.scope.size; k++ {
		_, from := r.places(k)
		if len(r.part(from, row)) == 0 {
			continue
		}
		if err := r.waitFor(r.sumSlot(row, k), from); err != nil {
			return err
		}
	}
	return nil
}
