package data

import (
	"fmt"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/clicks"
)

// pageRows is the number of rows of a page. Full pages never grow, so that rows are not copied as
// memory grows; only the keys of bags are.
const pageRows = 1 << 13

// clickPages is the source of rows in memory. A row of Criteo's format has 160 bytes, or 264 with
// keys instead of ids. A row by a layout has 4 bytes per number and slot, 8 per key, and 12.
type clickPages struct {
	pages  []clicks.Rows // all full except the last
	n      int
	widths clicks.Shape
	shape  Shape // shapeOf(widths)
}

func newClicks(s clicks.Shape) *clickPages { return &clickPages{widths: s, shape: shapeOf(s)} }

func (c *clickPages) Len() int     { return c.n }
func (c *clickPages) Shape() Shape { return c.shape }

func (c *clickPages) evidence(w io.Writer) {
	for _, p := range c.pages {
		_, _ = w.Write(bytesview.Bytes(p.Labels)) // hash.Write never fails
		if c.widths.Bagged() {                    // no error: see above
			_, _ = w.Write(bytesview.Bytes(p.Numbers))
			_, _ = w.Write(bytesview.Bytes(p.Keys))
			_, _ = w.Write(bytesview.Bytes(p.Ends))
		}
	}
}

// Fill copies the rows.
func (c *clickPages) Fill(b *Batch, idx []int32, _ Draw) error {
	b.places = b.places[:0]
	for _, n := range idx {
		if n < 0 || int(n) >= c.n {
			panic(fmt.Sprintf("data: sample %d of %d", n, c.n))
		}
		b.places = append(b.places, clickAt{&c.pages[n/pageRows], int(n % pageRows)})
	}
	return b.gather(c.shape, b.places)
}

// add appends rows up to the limit (0: all).
func (c *clickPages) add(rows *clicks.Rows, limit int) {
	n := len(rows.Labels)
	if limit > 0 {
		n = min(n, limit-c.n)
	}
	s := &c.widths
	for from := 0; from < n; {
		if c.n%pageRows == 0 {
			c.pages = append(c.pages, clicks.Rows{
				Numbers: make([]float32, 0, pageRows*s.Numbers), Labels: make([]int32, 0, pageRows),
				IDs: make([]int32, 0, pageRows*s.IDs), Keys: make([]uint64, 0, pageRows*s.Keys),
			})
			if s.Bagged() {
				p := &c.pages[len(c.pages)-1]
				p.Ends, p.Starts = make([]uint32, 0, pageRows*len(s.Slots)), make([]int, 0, pageRows+1)
			}
		}
		p := &c.pages[len(c.pages)-1]
		to := min(n, from+pageRows-len(p.Labels))
		p.Add(s, rows, from, to)
		if c.n += to - from; c.n%pageRows == 0 && s.Bagged() {
			p.Keys = slices.Clone(p.Keys) // trims the spare capacity
		}
		from = to
	}
}

// clickAt is the position of a row.
type clickAt struct {
	rows *clicks.Rows
	row  int
}

// gather sets b to the rows at some positions, in pages of memory or in parts of a file. Rows are
// stored sample by sample, but the bags of a batch slot by slot, as models need.
func (b *Batch) gather(s Shape, at []clickAt) error {
	b.Resize(s, len(at))
	numbers := s.Size()
	for i, a := range at {
		b.Labels[i] = a.rows.Labels[a.row]
		copy(b.Values[i*numbers:][:numbers], a.rows.Numbers[a.row*numbers:])
		if s.IDs > 0 {
			copy(b.IDs[i*s.IDs:][:s.IDs], a.rows.IDs[a.row*s.IDs:])
		}
		if s.Keys > 0 {
			copy(b.Keys[i*s.Keys:][:s.Keys], a.rows.Keys[a.row*s.Keys:])
		}
	}
	if s.Keys == 0 && len(s.Slots) > 0 {
		return b.Bags.gather(len(s.Slots), at)
	}
	if s.Keys > 0 {
		b.Bags.fromRows(b.Keys, len(s.Slots), b.N)
	}
	return nil
}

// gather sets b to the bags of the rows at some positions. Offsets must be allocated.
func (b *Bags) gather(slots int, at []clickAt) error {
	all := 0
	for _, a := range at {
		all += len(a.rows.KeysOf(a.row))
	}
	if all > maxKeys {
		return fmt.Errorf("data: a batch of %d samples has %d keys, more than %d: use a smaller batch", len(at), all, maxKeys)
	}
	b.Keys = slices.Grow(b.Keys, all)
	n := 0
	for slot := range slots {
		for _, a := range at {
			b.Keys = append(b.Keys, a.rows.Bag(a.row, slots, slot)...)
			n++
			b.Offsets[n] = int32(len(b.Keys))
		}
	}
	return nil
}

// shapeOf returns the shape of samples of clicks.
func shapeOf(c clicks.Shape) Shape {
	s := Shape{IDs: c.IDs, Keys: c.Keys, Labels: 1}
	if c.Numbers > 0 {
		s.Values = []int{c.Numbers}
	}
	for _, slot := range c.Slots {
		s.Slots = append(s.Slots, Slot(slot))
	}
	return s
}
