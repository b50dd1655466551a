package distopt

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// Table is a parameter of which each step uses few rows. Its gradient travels as ids and rows, an
// optim.RowOptimizer updates these rows, and other rows do not change, in every strategy.
type Table struct {
	Name      string
	Rows, Dim int
	Data      []float32 // Rows*Dim, row by row
}

// table is a Table with the state of a step.
type table struct {
	Table
	ready bool
	ids   []int32 // this rank's, until Step returns
	rows  []float32

	counts          []int
	allIDs          []int32
	allRows         []float32
	views           []view           // per rank, if all gradients are in shared memory
	idWork, rowWork *collective.Work // nil when not in flight
	merger          merger
	sumIDs          []int32 // agreed: the sum over ranks
	sumRows         []float32
	restIDs         []int32 // rows of the second rank that are not in the sum
	restRows        []float32
}

// tables exchanges the row-sparse gradients of a step.
type tables struct {
	group      *collective.Group
	opt        optim.RowOptimizer
	list       []*table
	local, all []int64          // descriptions of this rank's tables, of all ranks' tables
	counting   *collective.Work // allgather of local into all
}

// newTables binds the optimizer to the tables and reports tables that do not fit.
func newTables(g *collective.Group, opt optim.Optimizer, list []Table) (tables, error) {
	s := tables{group: g}
	if len(list) == 0 {
		return s, nil
	}
	rows, ok := opt.(optim.RowOptimizer)
	if !ok {
		return s, fmt.Errorf("optimizer %s cannot update the rows of a table", opt.Name())
	}
	var errs []error
	var dims [][2]int
	for _, t := range list {
		if t.Rows < 1 || t.Rows > math.MaxInt32 || t.Dim < 1 || len(t.Data) != t.Rows*t.Dim {
			errs = append(errs, fmt.Errorf("table %s has %d values for %d rows of %d", t.Name, len(t.Data), t.Rows, t.Dim))
		}
		dims = append(dims, [2]int{t.Rows, t.Dim})
		s.list = append(s.list, &table{Table: t, counts: make([]int, g.Size()), views: make([]view, g.Size()), merger: merger{kernels: simd.Host()}})
	}
	s.opt = rows
	s.local, s.all = make([]int64, shownLen*len(list)), make([]int64, shownLen*len(list)*g.Size())
	if len(errs) == 0 {
		errs = append(errs, rows.BindTables(dims))
	}
	return s, errors.Join(errs...)
}

// RowsReady sets a table's gradient of this step: the sum over its backwards, as ascending unique
// ids with Dim values each. Call it once per table after the last backward, even without ids. Until
// Step returns, the caller must not touch the slices. Step returns any error.
func (o *Optimizer) RowsReady(table int, ids []int32, rows []float32) {
	if o.fault != nil {
		return
	}
	if err := o.tables.ready(table, ids, rows); err != nil {
		o.failStep("", err)
	}
}

func (s *tables) ready(i int, ids []int32, rows []float32) error {
	if i < 0 || i >= len(s.list) {
		return fmt.Errorf("table %d is not known: there are %d", i, len(s.list))
	}
	t := s.list[i]
	if t.ready {
		return fmt.Errorf("table %s: its gradient was given twice", t.Name)
	}
	if len(rows) != len(ids)*t.Dim {
		return fmt.Errorf("table %s: %d values for %d rows of %d", t.Name, len(rows), len(ids), t.Dim)
	}
	last := int32(-1)
	for k, id := range ids {
		if id <= last || int(id) >= t.Rows {
			return fmt.Errorf("table %s: id %d at %d of %d: want ids ascending, each once, from 0 to %d", t.Name, id, k, len(ids), t.Rows-1)
		}
		last = id
	}
	t.ready, t.ids, t.rows = true, ids, rows
	return nil
}

// waiting returns the name of a table without a gradient, or "".
func (s *tables) waiting() string {
	for _, t := range s.list {
		if !t.ready {
			return t.Name
		}
	}
	return ""
}

// begin starts the exchange of each rank's number of ids, and of the offsets of ids and rows in
// shared memory.
func (s *tables) begin() {
	if len(s.list) == 0 || s.group.Size() == 1 {
		return
	}
	for i, t := range s.list {
		t.show(s.group, s.local[shownLen*i:])
	}
	s.counting = collective.StartAllGather(s.group, s.all, s.local)
}

