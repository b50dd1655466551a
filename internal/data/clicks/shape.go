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
