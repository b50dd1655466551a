package train

import (
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/client"
)

// overlap is a heter.RemoteStage that works while the rank waits: in the first wait it requests the
// next batch's rows, in the last wait it pushes final gradients of rows. Both happen while
// heter-trainers compute; otherwise heter-trainers would wait for them.
type overlap struct {
	*client.Client
	split *heterParams
}

// Send implements heter.RemoteStage.
func (m overlap) Send(micro *heter.MicroBatch) error {
	m.split.inFlight++
	return m.Client.Send(micro)
}

// Wait implements heter.RemoteStage.
func (m overlap) Wait(micro *heter.MicroBatch) error {
	f, begun := m.split, time.Now()
	if ask := f.ask; ask != nil {
		f.ask = nil
		if err := ask(); err != nil {
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

// earlyRows marks the rows of a table's gradient that the last micro-batch does not use, so that
// they are pushed before its results arrive.
type earlyRows struct {
	sent   bool
	marks  []uint32 // round of the last look-up by the last micro-batch, by row of the batch
	round  uint32
	ids    []int32
	values []float32
}

// begin marks rows; at has any value for keys that the table does not look up.
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

// some returns the marked rows of a gradient, or the unmarked ones, valid until the next call.
func (e *earlyRows) some(ids []int32, values []float32, dim int, marked bool) ([]int32, []float32) {
	e.ids, e.values = e.ids[:0], e.values[:0]
	for i, id := range ids {
		if (e.marks[id] == e.round) == marked {
			e.ids, e.values = append(e.ids, id), append(e.values, values[i*dim:][:dim]...)
		}
	}
	return e.ids, e.values
}

// pushEarly pushes those gradients of keyed tables to which the last micro-batch adds nothing,
// before its results arrive. It is for bsp only, where servers add up the pushes of a step, and for
// tables without counts of shows and clicks: a push of a row has its counts of the whole step.
func (f *heterParams) pushEarly() error {
	for i, t := range f.replica.Params.Tables() {
		if t.Slots == nil || f.trainer.Counts(i) {
			continue
		}
		e := &f.finals[i]
		_, held := f.trainer.Rows(i)
		e.begin(len(held)/t.Dim, f.at[i])
		e.sent = true
		ids, values := t.Grad()
		ids, values = e.some(ids, values, t.Dim, false)
		if err := f.serverParams.rowsReady(i, ids, values, nil); err != nil {
			return err
		}
	}
	return nil
}

// rowsReady pushes the rows of a table's gradient that pushEarly has not pushed.
func (f *heterParams) rowsReady(table int, ids []int32, grads []float32, labels []int32) error {
	if e := &f.finals[table]; e.sent {
		e.sent = false
		ids, grads = e.some(ids, grads, f.replica.Params.Tables()[table].Dim, true)
	}
	return f.serverParams.rowsReady(table, ids, grads, labels)
}
