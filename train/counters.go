package train

import (
	"slices"

	"github.com/ringo-ml/ringo/model"
)

// epochCounters is what a rank counts over an epoch, and what the ranks add up after
// it.
type epochCounters struct {
	train          model.Counts
	samples        float64 // of training
	trainS, median float64 // in seconds
	payload, wire  float64
	spent          stepTotals
	tuneS          float64 // of measuring and choosing between steps; not in checkpoints
	first          float64 // the loss of the first step of all; not in checkpoints
}

// all are the fields that ranks add up.
func (t *epochCounters) all() []*float64 { return append(t.values(), t.passing()...) }

// newTally is one with nothing in it.
func (e *runEnv) newTally() epochCounters { return epochCounters{train: e.replica.model.NewCounts()} }

// passing are the fields that checkpoints leave out.
func (t *epochCounters) passing() []*float64 { return []*float64{&t.spent.pull, &t.tuneS, &t.first} }

// values are the fields in a fixed order, to be added up or saved.
func (t *epochCounters) values() []*float64 {
	return slices.Concat(t.train.Fields(), []*float64{&t.samples, &t.trainS, &t.median, &t.payload, &t.wire}, t.spent.values())
}

// add adds the tally of another thread.
func (t *epochCounters) add(o *epochCounters) {
	other := o.all()
	for i, f := range t.all() {
		*f += *other[i]
	}
}
