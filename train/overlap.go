package train

import (
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/client"
	"github.com/ringo-ml/ringo/internal/server/trainer"
	"github.com/ringo-ml/ringo/nn"
)

// overlap is a heter.RemoteStage during whose waits the rank does what it can: in the first one it
// asks for the next batch's rows, and in the last one it sends the gradients of rows that are final
// by then. Heter-trainers have work meanwhile, and none between the last results and the next
// batch's rows.
type overlap struct {
	*client.Client
	split *splitParams
}

// Send is heter.RemoteStage's.
func (m overlap) Send(micro *heter.MicroBatch) error {
	m.split.inFlight++
	return m.Client.Send(micro)
}

// Wait is heter.RemoteStage's.
func (m overlap) Wait(micro *heter.MicroBatch) error {
	f, begun := m.split, time.Now()
	if next := f.next; next != nil {
		f.next = nil
		if err := next(); err != nil {
			return err
		}
		f.asking += time.Since(begun)
		begun = time.Now()
	}
	if f.inFlight--; f.inFlight == 0 && f.early != nil {
		if err := f.early(); err != nil {
			return err
		}
		f.pushing += time.Since(begun)
	}
	return m.Client.Wait(micro)
}

// meanwhile has next done while heter-trainers compute, or at once where there are none.
func (f *splitParams) meanwhile(next func() error) error {
	if f == nil {
		return next()
	}
	f.next = next
	return nil
}

// earlyRows is what of a table's gradient is sent before the last micro-batch has come back: the
// rows that this one does not look up.
type earlyRows struct {
	sent   bool
	marks  []uint32 // by row of the batch: the round in which the last micro-batch looks it up
	round  uint32
	ids    []int32
	values []float32
}

// begin marks rows, of so many; at has anything for keys that the table does not look up.
func (e *earlyRows) begin(rows int, at []int32) {
	if len(e.marks) < rows {
		e.marks, e.round = make([]uint32, rows+rows/4), 0
	}
	if e.round++; e.round == 0 {
		clear(e.marks)
		e.round = 1
	}
	for _, row := range at {
		if uint(row) < uint(rows) {
			e.marks[row] = e.round
		}
	}
}

// some are the rows of a gradient that are marked, or the others. They are good until the next call.
func (e *earlyRows) some(ids []int32, values []float32, dim int, marked bool) ([]int32, []float32) {
	e.ids, e.values = e.ids[:0], e.values[:0]
	for i, id := range ids {
		if (e.marks[id] == e.round) == marked {
			e.ids, e.values = append(e.ids, id), append(e.values, values[i*dim:][:dim]...)
		}
	}
	return e.ids, e.values
}

// pushEarly sends what is final of the gradients of tables by keys before the last micro-batch is back, in steps of all (bsp), where servers add up what
// comes of a step. Of tables that count, shows and clicks travel with all of a row.
func (f *splitParams) pushEarly(r *Replica, rows *trainer.Trainer) error {
	for i, t := range r.Params.Tables() {
		if t.Slots == nil || rows.Counts(i) {
			continue
		}
		e := &f.finals[i]
		_, held := rows.Rows(i)
		e.begin(len(held)/t.Dim, f.at[i])
		e.sent = true
		ids, values := t.Grad()
		ids, values = e.some(ids, values, t.Dim, false)
		if err := r.params.rowsReady(i, ids, values, nil); err != nil {
			return err
		}
	}
	return nil
}

// remainingRows is what is to be sent of a table's gradient when all is back.
func (f *splitParams) remainingRows(i int, t *nn.Table) ([]int32, []float32) {
	ids, values := t.Grad()
	if f == nil || !f.finals[i].sent {
		return ids, values
	}
	f.finals[i].sent = false
	return f.finals[i].some(ids, values, t.Dim, true)
}
