package distopt

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/collective"
)

// Row-sparse gradients in shared memory are not gathered: ranks exchange the offsets of their
// gradients, and each rank reads the other ranks' gradients in place, once. After a barrier each
// rank may change its own gradients again.

// Fields of a rank's description of a table: the number of ids, and the offsets of ids and rows
// (collective.SharedOffset).
const (
	shownCount = iota
	shownIDs
	shownRows
	shownLen
)

// view is a rank's gradient of a table in shared memory.
type view struct {
	ids  []int32
	rows []float32
}

// show describes this rank's gradient.
func (t *table) show(g *collective.Group, shown []int64) {
	shown[shownCount] = int64(len(t.ids))
	shown[shownIDs], shown[shownRows] = collective.SharedOffset(g, t.ids), collective.SharedOffset(g, t.rows)
}

// inPlace reports whether all ranks' gradients of all tables are in shared memory. All ranks return
// the same value.
func (s *tables) inPlace() bool {
	for i := 0; i < len(s.all); i += shownLen {
		if s.all[i+shownIDs] < 0 || s.all[i+shownRows] < 0 {
			return false
		}
	}
	return true
}

// takeInPlace does the rest of finish in shared memory. With two ranks, each reads the other's rows
// and adds rows of common ids to its own.
func (s *tables) takeInPlace(whole bool) (end time.Time, err error) {
	two := s.group.Size() == 2 && !whole
	for i, t := range s.list {
		if err := t.look(s.group, s.all[shownLen*i:], shownLen*len(s.list)); err != nil {
			return end, fmt.Errorf("table %s: exchanging the rows: %w", t.Name, err)
		}
		if two {
			other := t.views[1-s.group.Rank()]
			t.restIDs, t.restRows = t.merger.split(t.Dim, t.ids, other.ids, other.rows)
			err = t.checkIDs(1-s.group.Rank(), t.restIDs) // common ids are this rank's
		} else {
			t.copyAll()
			err = t.check()
		}
		if err != nil {
			return end, fmt.Errorf("table %s: %w", t.Name, err)
		}
	}
	if err := collective.Barrier(s.group); err != nil {
		return end, fmt.Errorf("exchanging the tables' rows: %w", err)
	}
	end = time.Now()
	for _, t := range s.list {
		if two {
			t.merger.fold(t.Dim, t.rows)
			t.sumIDs, t.sumRows = t.ids, t.rows
		} else {
			t.join(whole)
		}
	}
	return end, nil
}

// look finds the ranks' gradients in shared memory by the offsets in shown.
func (t *table) look(g *collective.Group, shown []int64, stride int) (err error) {
	for r := range t.views {
		at, v := shown[r*stride:], &t.views[r]
		n := t.counts[r]
		if v.ids, err = collective.SharedSlice[int32](g, r, at[shownIDs], n); err != nil {
			return err
		}
		if v.rows, err = collective.SharedSlice[float32](g, r, at[shownRows], n*t.Dim); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) copyAll() {
	t.makeRoom()
	at := 0
	for _, v := range t.views {
		copy(t.allIDs[at:], v.ids)
		copy(t.allRows[at*t.Dim:], v.rows)
		at += len(v.ids)
	}
}
