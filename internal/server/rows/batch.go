package rows

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// blockRows is how many rows are worked on at once: enough that misses of the
// caches overlap, few enough that what was fetched is still there when it is used.
const blockRows = 128

// batch is what one call needs; it is used again by a later one. Its keys are
// sorted by stripe.
type batch struct {
	keys   []uint64
	hashes []uint64
	pos    []int32 // of the key in the caller's batch
	end    [stripes]int32

	// Of a block.
	lines    [blockRows]uint32 // of the index, where its keys belong
	rows     [blockRows]int32  // numbers, none where there is no row
	places   [blockRows]int32  // of the row in its slab
	fresh    [blockRows]int32  // rows for keys that have none
	misses   [blockRows]int32
	from     [blockRows]int32 // places in the caller's batch
	grads    []float32
	due      []int32   // rows to extend, of those of a slab
	initial  []float32 // of one of them
	walkKeys [blockRows]uint64
	piece    Piece

	keySet []uint64 // see unique
	round  uint64
	sink   uint32 // so that touches are not left out
	view   Row
}

// begin sorts a batch of keys by stripe. end must follow.
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
	t.spare.Lock()
	defer t.spare.Unlock()
	if n := len(t.spare.list); n > 0 {
		b := t.spare.list[n-1]
		t.spare.list = t.spare.list[:n-1]
		return b
	}
	b := &batch{grads: make([]float32, blockRows*t.grad), view: Row{State: make([][]float32, len(t.parts))}}
	if t.counted != nil {
		b.due, b.initial = make([]int32, 0, blockRows), make([]float32, t.cfg.Dim)
	}
	return b
}

func (t *Table) giveBatch(b *batch) {
	b.view = Row{State: b.view.State}
	t.spare.Lock()
	defer t.spare.Unlock()
	t.spare.list = append(t.spare.list, b)
}

func (t *Table) fault(err error) error { return fmt.Errorf("rows: table %q: %w", t.cfg.Name, err) }

// sort is a counting sort: it keeps the order of keys of a stripe.
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

// group is the range of the sorted keys of a stripe.
func (b *batch) group(stripe int) (lo, hi int) {
	if stripe > 0 {
		lo = int(b.end[stripe-1])
	}
	return lo, int(b.end[stripe])
}

// each calls f with every stripe that has keys, locked, and the ranges of its keys
// in blocks.
func (t *Table) each(b *batch, f func(s *stripe, lo, hi int)) {
	t.eachStripe(b, func(s *stripe, _, lo, hi int) {
		for ; lo < hi; lo += blockRows {
			f(s, lo, min(hi, lo+blockRows))
		}
	})
}

// eachStripe calls f with every stripe that has keys, locked, its number and the
// range of its keys. Batches begin with different stripes, so that they do not
// follow each other from lock to lock.
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

// locate finds the rows of the block [lo, hi) of sorted keys: rows[i] is that of
// key lo+i, none if it has none. It returns how many have none; misses are their
// places in the block.
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

// pastEnd says that a key's line does not hold it, but a line behind may.
const pastEnd = -2

// probe looks for keys in the lines of those numbers: rows get its row, none or
// behind. The sum is of no use.
func probe(lines []line, nums []uint32, keys []uint64, rows []int32) (sum uint32) {
	for _, n := range nums { // loads that depend on nothing: they are all under way at once
		sum += lines[n].meta
	}
	keys, rows = keys[:len(nums)], rows[:len(nums)]
	for i, n := range nums {
		ln, key := &lines[n], keys[i]
		k := &ln.keys // match, which the compiler does not put here
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

// compact moves the rows that exist to the front of the block's, and their keys'
// places in the batch to from. absent gets the others, as places among the sorted
// keys, unless it is nil.
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

// unique reports a key that the batch holds more than once. Equal keys are in the
// same stripe: the keys of one after the other go into a small set.
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
			// An entry is its round, so that nothing has to be cleared, and its
			// place in the batch.
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
