// Package randbatch makes random inputs for the built-in models: a step's time depends only on the
// number of different table rows in the input.
package randbatch

import (
	"math/rand/v2"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// MostSamples bounds a batch, and therefore memory.
const MostSamples = 1 << 16

// Shape is the shape of a model's samples.
func Shape(spec model.Spec) data.Shape {
	s := data.Shape{Values: spec.Input, IDs: spec.IDs, Labels: spec.LabelsEach(), Targets: spec.Targets}
	for _, slot := range spec.Slots {
		s.Slots = append(s.Slots, data.Slot(slot))
	}
	return s
}

// Batch makes n samples for the model with the parameters ps, different on each rank.
func Batch(spec model.Spec, ps *nn.Params, n, rank int) *data.Batch {
	rows := spec.Classes
	for _, t := range ps.Tables() {
		rows = t.Rows
	}
	b := new(data.Batch)
	b.Resize(Shape(spec), n)
	rnd := rand.New(rand.NewPCG(1, uint64(rank)))
	for i := range b.Values {
		b.Values[i] = float32(rnd.NormFloat64())
	}
	for i := range b.IDs {
		b.IDs[i] = int32(rnd.IntN(rows))
	}
	for i := range len(spec.Slots) * n { // a key in each slot
		b.Bags.Keys = append(b.Bags.Keys, rnd.Uint64())
		b.Bags.Offsets[i+1] = int32(i + 1)
	}
	for i := range b.Labels {
		b.Labels[i] = int32(rnd.IntN(spec.Classes))
	}
	return b
}
