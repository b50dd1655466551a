package rows

import "fmt"

// Row is a row during a Walk or Visit.
type Row struct {
	Key uint64
	// Weights and State are the row's values in place, State by part. They may be changed, but not
	// retained after the callback.
	Weights []float32
	State   [][]float32
	// Usage is zero for a table without usage. The table stores changes of Usage.
	Usage Usage
}

// Import stores whole rows, len(keys)*Width values: Dim weights of a row, then the parts of its
// state; and their usage, ignored by a table without usage. Admit does not apply. Existing rows are
// overwritten only if replace is true. With a nil usage new rows are marked as touched now,
// overwritten ones retain their usage, and both are marked as Changed. Import returns the number of
// rows written; with ErrFull not all are. For a duplicate key the first row is stored, or with
// replace the last.
func (t *Table) Import(keys []uint64, values []float32, usage []Usage, replace bool) (stored int, err error) {
	if usage != nil && len(usage) != len(keys) {
		return 0, t.fault(fmt.Errorf("Import: usage of %d rows for %d keys", len(usage), len(keys)))
	}
	b, err := t.beginValues("Import", keys, len(values), t.width)
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

// enterOr is enter, but returns err, unless nil, instead of an error of enter.
func (t *Table) enterOr(s *stripe, b *batch, i int, rows []int32, err error) (int32, error) {
	row, e := t.enter(s, b, i, rows)
	return row, firstOf(err, e)
}

func (t *Table) writeRow(row uint32, values []float32) {
	n := copy(t.weights.item(row), values)
	for _, a := range t.state {
		n += copy(a.item(row), values[n:])
	}
}
