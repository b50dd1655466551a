package trainer

import (
	"fmt"

	"github.com/ringo-ml/ringo/ps/rows"
)

// What a trainer of geo keeps of rows besides what servers have is their optimizer state. It is handed out and
// taken back as records, one for each row: the upper and the lower 16 bits of its key, which float32 holds exactly,
// and its state.

const (
	keyValues = 2    // of a record
	someRows  = 1024 // that are handled at a time
)

// StateLen is how many values ReadState hands out: 0 without copies, or where their rule keeps nothing. Copies have
// been shared before.
func (t *Trainer) StateLen() int {
	if t.geo == nil || t.geo.kept == nil {
		return 0
	}
	return t.geo.kept.Len() * (keyValues + t.geo.kept.Dim())
}

// ReadState returns a function that fills one slice after the other with the rows' optimizer state, StateLen values
// in all. Nothing else is called meanwhile.
func (t *Trainer) ReadState() func(part []float32) error {
	var at rows.Cursor
	var room []float32 // records
	var ready []float32
	more := true
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
			at, more, err = t.geo.kept.Walk(at, someRows, func(r *rows.Row) rows.Verdict {
				room = append(append(room, float32(r.Key>>16), float32(r.Key&0xffff)), r.Weights...)
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

// WriteState returns a function that takes back what ReadState has handed out, in parts of any length, before the
// first step. What it takes is in place when n values have come.
func (t *Trainer) WriteState(n int) (func(part []float32) error, error) {
	if t.geo == nil || t.geo.kept == nil {
		return nil, fmt.Errorf("ps: trainer: %d values of the state of rows: this trainer keeps none", n)
	}
	width := keyValues + t.geo.kept.Dim()
	if n%width != 0 {
		return nil, fmt.Errorf("ps: trainer: %d values of the state of rows: want a multiple of %d", n, width)
	}
	w := stateWriter{geo: t.geo, width: width, rows: t.cfg.Rows}
	return func(part []float32) error {
		n -= len(part)
		return w.write(part, n <= 0)
	}, nil
}

// stateWriter puts records into a trainer's table.
type stateWriter struct {
	geo         *geo
	width, rows int // of a record; that the table has

	room   []float32 // records, the last perhaps in part
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
		key := uint64(r[0])<<16 | uint64(r[1])
		if !(r[0] >= 0 && r[1] >= 0 && r[1] < 1<<16 && key < uint64(w.rows)) {
			return fmt.Errorf("ps: trainer: the state of a row with the key %v, %v: want at most %d", r[0], r[1], w.rows-1)
		}
		w.keys, w.values = append(w.keys, key), append(w.values, r[keyValues:]...)
	}
	w.room = w.room[:copy(w.room, w.room[whole*w.width:])]
	if _, err := w.geo.kept.Import(w.keys, w.values, nil, true); err != nil {
		return fmt.Errorf("ps: trainer: the state of %d rows: %w", whole, err)
	}
	return nil
}
