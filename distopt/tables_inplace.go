package distopt

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/collective"
)

// Row-sparse gradients that lie in memory which all ranks share are not gathered:
// each rank is told where the others' are and reads them there, once. A barrier ends
// that, after which each rank may change its own.

// What a rank shows of a table: how many ids it has, and where they and their rows lie
// (collective.SharedOffset).
const (
	shownCount = iota
	shownIDs
	shownRows
	shownLen
)

// view is a rank's gradient of a table where it lies.
type view struct {
	ids  []int32
	rows []float32
}

// show says what this rank has.
func (t *table) show(g *collective.Group, shown []int64) {
	shown[shownCount] = int64(len(t.ids))
	shown[shownIDs], shown[shownRows] = collective.SharedOffset(g, t.ids), collective.SharedOffset(g, t.rows)
}

// inPlace reports whether all ranks' gradients of all tables lie in shared memory:
// every rank comes to the same answer.
func (s *tables) inPlace() bool {
	for i := 0; i < len(s.all); i += shownLen {
		if s.all[i+shownIDs] < 0 || s.all[i+shownRows] < 0 {
			return false
		}
	}
	return true
}

// takeInPlace is the rest of finish there. Of two ranks each reads the other's rows and
// goes on with its own, of which those that both have then hold the sum.
func (s *tables) takeInPlace(whole bool) (end time.Time, err error) {
	two := s.group.Size() == 2 && !whole
	for i, t := range s.list {
		if err := t.look(s.group, s.all[shownLen*i:], shownLen*len(s.list)); err != nil {
			return end, fmt.Errorf("table %s: exchanging the rows: %w", t.Name, err)
		}
		if two {
			other := t.views[1-s.group.Rank()]
			t.restIDs, t.restRows = t.merger.split(t.Dim, t.ids, other.ids, other.rows)
			err = t.checkIDs(1-s.group.Rank(), t.restIDs) // those that both have are this rank's
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

// look finds the ranks' gradients where they have shown them.
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

// copyAll gathers what the views show.
func (t *table) copyAll() {
	t.makeRoom()
	at := 0
	for _, v := range t.views {
		copy(t.allIDs[at:], v.ids)
		copy(t.allRows[at*t.Dim:], v.rows)
		at += len(v.ids)
	}
}
