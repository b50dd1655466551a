package store

import (
	"fmt"
	"io"
	"math/bits"
	"slices"
)

type scanner struct {
	s          *Segments
	g          *segment
	slot, fill int64
	buf        []byte
	lo, hi     int64 // range of the segment in buf
}

const scanBytes = 256 << 10

// record returns the record at a unit, valid until the next call.
func (c *scanner) record(at int64) (key uint64, row []byte, err error) {
	from := at * unit
	for again := false; ; again = true {
		if from >= c.lo && from < c.hi {
			key, row, needs, err := parseRecord(c.buf[from-c.lo:c.hi-c.lo], c.g.table.seed)
			if err == nil && needs == 0 {
				return key, row, nil
			}
			if err != nil || again {
				return 0, nil, &DamageError{c.s.path, fmt.Errorf("at byte %d: %w", c.slot*c.s.size+from, errRecord)}
			}
		}
		if err := c.fillFrom(from); err != nil {
			return 0, nil, err
		}
	}
}

func (c *scanner) fillFrom(from int64) error {
	n := min(scanBytes, c.fill-from)
	c.buf = slices.Grow(c.buf[:0], int(n))[:n]
	got, err := c.s.file.ReadAt(c.buf, c.slot*c.s.size+from)
	if err == io.EOF && int64(got) < n {
		return &DamageError{c.s.path, fmt.Errorf("it ends at byte %d: %w", c.slot*c.s.size+from+int64(got), io.ErrUnexpectedEOF)}
	}
	if err != nil && err != io.EOF {
		return err
	}
	c.lo, c.hi = from, from+n
	return nil
}

// view is a segment during an iteration.
type view struct {
	g    *segment
	fill int64
	bits []uint64
}

// Iterate implements Store, in no order. Iterate retains segments until it has passed them: a
// concurrent Put may exceed the limit, and succeed if repeated afterwards.
func (s *Segments) Iterate(table uint32, do func(key uint64, row []byte) error) (err error) {
	if s.closed.Load() {
		return ErrClosed
	}
	views := s.views(table)
	defer func() { s.unpin(views) }()
	for len(views) > 0 {
		v := views[0]
		scan := scanner{s: s, g: v.g, slot: int64(v.g.slot), fill: v.fill}
		err := eachBit(v.bits, func(at int64) error {
			key, row, err := scan.record(at)
			if err != nil {
				return s.fail("iterate", table, err)
			}
			return do(key, row)
		})
		if err != nil {
			return err
		}
		s.unpin(views[:1])
		views = views[1:]
	}
	return nil
}

// views returns a table's current segments, pinned.
func (s *Segments) views(table uint32) (out []view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.slots {
		if g != nil && g.table.number == table && g.live > 0 {
			g.pins++
			out = append(out, view{g, g.fill, slices.Clone(g.bits)})
		}
	}
	return out
}

func (s *Segments) unpin(views []view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range views {
		if v.g.pins--; v.g.empty && v.g.pins == 0 {
			s.release(v.g)
		}
	}
}

// eachBit calls do with the indices of the set bits, in order.
func eachBit(set []uint64, do func(unit int64) error) error {
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			if err := do(int64(64*i + bits.TrailingZeros64(w))); err != nil {
				return err
			}
		}
	}
	return nil
}
