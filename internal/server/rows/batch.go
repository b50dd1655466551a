package rows

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// blockRows is the number of rows processed at a time: enough for overlapping cache misses, few
// enough to stay in the cache until use.
const blockRows = 128

// batch holds the reusable buffers of a call, with its keys sorted by stripe.
type batch struct {
	keys   []uint64
	hashes []uint64
	pos    []int32 // index in the caller's batch
	end    [stripes]int32

	// lines and the next fields are buffers of a block.
	lines    [blockRows]uint32 // lines of the index where the keys belong
	rows     [blockRows]int32  // row numbers, none if missing
	places   [blockRows]int32  // index in the slab
	fresh    [blockRows]int32  // new rows for keys without one
	misses   [blockRows]int32
	from     [blockRows]int32 // indices in the caller's batch
	grads    []float32
	due      []int32   // rows of a slab to extend
	initial  []float32 // initial weights of one row of due
	walkKeys [blockRows]uint64
	piece    Piece

	keySet []uint64 // see unique
	round  uint64
	sink   uint32 // prevents the elimination of touches
	view   Row
}

// begin sorts a batch of keys by stripe. giveBatch must follow.
func (t *Table) begin(keys []uint64) (*batch, error) {
	if t.closed.Load() {
		return nil, t.fault(ErrClosed)
	}
	if len(keys) > math.MaxInt32 {
		return nil, t.fault(fmt.Errorf("%d keys in a batch: want at most %d", len(keys), math.MaxInt32))
	}
	b := t.takeBatch()
	b.sort(t.index, keys)
	return b, nil
}

func (t *Table) takeBatch() *batch {
	b := t.spare.Get()
	if b.grads != nil {
		return b
	}
	b.grads, b.view.State = make([]float32, blockRows*t.grad), make([][]float32, len(t.parts))
	if t.counted != nil {
		b.due, b.initial = make([]int32, 0, blockRows), make([]float32, t.cfg.Dim)
	}
	return b
}

func (t *Table) giveBatch(b *batch) {
	b.view = Row{State: b.view.State}
	t.spare.Put(b)
}

func (t *Table) fault(err error) error { return fmt.Errorf("rows: table %q: %w", t.cfg.Name, err) }

// sort is a stable counting sort by stripe.
func (b *batch) sort(x *index, keys []uint64) {
	n := len(keys)
	b.keys, b.hashes, b.pos = bytesview.Sized(b.keys, n), bytesview.Sized(b.hashes, n), bytesview.Sized(b.pos, n)
	var at [stripes]int32
	for _, key := range keys {
		at[x.hash(key)>>(64-stripeBits)]++
	}
	sum := int32(0)
	for s, count := range at {
		at[s] = sum
		sum += count
		b.end[s] = sum
	}
	for i, key := range keys {
		h := x.hash(key)
		to := &at[h>>(64-stripeBits)]
		b.keys[*to], b.hashes[*to], b.pos[*to] = key, h, int32(i)
		*to++
	}
}

// group returns the range of a stripe's sorted keys.
func (b *batch) group(stripe int) (lo, hi int) {
	if stripe > 0 {
		lo = int(b.end[stripe-1])
	}
	return lo, int(b.end[stripe])
}

// each calls f with every locked stripe that has keys, for each block of its keys.
func (t *Table) each(b *batch, f func(s *stripe, lo, hi int)) {
	t.eachStripe(b, func(s *stripe, _, lo, hi int) {
		for ; lo < hi; lo += blockRows {
			f(s, lo, min(hi, lo+blockRows))
		}
	})
}

// eachStripe calls f with every locked stripe that has keys, its number and the range of its keys.
// Batches start at different stripes, to avoid lock convoys.
func (t *Table) eachStripe(b *batch, f func(s *stripe, n, lo, hi int)) {
	first := int(t.turn.Add(stripes/4 + 1))
	for i := range stripes {
		n := (first + i) % stripes
		lo, hi := b.group(n)
		if lo == hi {
			continue
		}
		s := &t.stripes[n]
		s.Lock()
		f(s, n, lo, hi)
		s.Unlock()
	}
}

