package rows

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// takeNumbers fills dst with free row numbers and returns their count: fewer only with an error.
func (t *Table) takeNumbers(dst []int32) (n int, err error) {
	f := &t.numbers
	f.Lock()
	defer f.Unlock()
	for ; n < len(dst) && f.free != none; n++ {
		first := t.weights.item(uint32(f.free))
		dst[n], f.free = f.free, int32(math.Float32bits(first[0]))
		f.idle--
	}
	more := min(len(dst)-n, t.cfg.MaxRows-f.used)
	if err := t.growTo(f.used + more); err != nil {
		return n, fmt.Errorf("%w: %d rows: %w", ErrFull, f.used, err)
	}
	for range more {
		dst[n] = int32(f.used)
		f.used++
		n++
	}
	if n < len(dst) {
		return n, fmt.Errorf("%w: it has MaxRows, %d rows", ErrFull, t.cfg.MaxRows)
	}
	return n, nil
}

// growTo makes rows [0, rows) of all arrays usable.
func (t *Table) growTo(rows int) error {
	before := len(t.weights.slabs)
	if t.weights.space == nil {
		before = t.weights.ready >> t.weights.shift
	}
	if err := t.weights.grow(rows); err != nil {
		return fmt.Errorf("the weights: %w", err)
	}
	for i, a := range t.state {
		if err := a.grow(rows); err != nil {
			return fmt.Errorf("the state %q: %w", t.parts[i].Name, err)
		}
	}
	if t.usage != nil {
		if err := t.usage.grow(rows); err != nil {
			return fmt.Errorf("the usage: %w", err)
		}
	}
	for i := before; i<<t.weights.shift < t.weights.ready && i < len(t.slab); i++ {
		t.showSlab(i)
	}
	return nil
}

// giveNumbers returns row numbers to the free list.
func (t *Table) giveNumbers(rows []int32) {
	if len(rows) == 0 {
		return
	}
	f := &t.numbers
	f.Lock()
	defer f.Unlock()
	for _, r := range rows {
		t.weights.item(uint32(r))[0] = math.Float32frombits(uint32(f.free))
		f.free = r
	}
	f.idle += len(rows)
}

// create creates rows for the admitted keys among a block's misses, and returns the number of
// rejected keys. After an error some keys have no row.
func (t *Table) create(s *stripe, b *batch, lo, misses int, push bool) (denied int, err error) {
	want := b.misses[:misses]
	if t.cfg.Admit != nil {
		want = want[:0]
		for _, i := range b.misses[:misses] {
			if t.cfg.Admit(b.keys[lo+int(i)], push) {
				want = append(want, i)
			}
		}
		denied = misses - len(want)
	}
	if len(want) == 0 {
		return denied, nil
	}
	rows := b.fresh[:len(want)]
	n, err := t.takeNumbers(rows)
	rows = rows[:n]
	for _, i := range want {
		made, e := t.enter(s, b, lo+int(i), rows)
		if e != nil {
			err = e
			break
		}
		if b.rows[i] = made; made == none {
			continue // no numbers are left
		}
		if len(rows) > 0 && made == rows[0] {
			rows = rows[1:]
			t.begins(uint32(made), b.keys[lo+int(i)])
		}
	}
	t.giveNumbers(rows)
	return denied, err
}

// enter returns the row of the sorted key i: the first of rows, the row that an earlier duplicate
// got, or none if rows is empty.
func (t *Table) enter(s *stripe, b *batch, i int, rows []int32) (int32, error) {
	key, hash := b.keys[i], b.hashes[i]
	seg := t.index.segment(hash)
	if row, ok := t.index.find(seg, key, hash); ok {
		return int32(row), nil
	}
	if len(rows) == 0 {
		return none, nil
	}
	if err := t.index.insert(seg, key, hash, uint32(rows[0])); err != nil {
		return none, fmt.Errorf("%w: %w", ErrFull, err)
	}
	s.rows++
	return rows[0], nil
}

// begins sets a row's initial values.
func (t *Table) begins(row uint32, key uint64) {
	t.first(t.weights.item(row), rowinit.Row(t.stream, key))
	for k, p := range t.parts {
		values := t.state[k].item(row)
		for i := range values {
			values[i] = p.Initial
		}
	}
	if t.usage != nil {
		t.usage.item(row)[0] = Usage{Last: t.Epoch()}.pack()
	}
}
