package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

type segment struct {
	table *placed
	slot  int
	fill  int64 // bytes written
	live  int64 // bytes of live records
	bits  []uint64
	pins  int  // iterations that have not passed it
	empty bool // cleaned, and free once unpinned
}

func (g *segment) set(unit int64)   { g.bits[unit>>6] |= 1 << (unit & 63) }
func (g *segment) clear(unit int64) { g.bits[unit>>6] &^= 1 << (unit & 63) }

// reserved is the number of segments that only cleaning uses.
const reserved = 2

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

// slotsFor returns the number of segments that rows need after the table's active one.
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

// room ensures free segments for rows, by cleaning if necessary.
func (s *Segments) room(t *placed, rows *Rows) error {
	need, err := s.slotsFor(t, rows)
	if err != nil || need == 0 {
		return err
	}
	for {
		short := need + reserved - s.spareSlots()
		most := s.size * 3 / 4 // copying fuller segments is worthwhile only if the limit requires it
		if short > 0 {
			most = s.size * 15 / 16
		} else if s.inUse()*s.size <= s.live*3/2+4*s.size {
			return nil
		}
		victim := s.emptiest(most)
		if victim == nil && short > 0 {
			has := s.all().Bytes
			return &LimitError{rows.bytes(), max(int64(short)*s.size, 1), s.limit, has, max(s.disk()-has, 0)}
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

// emptiest returns the segment with the fewest live bytes, at most most, or nil.
func (s *Segments) emptiest(most int64) (best *segment) {
	for _, g := range s.slots {
		if g != nil && g.pins == 0 && g != g.table.active && g.live <= most && (best == nil || g.live < best.live) {
			best = g
		}
	}
	return best
}

func (s *Segments) open(t *placed) {
	slot := slices.Index(s.slots, nil)
	if slot < 0 {
		slot = len(s.slots)
		s.slots = append(s.slots, nil)
	}
	t.active = &segment{table: t, slot: slot, bits: make([]uint64, (s.size/unit+63)/64)}
	s.slots[slot] = t.active
}

// append writes records, and their places to s.at. The records are live after link.
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

func (s *Segments) seal(t *placed) {
	if g := t.active; g != nil {
		t.active = nil
		if g.live == 0 && g.fill == 0 {
			s.release(g)
		}
	}
}

func (s *Segments) write(t *placed) error {
	if len(s.buf) == 0 {
		return nil
	}
	g := t.active
	_, err := s.file.WriteAt(s.buf, int64(g.slot)*s.size+g.fill)
	if err != nil {
		s.buf = s.buf[:0]
		return fmt.Errorf("rows put before are safe: %w", err)
	}
	g.fill += int64(len(s.buf))
	s.written += int64(len(s.buf))
	s.buf = s.buf[:0]
	s.peak = max(s.peak, s.disk())
	return nil
}

func (s *Segments) disk() (n int64) {
	for i, g := range slices.Backward(s.slots) {
		if g != nil {
			return int64(i)*s.size + g.fill
		}
	}
	return 0
}

// movedBytes is the approximate number of bytes that cleaning copies at a time, to limit its memory
// to about twice as much.
func (s *Segments) movedBytes() int { return int(min(s.size/8, 1<<20)) }

// clean copies a segment's live records to the end of its table's records, and frees the segment.
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
	s.cleaned++
	g.bits = nil
	s.release(g)
	return nil
}

// move appends the gathered records of a segment, and frees them there.
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

// release frees a segment without live records, and truncates the file.
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
		_ = s.file.Truncate(s.disk()) // an untruncated end is reused
	}
}

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

// worst returns the emptiest segment that is at least a tenth free; otherwise the segment at the
// end of the file, if an earlier position is free.
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
