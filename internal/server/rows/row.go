package rows

import "fmt"

// Row is a row during a Walk or Visit.
type Row struct {
	Key uint64
	// Weights and State are the row's values in place, State by part. They may be changed, but not
	// retained after the callback.
	Weights []float32
	State   [][]float32
	// Usage is zero if the table has none. Changes are stored.
	Usage Usage
}

// Export writes the whole rows of keys to values, len(keys)*Width, and their usage to usage,
// len(keys), which may be nil; ignored by a table without usage. Entries of keys without a row are
// not written; their batch indices are appended to missing, which Export returns, in no order. The
// table is unchanged.
func (t *Table) Export(keys []uint64, values []float32, usage []Usage, missing []int32) ([]int32, error) {
	b, err := t.beginRows("Export", keys, values, usage)
	if err != nil {
		return missing, err
	}
	t.each(b, func(_ *stripe, lo, hi int) {
		missing = b.addMissing(missing, lo, b.locate(t.index, lo, hi))
		for i, row := range b.rows[:hi-lo] {
			if row == none {
				continue
			}
			pos := int(b.pos[lo+i])
			t.readRow(uint32(row), values[pos*t.width:][:t.width])
			if usage != nil && t.usage != nil {
				usage[pos] = unpackUsage(t.usage.item(uint32(row))[0])
			}
		}
	})
	t.giveBatch(b)
	return missing, nil
}

// Import stores whole rows in Export's layout, without Admit. Existing rows are overwritten only if
// replace is true. With a nil usage new rows are marked as touched now, overwritten ones retain
// their usage, and both are marked as Changed. Import returns the number of rows written; with
// ErrFull not all are. For a duplicate key the first row is stored, or with replace the last.
func (t *Table) Import(keys []uint64, values []float32, usage []Usage, replace bool) (stored int, err error) {
	b, err := t.beginRows("Import", keys, values, usage)
	if err != nil {
		return 0, err
	}
	t.each(b, func(s *stripe, lo, hi int) {
		n, e := t.importBlock(s, b, lo, hi, values, usage, replace)
		stored += n
		err = firstOf(err, e)
	})
	t.giveBatch(b)
	if err != nil {
		return stored, t.fault(err)
	}
	return stored, nil
}

func (t *Table) importBlock(s *stripe, b *batch, lo, hi int, values []float32, usage []Usage, replace bool) (stored int, err error) {
	misses := b.locate(t.index, lo, hi)
	rows := b.fresh[:misses]
	n, err := t.takeNumbers(rows)
	rows = rows[:n]
	for i := range hi - lo {
		row, made := b.rows[i], false
		if row == none {
			if row, err = t.enterOr(s, b, lo+i, rows, err); row == none {
				continue
			}
			if made = len(rows) > 0 && row == rows[0]; made {
				rows = rows[1:]
			}
		}
		if !made && !replace {
			continue
		}
		pos := int(b.pos[lo+i])
		t.writeRow(uint32(row), values[pos*t.width:][:t.width])
		if t.usage != nil {
			x := &t.usage.item(uint32(row))[0]
			switch {
			case usage != nil:
				*x = usage[pos].pack()
			case made:
				*x = Usage{Last: t.Epoch(), Changed: true}.pack()
			default:
				*x |= changedBit
			}
		}
		stored++
	}
	t.giveNumbers(rows)
	return stored, err
}

// enterOr is enter that keeps the first error.
func (t *Table) enterOr(s *stripe, b *batch, i int, rows []int32, err error) (int32, error) {
	row, e := t.enter(s, b, i, rows)
	return row, firstOf(err, e)
}

// Delete deletes the rows of keys and returns the number of deleted rows.
func (t *Table) Delete(keys []uint64) (deleted int, err error) {
	b, err := t.begin(keys)
	if err != nil {
		return 0, err
	}
	t.each(b, func(s *stripe, lo, hi int) {
		n := 0
		for i := lo; i < hi; i++ {
			seg := t.index.segment(b.hashes[i])
			if row, ok := t.index.remove(seg, b.keys[i], b.hashes[i]); ok {
				b.fresh[n] = int32(row)
				n++
				t.index.shrink(seg)
			}
		}
		t.giveNumbers(b.fresh[:n])
		s.rows -= n
		s.deleted += n
		deleted += n
	})
	t.giveBatch(b)
	return deleted, nil
}

func (t *Table) beginRows(op string, keys []uint64, values []float32, usage []Usage) (*batch, error) {
	if usage != nil && len(usage) != len(keys) {
		return nil, t.fault(fmt.Errorf("%s: usage of %d rows for %d keys", op, len(usage), len(keys)))
	}
	return t.beginValues(op, keys, len(values), t.width)
}

func (t *Table) readRow(row uint32, values []float32) {
	n := copy(values, t.weights.item(row))
	for _, a := range t.state {
		n += copy(values[n:], a.item(row))
	}
}

func (t *Table) writeRow(row uint32, values []float32) {
	n := copy(t.weights.item(row), values)
	for _, a := range t.state {
		n += copy(a.item(row), values[n:])
	}
}
