// Package clicks reads, parses and generates rows of click logs: Criteo's format, and layouts in
// text, Parquet or Arrow.
package clicks

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/data/layout"
)

// Shape is the number of values of each kind in a row. A row with Slots has either one key per slot
// (Keys) or bags.
type Shape struct {
	Numbers, IDs, Keys int
	Slots              []Slot
}

// Slot is a field with keys: a bag or a sequence.
type Slot struct {
	Name     string
	Sequence bool
}

// Bagged reports whether rows have bags with any number of keys.
func (s *Shape) Bagged() bool { return s.Keys == 0 && len(s.Slots) > 0 }

// Shape returns the shape of the rows, equal for all files.
func (f *Format) Shape() Shape {
	if f.Layout == nil {
		return f.Default.(*CriteoParser).Shape()
	}
	s := Shape{Numbers: len(f.Layout.Of(func(c layout.Column) bool { return c.Kind == layout.Number }))}
	for _, c := range f.Layout.Of(layout.Column.Slotted) {
		s.Slots = append(s.Slots, Slot{c.Name, c.Kind == layout.Sequence})
	}
	return s
}

// Shape returns the shape of rows in Criteo's format.
func (p *CriteoParser) Shape() Shape {
	s := Shape{Numbers: CriteoNumbers}
	if p.rows > 0 {
		s.IDs = CriteoSlots
	}
	if p.keys {
		s.Keys = CriteoSlots
		for i := range CriteoSlots {
			s.Slots = append(s.Slots, Slot{Name: fmt.Sprintf("C%d", i+1)})
		}
	}
	return s
}

// Rows are samples of clicks, row by row, as Shape states. Rows in Criteo's format have a fixed
// number of ids or keys; rows by a layout have bags. Other slices are empty.
type Rows struct {
	Numbers []float32 // Shape.Numbers per row
	IDs     []int32   // Shape.IDs per row
	Keys    []uint64  // Shape.Keys per row, or the keys of the row's bags
	Labels  []int32

	Ends      []uint32   // ends of each row's bags, by slot, from the row's first key
	Starts    []int      // start of each row's keys, and the end of the last row
	Texts     []string   // text of the layout's kept column in each row, of a parsed block
	KeysByRow [][]uint64 // keys of each row in separate memory, instead of Keys and Starts
}

// Reset empties the slices, and retains their memory.
func (r *Rows) Reset() {
	r.Numbers, r.IDs, r.Keys, r.Labels = r.Numbers[:0], r.IDs[:0], r.Keys[:0], r.Labels[:0]
	r.Ends, r.Starts, r.Texts = r.Ends[:0], r.Starts[:0], r.Texts[:0]
}

// KeysOf returns the keys of a row's bags.
func (r *Rows) KeysOf(row int) []uint64 {
	if r.KeysByRow != nil {
		return r.KeysByRow[row]
	}
	return r.Keys[r.Starts[row]:r.Starts[row+1]]
}

// Bag returns the keys of a row in a slot; slots is the number of slots.
func (r *Rows) Bag(row, slots, slot int) []uint64 {
	from := uint32(0)
	if slot > 0 {
		from = r.Ends[row*slots+slot-1]
	}
	return r.KeysOf(row)[from:r.Ends[row*slots+slot]]
}

// Add appends rows [lo, hi) of from.
func (r *Rows) Add(s *Shape, from *Rows, lo, hi int) {
	numbers, slots := s.Numbers, len(s.Slots)
	r.Labels = append(r.Labels, from.Labels[lo:hi]...)
	r.Numbers = append(r.Numbers, from.Numbers[lo*numbers:hi*numbers]...)
	r.IDs = append(r.IDs, from.IDs[lo*s.IDs:hi*s.IDs]...)
	if !s.Bagged() {
		r.Keys = append(r.Keys, from.Keys[lo*s.Keys:hi*s.Keys]...)
		return
	}
	if len(r.Starts) == 0 {
		r.Starts = append(r.Starts, 0)
	}
	r.Ends = append(r.Ends, from.Ends[lo*slots:hi*slots]...)
	for row := lo; row < hi; row++ {
		r.Keys = append(r.Keys, from.KeysOf(row)...)
		r.Starts = append(r.Starts, len(r.Keys))
	}
}

// Room allocates rows that are set individually, in any order and repeatedly. Each row has separate
// memory for its keys, because their number varies.
func (s *Shape) Room(rows int) Rows {
	r := Rows{
		Numbers: make([]float32, rows*s.Numbers), Labels: make([]int32, rows), IDs: make([]int32, rows*s.IDs), Keys: make([]uint64, rows*s.Keys),
	}
	if s.Bagged() {
		r.Ends, r.KeysByRow = make([]uint32, rows*len(s.Slots)), make([][]uint64, rows)
	}
	return r
}

// Limits of unused memory for a row's keys: a single bag of a million keys would otherwise keep its
// memory forever.
const (
	SpareKeys  = 1 << 10
	spareTimes = 8
)

// Set copies a row of from to row at, in memory of Room.
func (r *Rows) Set(s *Shape, at int, from *Rows, row int) {
	numbers, slots := s.Numbers, len(s.Slots)
	r.Labels[at] = from.Labels[row]
	copy(r.Numbers[at*numbers:][:numbers], from.Numbers[row*numbers:])
	copy(r.IDs[at*s.IDs:][:s.IDs], from.IDs[row*s.IDs:])
	if !s.Bagged() {
		copy(r.Keys[at*s.Keys:][:s.Keys], from.Keys[row*s.Keys:])
		return
	}
	copy(r.Ends[at*slots:][:slots], from.Ends[row*slots:])
	keys, own := from.KeysOf(row), r.KeysByRow[at]
	if cap(own) > max(SpareKeys, spareTimes*len(keys)) {
		own = nil
	}
	r.KeysByRow[at] = append(own[:0], keys...)
}
