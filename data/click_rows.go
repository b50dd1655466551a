package data

import (
	"fmt"
	"slices"
)

// clickRows are samples of clicks, one after the other, as a Shape says. Those of Criteo's format have ids or keys, as many each; by a
// layout they have bags. What is not wanted there is none of.
type clickRows struct {
	numbers []float32 // Shape.Size() a row
	ids     []int32   // Shape.IDs a row
	keys    []uint64  // Shape.Keys a row; or those of each row's bags
	labels  []int32

	ends      []uint32   // of each row's bags, slot by slot, counted from the row's first key
	starts    []int      // of each row's keys, and where the last one's end
	keysByRow [][]uint64 // in place of keys and starts: each row's, in memory of its own
}

func (r *clickRows) reset() {
	r.numbers, r.ids, r.keys, r.labels = r.numbers[:0], r.ids[:0], r.keys[:0], r.labels[:0]
	r.ends, r.starts = r.ends[:0], r.starts[:0]
}

// bagged reports whether samples of a shape have bags of as many keys as they like.
func (s *Shape) bagged() bool { return s.Keys == 0 && len(s.Slots) > 0 }

// keysOf are the keys of a row's bags.
func (r *clickRows) keysOf(row int) []uint64 {
	if r.keysByRow != nil {
		return r.keysByRow[row]
	}
	return r.keys[r.starts[row]:r.starts[row+1]]
}

// bag is the keys of a row in a slot of so many.
func (r *clickRows) bag(row, slots, slot int) []uint64 {
	from := uint32(0)
	if slot > 0 {
		from = r.ends[row*slots+slot-1]
	}
	return r.keysOf(row)[from:r.ends[row*slots+slot]]
}

// add appends some rows of other ones.
func (r *clickRows) add(s *Shape, from *clickRows, lo, hi int) {
	numbers, slots := s.Size(), len(s.Slots)
	r.labels = append(r.labels, from.labels[lo:hi]...)
	r.numbers = append(r.numbers, from.numbers[lo*numbers:hi*numbers]...)
	r.ids = append(r.ids, from.ids[lo*s.IDs:hi*s.IDs]...)
	if !s.bagged() {
		r.keys = append(r.keys, from.keys[lo*s.Keys:hi*s.Keys]...)
		return
	}
	if len(r.starts) == 0 {
		r.starts = append(r.starts, 0)
	}
	r.ends = append(r.ends, from.ends[lo*slots:hi*slots]...)
	for row := lo; row < hi; row++ {
		r.keys = append(r.keys, from.keysOf(row)...)
		r.starts = append(r.starts, len(r.keys))
	}
}

// room makes memory for so many rows of a shape that are set one by one, in any order and again and again: each has its keys in memory of
// its own, for they are not equally many.
func (s *Shape) room(rows int) clickRows {
	r := clickRows{
		numbers: make([]float32, rows*s.Size()), labels: make([]int32, rows), ids: make([]int32, rows*s.IDs), keys: make([]uint64, rows*s.Keys),
	}
	if s.bagged() {
		r.ends, r.keysByRow = make([]uint32, rows*len(s.Slots)), make([][]uint64, rows)
	}
	return r
}

// Memory of a row's keys that is much larger than they are is given back: one bag of a million keys would else take its memory for good.
const (
	spareKeys  = 1 << 10
	spareTimes = 8
)

// set makes row at, of memory that room has made, a copy of another row.
func (r *clickRows) set(s *Shape, at int, from *clickRows, row int) {
	numbers, slots := s.Size(), len(s.Slots)
	r.labels[at] = from.labels[row]
	copy(r.numbers[at*numbers:][:numbers], from.numbers[row*numbers:])
	copy(r.ids[at*s.IDs:][:s.IDs], from.ids[row*s.IDs:])
	if !s.bagged() {
		copy(r.keys[at*s.Keys:][:s.Keys], from.keys[row*s.Keys:])
		return
	}
	copy(r.ends[at*slots:][:slots], from.ends[row*slots:])
	keys, own := from.keysOf(row), r.keysByRow[at]
	if cap(own) > max(spareKeys, spareTimes*len(keys)) {
		own = nil
	}
	r.keysByRow[at] = append(own[:0], keys...)
}

// clickAt is where a row is.
type clickAt struct {
	rows *clickRows
	row  int
}

// gather makes b the samples at some places: of whole pages in memory, of a window's shelf, of parts that were read again. Rows lie
// sample after sample where they were parsed, and bags of a batch slot after slot, as models take them.
func (b *Batch) gather(s Shape, at []clickAt) error {
	b.Resize(s, len(at))
	numbers := s.Size()
	for i, a := range at {
		b.Labels[i] = a.rows.labels[a.row]
		copy(b.Values[i*numbers:][:numbers], a.rows.numbers[a.row*numbers:])
		if s.IDs > 0 {
			copy(b.IDs[i*s.IDs:][:s.IDs], a.rows.ids[a.row*s.IDs:])
		}
		if s.Keys > 0 {
			copy(b.Keys[i*s.Keys:][:s.Keys], a.rows.keys[a.row*s.Keys:])
		}
	}
	if s.bagged() {
		return b.Bags.gather(len(s.Slots), at)
	}
	if s.Keys > 0 {
		b.Bags.fromRows(b.Keys, len(s.Slots), b.N)
	}
	return nil
}

// gather makes b the bags of samples at some places. It has room for their offsets.
func (b *Bags) gather(slots int, at []clickAt) error {
	all := 0
	for _, a := range at {
		all += len(a.rows.keysOf(a.row))
	}
	if all > maxKeys {
		return fmt.Errorf("data: a batch of %d samples has %d keys, more than %d: use a smaller batch", len(at), all, maxKeys)
	}
	b.Keys = slices.Grow(b.Keys, all)
	n := 0
	for slot := range slots {
		for _, a := range at {
			b.Keys = append(b.Keys, a.rows.bag(a.row, slots, slot)...)
			n++
			b.Offsets[n] = int32(len(b.Keys))
		}
	}
	return nil
}
