package rows

import "fmt"

// Row is a row as Walk shows it.
type Row struct {
	Key uint64
	// Weights and State are the row's values in place, State by part. They may be
	// changed until the function that got them returns, and not be kept.
	Weights []float32
	State   [][]float32
	// Usage is zero where the table keeps none. What is written
	// here is kept.
	Usage Usage
}

// Export writes the whole rows of keys to values, len(keys)*Width, and their usage to usage,
// len(keys), or nil if it is not wanted; a table that keeps none leaves it. What belongs to keys
// that have no row is not written; their places in the batch are appended to missing, which it
// returns, in no order. Nothing changes.
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

// Import stores whole rows as Export gave them. A key that has a row already keeps it unless
// replace is true: then the row is overwritten. usage may be nil: then made rows are marked as
// touched now, overwritten ones keep theirs, and both are marked as Changed. Admit is not asked. It
// returns how many rows it wrote; with ErrFull these are not all. Where a batch holds a key twice,
// its first row is stored, or with replace its last.
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

// Delete takes the rows of keys out and returns how many there were.
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

// beginRows checks the lengths of whole rows and begins a batch.
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