// finish gathers and merges all gradients and returns the time of the last arrival. If whole, as a
// norm needs, equal ids are merged to one row; otherwise the rows of two ranks may stay in two
// lists. An error names the table.
func (s *tables) finish(whole bool) (end time.Time, err error) {
	if s.counting == nil { // a single rank
		for _, t := range s.list {
			t.sumIDs, t.sumRows = t.ids, t.rows
		}
		return end, nil
	}
	err = s.counting.Wait()
	s.counting = nil
	if err != nil {
		return end, fmt.Errorf("counting the rows: %w", err)
	}
	for i, t := range s.list {
		if err := t.count(s.all[shownLen*i:], shownLen*len(s.list)); err != nil {
			return end, fmt.Errorf("table %s: %w", t.Name, err)
		}
	}
	if s.inPlace() {
		return s.takeInPlace(whole)
	}
	for _, t := range s.list {
		t.start(s.group)
	}
	for _, t := range s.list {
		last, err := t.wait()
		if err != nil {
			return end, fmt.Errorf("table %s: exchanging the rows: %w", t.Name, err)
		}
		if err := t.check(); err != nil {
			return end, fmt.Errorf("table %s: %w", t.Name, err)
		}
		t.join(whole)
		end = last
	}
	return end, nil
}

// join merges the gathered rows.
func (t *table) join(whole bool) {
	if whole || len(t.counts) != 2 {
		t.sumIDs, t.sumRows = t.merger.merge(t.Dim, t.counts, t.allIDs, t.allRows)
		return
	}
	n := t.counts[0]
	t.restIDs, t.restRows = t.merger.part(t.Dim, t.counts, t.allIDs, t.allRows)
	t.sumIDs, t.sumRows = t.allIDs[:n], t.allRows[:n*t.Dim]
}

// count reads every rank's number of ids from shown, which has stride entries per rank, and returns
// an error for impossible numbers.
func (t *table) count(shown []int64, stride int) error {
	for r := range t.counts {
		n := shown[r*stride+shownCount]
		if n < 0 || n > int64(t.Rows) {
			return fmt.Errorf("rank %d says that it has %d rows, there are %d", r, n, t.Rows)
		}
		t.counts[r] = int(n)
	}
	return nil
}

// check returns an error for ids outside the table, because updates write to these rows.
func (t *table) check() error {
	at := 0
	for r, n := range t.counts {
		if err := t.checkIDs(r, t.allIDs[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

func (t *table) checkIDs(rank int, ids []int32) error {
	before, wrong := int32(-1), int32(0)
	for _, id := range ids { // without a branch
		wrong |= id | (id - before - 1)
		before = id
	}
	if wrong < 0 || int(before) >= t.Rows {
		return fmt.Errorf("the ids of rank %d do not ascend from 0 to below %d", rank, t.Rows)
	}
	return nil
}

func (t *table) start(g *collective.Group) {
	t.makeRoom()
	t.idWork = collective.StartAllGatherV(g, t.allIDs, t.ids, t.counts)
	for r := range t.counts {
		t.counts[r] *= t.Dim
	}
	t.rowWork = collective.StartAllGatherV(g, t.allRows, t.rows, t.counts)
	for r := range t.counts {
		t.counts[r] /= t.Dim
	}
}

func (t *table) makeRoom() {
	total := 0
	for _, n := range t.counts {
		total += n
	}
	t.allIDs, t.allRows = bytesview.Sized(t.allIDs, total), bytesview.Sized(t.allRows, total*t.Dim)
}

func (t *table) wait() (end time.Time, err error) {
	_, idErr := t.idWork.WaitEnd()
	end, err = t.rowWork.WaitEnd()
	t.idWork, t.rowWork = nil, nil
	return end, errors.Join(idErr, err)
}

// update applies the agreed gradients, multiplied by scale.
func (s *tables) update(scale float32) {
	for i, t := range s.list {
		if len(t.sumIDs) > 0 {
			s.opt.UpdateRows(i, t.Data, t.sumIDs, t.sumRows, scale)
		}
		if len(t.restIDs) > 0 {
			s.opt.UpdateRows(i, t.Data, t.restIDs, t.restRows, scale)
		}
	}
}

func (s *tables) sumSquares(k *simd.Kernels) float64 {
	sum := 0.0
	for _, t := range s.list {
		sum += k.SumSquares(t.sumRows)
	}
	return sum
}

// drain waits for operations in flight after an error.
func (s *tables) drain() {
	if s.counting != nil {
		_ = s.counting.Wait() // the first error is stored already
		s.counting = nil
	}
	for _, t := range s.list {
		for _, w := range []*collective.Work{t.idWork, t.rowWork} {
			if w != nil {
				_ = w.Wait()
			}
		}
		t.idWork, t.rowWork = nil, nil
	}
}

func (s *tables) reset() {
	for _, t := range s.list {
		t.ready, t.ids, t.rows, t.sumIDs, t.sumRows, t.restIDs, t.restRows = false, nil, nil, nil, nil, nil, nil
	}
}

func (s *tables) broadcast() error {
	for i, t := range s.list {
		if err := collective.Broadcast(s.group, t.Data, 0); err != nil {
			return fmt.Errorf("broadcasting table %s: %w", t.Name, err)
		}
		for _, st := range s.opt.TableState(i) {
			if err := collective.Broadcast(s.group, st.Data, 0); err != nil {
				return fmt.Errorf("broadcasting the optimizer state %q of table %s: %w", st.Name, t.Name, err)
			}
		}
	}
	return nil
}