// locate finds the rows of the block [lo, hi) of sorted keys: rows[i] is the row of key lo+i, or
// none. It returns the number of missing rows; misses has their indices in the block.
func (b *batch) locate(x *index, lo, hi int) (misses int) {
	keys, hashes := b.keys[lo:hi], b.hashes[lo:hi]
	rows, nums := b.rows[:len(keys)], b.lines[:len(keys)]
	for i, h := range hashes {
		s := x.segment(h)
		nums[i] = s.at(x.home(s, h))
	}
	if a := x.arena.lines; a.flat != nil {
		b.sink += probe(a.flat, nums, keys, rows)
	} else {
		for i, n := range nums {
			nums[i] = n & a.mask
			b.sink += probe(a.slabs[n>>a.shift], nums[i:i+1], keys[i:i+1], rows[i:i+1])
		}
	}
	for i, row := range rows {
		if row >= 0 {
			continue
		}
		if row == pastEnd {
			if far, ok := x.find(x.segment(hashes[i]), keys[i], hashes[i]); ok {
				rows[i] = int32(far)
				continue
			}
			rows[i] = none
		}
		b.misses[misses] = int32(i)
		misses++
	}
	return misses
}

// pastEnd marks a key that can be in a line after the line of its hash.
const pastEnd = -2

// probe searches lines for keys and sets each of rows to the key's row, none or pastEnd. The
// returned sum has no meaning: it only makes the processor load the lines.
func probe(lines []line, nums []uint32, keys []uint64, rows []int32) (sum uint32) {
	for _, n := range nums { // independent loads overlap
		sum += lines[n].meta
	}
	keys, rows = keys[:len(nums)], rows[:len(nums)]
	for i, n := range nums {
		ln, key := &lines[n], keys[i]
		k := &ln.keys // match, which the compiler does not inline here
		m := (bit(k[0] == key) | bit(k[1] == key)<<1 | bit(k[2] == key)<<2 | bit(k[3] == key)<<3 | bit(k[4] == key)<<4) & ln.meta
		if m != 0 {
			rows[i] = int32(ln.rows[bits.TrailingZeros32(m)])
			continue
		}
		rows[i] = none
		if ln.meta >= onePast {
			rows[i] = pastEnd
		}
	}
	return sum
}

// compact moves the rows that exist to the front of the block's rows, and their indices in the
// batch to from. It calls absent, unless nil, with the sorted index of each other key.
func (b *batch) compact(lo, hi int, absent func(i int)) (n int) {
	pos := b.pos[lo:hi]
	for i, row := range b.rows[:len(pos)] {
		if row != none {
			b.rows[n], b.from[n] = row, pos[i]
			n++
		} else if absent != nil {
			absent(lo + i)
		}
	}
	return n
}

// unique returns an error for a duplicate key of the batch. Equal keys are in the same stripe, so
// that a small set per stripe suffices.
func (b *batch) unique() error {
	most := 0
	for s := range stripes {
		lo, hi := b.group(s)
		most = max(most, hi-lo)
	}
	size := 2 << bits.Len(uint(most))
	if len(b.keySet) < size {
		b.keySet, b.round = make([]uint64, size), 0
	}
	mask := uint64(len(b.keySet) - 1)
	for s := range stripes {
		lo, hi := b.group(s)
		if b.round++; b.round > math.MaxUint32 {
			clear(b.keySet)
			b.round = 1
		}
		for i, h := range b.hashes[lo:hi] {
			// An entry has a round, so that no clearing is needed, and an index in the batch.
			at := h & mask
			for ; b.keySet[at]>>32 == b.round; at = (at + 1) & mask {
				if b.hashes[uint32(b.keySet[at])] == h {
					return fmt.Errorf("key %d: %w: merge its gradients", b.keys[lo+i], ErrDuplicate)
				}
			}
			b.keySet[at] = b.round<<32 | uint64(lo+i)
		}
	}
	return nil
}
