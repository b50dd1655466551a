package distopt

import (
	"errors"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/exchange"
)

// dense is a reducer of float32 values by allreduce. Operations are waited for in
// the order of their start.
type dense struct {
	group *collective.Group
	works []*collective.Work // from next on: under way
	next  int
	fault error
}

func newDense(g *collective.Group) *dense { return &dense{group: g} }

func (d *dense) Start(op *exchange.Op) {
	if d.next == len(d.works) {
		d.works, d.next = d.works[:0], 0
	}
	if op.Sparse != nil || op.Code != nil {
		d.fault = errors.New("entries and codes need a reducer of their own (Config.Reducer)")
	}
	d.works = append(d.works, collective.StartAllReduce(d.group, op.X, collective.Sum))
}

func (d *dense) Wait(op *exchange.Op) (time.Time, error) {
	w := d.works[d.next]
	d.next++
	end, err := w.WaitEnd()
	op.Sent = exchange.Sent{Entries: len(op.X), Dense: true}
	return end, errors.Join(d.fault, err)
}

func (d *dense) Close() error { return nil }
