package rows

// Visit calls do with the rows of keys that have one, and with their places among
// keys, which must be unique. As in a Walk the row's stripe is locked: do sees whole
// rows and may change them, what it does happens at once for all others, and it must
// be quick and must not call the table. Keys of a stripe are visited in a row, the
// order is otherwise any.
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

// Make makes rows for keys that have none and counts a touch of all, as Pull does
// when it has no use for the weights. It returns how many rows it made; with ErrFull
// these are not all. With changed a push of all is counted, too.
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

// PullPresent is Pull for keys that have a row. Nothing is written to dst for the
// others; their places in the batch are appended to missing, which it returns, in no
// order.
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

// Initial writes the weights with which the row of a key begins.
func (t *Table) Initial(key uint64, dst []float32) {
	t.first(dst, rowStream(t.stream, key))
}

// Hash is the hash by which the table orders keys: the same in every table with the
// same name and seed, whatever its size. See Piece.
func (t *Table) Hash(key uint64) uint64 { return t.index.hash(key) }
