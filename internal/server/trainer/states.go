package trainer

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// A geo trainer has one state of rows that servers do not have: the optimizer state. ReadState and
// WriteState use a record per row: the key, 16 bits in each value, exact in float32, most
// significant first, and the state.

const someRows = 1024 // rows per batch

// keyValues returns the number of values of a record's key: an id has 32 bits.
func (l *Lookup) keyValues() int {
	if l.Rows > 0 {
		return 2
	}
	return 4
}

// rowState returns the state of a table's rows, or nil.
func (t *Trainer) rowState(table int) *rows.Table {
	if t.geo == nil {
		return nil
	}
	return t.geo.tables[table].rowState
}

// StateLen returns the number of values from ReadState for a table: 0 without copies, or if their
// rule has no state. PushDeltas must precede it.
func (t *Trainer) StateLen(table int) int {
	kept := t.rowState(table)
	if kept == nil {
		return 0
	}
	return kept.Len() * (t.cfg.Lookups[table].keyValues() + kept.Dim())
}

// ReadState returns a function that fills consecutive slices with the optimizer state of a table's
// rows, StateLen values in total. No other call may run during it.
func (t *Trainer) ReadState(table int) func(part []float32) error {
	var at rows.Cursor
	var room []float32 // records
	var ready []float32
	more, kept, digits := true, t.rowState(table), t.cfg.Lookups[table].keyValues()
	return func(part []float32) error {
		for len(part) > 0 {
			n := copy(part, ready)
			part, ready = part[n:], ready[n:]
			if len(part) == 0 || n > 0 {
				continue
			}
			if !more {
				return fmt.Errorf("ps: trainer: the state of rows has ended, %d values before its end", len(part))
			}
			room = room[:0]
			var err error
			at, more, err = kept.Walk(at, someRows, func(r *rows.Row) rows.Verdict {
				for i := range digits {
					room = append(room, float32(r.Key>>(16*(digits-1-i))&0xffff))
				}
				room = append(room, r.Weights...)
				return rows.Keep
			})
			if err != nil {
				return fmt.Errorf("ps: trainer: the state of rows: %w", err)
			}
			ready = room
		}
		return nil
	}
}

// WriteState returns a function that restores ReadState's values for a table, in parts of any
// length, before the first step. The state is complete after n values.
func (t *Trainer) WriteState(table, n int) (func(part []float32) error, error) {
	kept, l := t.rowState(table), &t.cfg.Lookups[table]
	if kept == nil {
		return nil, fmt.Errorf("ps: trainer: %d values of the state of rows: this trainer keeps none", n)
	}
	width := l.keyValues() + kept.Dim()
	if n%width != 0 {
		return nil, fmt.Errorf("ps: trainer: %d values of the state of rows: want a multiple of %d", n, width)
	}
	w := stateWriter{rowState: kept, of: l, width: width}
	return func(part []float32) error {
		n -= len(part)
		return w.write(part, n <= 0)
	}, nil
}

type stateWriter struct {
	rowState *rows.Table
	of       *Lookup
	width    int // values of a record

	room   []float32 // records, the last perhaps incomplete
	keys   []uint64
	values []float32
}

func (w *stateWriter) write(part []float32, last bool) error {
	w.room = append(w.room, part...)
	whole := len(w.room) / w.width
	if whole < someRows && !last {
		return nil
	}
	w.keys, w.values = w.keys[:0], w.values[:0]
	for i := range whole {
		r := w.room[i*w.width:][:w.width]
		key, err := w.key(r)
		if err != nil {
			return err
		}
		w.keys, w.values = append(w.keys, key), append(w.values, r[w.of.keyValues():]...)
	}
	w.room = w.room[:copy(w.room, w.room[whole*w.width:])]
	if _, err := w.rowState.Import(w.keys, w.values, nil, true); err != nil {
		return fmt.Errorf("ps: trainer: the state of %d rows: %w", whole, err)
	}
	return nil
}

func (w *stateWriter) key(record []float32) (key uint64, err error) {
	digits := record[:w.of.keyValues()]
	for _, d := range digits {
		if !(d >= 0 && d < 1<<16 && d == float32(uint16(d))) {
			return 0, fmt.Errorf("ps: trainer: the state of a row with the key %v: want 16 bits in each", digits)
		}
		key = key<<16 | uint64(d)
	}
	if most := w.of.Rows; most > 0 && key >= uint64(most) {
		return 0, fmt.Errorf("ps: trainer: the state of a row with the key %v: want at most %d", digits, most-1)
	}
	return key, nil
}
