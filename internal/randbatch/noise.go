// Package randbatch makes inputs of noise for the models of the zoo: the time of a step does not
// depend on what is in them, but on how many different rows of a table they name.
package randbatch

import (
	"math/rand/v2"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// MostSamples bounds a batch, and so the memory that it takes.
const MostSamples = 1 << 16

// Shape is that of a model's samples.
func Shape(spec model.Spec) data.Shape {
	s := data.Shape{Values: spec.Input, IDs: spec.IDs, Labels: spec.LabelsEach(), Targets: spec.Targets}
	for _, slot := range spec.Slots {
		s.Slots = append(s.Slots, data.Slot(slot))
	}
	return s
}

// Batch makes n samples for the model whose parameters are ps, others for each rank.
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
