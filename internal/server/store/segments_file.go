package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// segment is a part of the file, with records of one table.
type segment struct {
	table *placed
	slot  int
	fill  int64 // bytes written
	live  int64 // of them, of records that count
	bits  []uint64
	pins  int  // iterations that have not come past it
	empty bool // cleaned, and free when nobody pins it
}

func (g *segment) set(unit int64)   { g.bits[unit>>6] |= 1 << (unit & 63) }
func (g *segment) clear(unit int64) { g.bits[unit>>6] &^= 1 << (unit & 63) }

// reserved are the segments that only cleaning takes.
const reserved = 2

// spareSlots are how many segments may be taken.
func (s *Segments) spareSlots() int {
	free := int(min((int64(maxPlace)*unit)/s.size, 1<<30)) - len(s.slots)
	if s.limit > 0 {
		free = int(s.limit/s.size) - len(s.slots)
	}
	for _, g := range s.slots {
		if g == nil {
			free++
		}
	}
	return free
}

// slotsFor is how many segments rows need beyond the one that their table writes to.
func (s *Segments) slotsFor(t *placed, rows *Rows) (n int, err error) {
	left := int64(0)
	if t.active != nil {
		left = s.size - t.active.fill
	}
	for i, key := range rows.Keys {
		row := rows.Row(i)
		if len(row) > maxRow {
			return 0, fmt.Errorf("key %d: %d bytes in a row: at most %d", key, len(row), maxRow)
		}
		b := recordBytes(len(row))
		if left < b {
			n++
			left = s.size
		}
		left -= b
	}
	return n, nil
}

// room sees that there are segments for rows, and cleans for it.
func (s *Segments) room(t *placed, rows *Rows) error {
	need, err := s.slotsFor(t, rows)
	if err != nil || need == 0 {
		return err
	}
	for {
		short := need + reserved - s.spareSlots()
		most := s.size * 3 / 4 // more in a segment is not worth copying, unless there is no room
		if short > 0 {
			most = s.size * 15 / 16
		} else if s.inUse()*s.size <= s.live*3/2+4*s.size {
			return nil
		}
		victim := s.emptiest(most)
		if victim == nil && short > 0 {
			z := s.sizeNow()
			return &LimitError{rows.bytes(), max(int64(short)*s.size, 1), z}
		}
		if victim == nil {
			return nil
		}
		if err := s.clean(victim); err != nil {
			return err
		}
	}
}

func (s *Segments) inUse() (n int64) {
	for _, g := range s.slots {
		if g != nil {
			n++
		}
	}
	return n
}

// emptiest is the segment with the fewest bytes that count, at most so many, nil if there is none.
func (s *Segments) emptiest(most int64) (best *segment) {
	for _, g := range s.slots {
		if g != nil && g.pins == 0 && g != g.table.active && g.live <= most && (best == nil || g.live < best.live) {
			best = g
		}
	}
	return best
}

// open gives a table an empty segment.
func (s *Segments) open(t *placed) {
	slot := slices.Index(s.slots, nil)
	if slot < 0 {
		slot = len(s.slots)
		s.slots = append(s.slots, nil)
	}
	t.active = &segment{table: t, slot: slot, bits: make([]uint64, (s.size/unit+63)/64)}
	s.slots[slot] = t.active
}

// append writes records behind one another; their places are in s.at. They count from link on.
func (s *Segments) append(t *placed, rows *Rows) error {
	s.at, s.buf = s.at[:0], s.buf[:0]
	for i, key := range rows.Keys {
		if err := s.appendOne(t, key, rows.Row(i)); err != nil {
			return err
		}
	}
	if err := s.write(t); err != nil {
		return err
	}
	for i := range rows.Keys {
		n := recordBytes(len(rows.Row(i)))
		s.slots[s.slotOf(s.at[i])].live += n
		s.live += n
	}
	return nil
}

// appendOne adds a record to what is to be written.
func (s *Segments) appendOne(t *placed, key uint64, row []byte) error {
	n := recordBytes(len(row))
	if t.active == nil || t.active.fill+int64(len(s.buf))+n > s.size {
		if err := s.write(t); err != nil {
			return err
		}
		s.seal(t)
		s.open(t)
	}
	s.at = append(s.at, s.placeAt(int64(t.active.slot), t.active.fill+int64(len(s.buf))))
	s.buf = appendRecord(s.buf, t.seed, key, row)
	t.row.Store(int64(len(row)))
	return nil
}

