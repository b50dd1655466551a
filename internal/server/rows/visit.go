package rows

import "github.com/ringo-ml/ringo/internal/rowinit"

// Visit calls do with the existing rows of keys, and with their indices in keys, which must be
// unique. As in a Walk the row's stripe is locked: do may change whole rows, atomically for other
// calls, must be fast and must not call the table. Keys of a stripe are visited consecutively, in
// no other order.
func (t *Table) Visit(keys []uint64, do func(i int, r *Row) Verdict) error {
	b, err := t.begin(keys)
	if err != nil {
		return err
	}
	t.each(b, func(s *stripe, lo, hi int) {
		b.locate(t.index, lo, hi)
		n := b.compact(lo, hi, nil)
		for i, at := range b.from[:n] {
			b.walkKeys[i] = keys[at]
		}
		if t.visit(s, b, n, func(i int, r *Row) Verdict { return do(int(b.from[i]), r) }) == 0 {
			return
		}
		for _, h := range b.hashes[lo:hi] {
			t.index.shrink(t.index.segment(h))
		}
	})
	t.giveBatch(b)
	return nil
}

// Make creates rows for keys without one and counts a use of all keys, as Pull does. It returns the
// number of new rows; with ErrFull it did not create all. With changed it also counts a push.
func (t *Table) Make(keys []uint64, changed bool) (made int, err error) {
	b, err := t.begin(keys)
	if err != nil {
		return 0, err
	}
	t.each(b, func(s *stripe, lo, hi int) {
		if misses := b.locate(t.index, lo, hi); misses > 0 {
			before := s.rows
			denied, e := t.create(s, b, lo, misses, false)
			made += s.rows - before
			s.denied += denied
			err = firstOf(err, e)
		}
		if t.usage != nil {
			n := b.compact(lo, hi, nil)
			if t.touch(b.rows[:n]); changed {
				t.change(b.rows[:n])
			}
		}
	})
	t.giveBatch(b)
	if err != nil {
		return made, t.fault(err)
	}
	return made, nil
}

// PullPresent is Pull for keys with a row. For other keys dst is unchanged and the index is
// appended to missing, in no order. PullPresent returns missing.
func (t *Table) PullPresent(keys []uint64, dst []float32, missing []int32) ([]int32, error) {
	b, err := t.beginValues("PullPresent", keys, len(dst), t.cfg.Dim)
	if err != nil {
		return missing, err
	}
	t.each(b, func(_ *stripe, lo, hi int) {
		missing = b.addMissing(missing, lo, b.locate(t.index, lo, hi))
		n := b.compact(lo, hi, nil)
		t.copyRows(b, n, dst)
		if t.usage != nil {
			t.touch(b.rows[:n])
		}
	})
	t.giveBatch(b)
	return missing, nil
}

// Initial writes the initial weights of a key's row.
func (t *Table) Initial(key uint64, dst []float32) {
	t.first(dst, rowinit.Row(t.stream, key))
}

// Hash returns the hash that orders keys: equal in all tables with equal name and seed. See Piece.
func (t *Table) Hash(key uint64) uint64 { return t.index.hash(key) }