// seal ends a table's segment.
func (s *Segments) seal(t *placed) {
	if g := t.active; g != nil {
		t.active = nil
		if g.live == 0 && g.fill == 0 {
			s.release(g)
		}
	}
}

// write writes what was appended to the table's segment.
func (s *Segments) write(t *placed) error {
	if len(s.buf) == 0 {
		return nil
	}
	g := t.active
	_, err := s.file.WriteAt(s.buf, int64(g.slot)*s.size+g.fill)
	s.out.Add(int64(len(s.buf)))
	if err != nil {
		s.buf = s.buf[:0]
		return fmt.Errorf("rows put before are safe: %w", err)
	}
	g.fill += int64(len(s.buf))
	s.buf = s.buf[:0]
	s.peak = max(s.peak, s.disk())
	return nil
}

// disk is the length of the file.
func (s *Segments) disk() (n int64) {
	for i, g := range slices.Backward(s.slots) {
		if g != nil {
			return int64(i)*s.size + g.fill
		}
	}
	return 0
}

// movedBytes is about how much cleaning copies at a time: what it needs in memory is about
// twice as much, not what a segment has.
func (s *Segments) movedBytes() int { return int(min(s.size/8, 1<<20)) }

// clean copies what counts of a segment to the end of its table's, and frees it.
func (s *Segments) clean(g *segment) error {
	s.moved.Reset()
	s.from = s.from[:0]
	scan := scanner{s: s, g: g, slot: int64(g.slot), fill: g.fill}
	err := eachBit(g.bits, func(at int64) error {
		key, row, err := scan.record(at)
		if err != nil {
			return err
		}
		s.moved.Add(key, row)
		s.from = append(s.from, s.placeAt(int64(g.slot), at*unit))
		if len(s.moved.Data) < s.movedBytes() {
			return nil
		}
		return s.move(g)
	})
	if err == nil {
		err = s.move(g)
	}
	if err != nil {
		var d *DamageError
		if errors.As(err, &d) {
			s.damage.CompareAndSwap(nil, d)
		}
		return fmt.Errorf("cleaning: %w", err)
	}
	s.cleaned.Add(1)
	g.bits = nil
	s.release(g)
	return nil
}

// move appends the records of a segment that were gathered, and counts them out of it.
func (s *Segments) move(g *segment) error {
	t, rows := g.table, &s.moved
	if err := s.append(t, rows); err != nil {
		return err
	}
	for i, key := range rows.Keys {
		t.index.replace(mix(key), s.from[i], s.at[i])
		s.slots[s.slotOf(s.at[i])].set(s.unitOf(s.at[i]))
		g.clear(s.unitOf(s.from[i]))
		n := recordBytes(len(rows.Row(i)))
		g.live -= n
		s.live -= n
	}
	rows.Reset()
	s.from = s.from[:0]
	return nil
}

// release frees a segment that has nothing that counts, and cuts the file's end.
func (s *Segments) release(g *segment) {
	if g.empty = true; g.pins > 0 {
		return
	}
	s.slots[g.slot] = nil
	n := len(s.slots)
	for n > 0 && s.slots[n-1] == nil {
		n--
	}
	if n < len(s.slots) {
		s.slots = s.slots[:n]
		_ = s.file.Truncate(s.disk()) // what stays is used again
	}
}

// compact is Compact.
func (s *Segments) compact(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for steps := 2 * len(s.slots); steps > 0 && ctx.Err() == nil; steps-- {
		victim := s.worst()
		if victim == nil || s.spareSlots() < 1 {
			break
		}
		if victim == victim.table.active {
			s.seal(victim.table)
		}
		if err := s.clean(victim); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// worst is a segment of which a tenth or more is free, the emptiest; else the one at the end of the
// file, if there is a place before it.
func (s *Segments) worst() (worst *segment) {
	for _, g := range s.slots {
		if g != nil && g.pins == 0 && g.fill > 0 && g.live*10 <= g.fill*9 && (worst == nil || g.live < worst.live) {
			worst = g
		}
	}
	if n := len(s.slots); worst == nil && slices.Index(s.slots, nil) >= 0 && s.slots[n-1].pins == 0 && s.slots[n-1].fill > 0 {
		return s.slots[n-1]
	}
	return worst
}
