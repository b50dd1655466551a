package main

import (
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

const (
	slots = 26
	dim   = 8 // values of a row
)

// samples are a data set that nothing is stored of: which keys a sample has in its slots follows from its number, so that a hundred
// million keys take no memory and no file. One slot has one key.
//
// They name keys: of each five in a row the first four are new ones, until there are no more, and the others are drawn by chance.
type samples struct {
	n    int
	keys uint64
	seed uint64
}

// newSamples are as many whole batches as name all keys.
func newSamples(o options) samples {
	batches := (o.Keys*5/4/slots)/o.Batch + 2
	return samples{batches * o.Batch, uint64(o.Keys), o.Seed}
}

// rank is which key is named in a place.
func (s samples) rank(place uint64) uint64 {
	if fresh := place - place/5; place%5 != 4 && fresh < s.keys {
		return fresh
	}
	z := (place + s.seed<<40 + 1) * 0x9e3779b97f4a7c15 // SplitMix64
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) % s.keys
}

const (
	spread   = 0xd6e8feb86659fd93 // odd, so that different ranks have different keys
	unspread = 0xcfee444d8b59a89b // spread*unspread is 1
)

// keyOf is the key of a rank, and rankOf the other way.
func keyOf(rank uint64) uint64 { return (rank + 1) * spread }
func rankOf(key uint64) uint64 { return key*unspread - 1 }

// counts are how often each key is named.
func (s samples) counts() []uint8 {
	out := make([]uint8, s.keys)
	for place := range uint64(s.n * slots) {
		out[s.rank(place)]++
	}
	return out
}

func (s samples) Len() int { return s.n }

func (s samples) Shape() data.Shape {
	shape := data.Shape{Labels: 1}
	for i := range slots {
		shape.Slots = append(shape.Slots, data.Slot{Name: string(rune('a' + i))})
	}
	return shape
}

// Fill makes the samples.
func (s samples) Fill(b *data.Batch, idx []int32, _ data.Draw) error {
	b.Resize(s.Shape(), len(idx))
	b.Bags.Keys, b.Bags.Offsets = b.Bags.Keys[:0], append(b.Bags.Offsets[:0], 0)
	for slot := range uint64(slots) {
		for i, n := range idx {
			b.Labels[i] = 0
			b.Bags.Keys = append(b.Bags.Keys, keyOf(s.rank(uint64(n)*slots+slot)))
			b.Bags.Offsets = append(b.Bags.Offsets, int32(len(b.Bags.Keys)))
		}
	}
	return nil
}

// counting is what is trained. No network of weights stands behind the rows, so that what is measured is keys; a dense parameter there must
// be, and it does not move.
//
// Its loss is minus the sum of all values of the rows that a sample names, in the mean over samples: descent with
// a rate of as many as there are samples adds 1 to each. A row that is named twice in a batch has the gradient of both, and 2 is added. All of
// these numbers are exact as float32: the batch is a power of two, and no key is named 2^24 times.
func counting() model.Spec {
	return model.Spec{Name: "counting", Task: model.Click, Classes: 2, Rows: 1, AnySlots: true, Slots: []model.Slot{{Name: "any"}}, Build: func(ps *nn.Params, _ model.Options) model.Model {
		rows, bias := ps.NewTable("rows", nn.RowInit{}, 1, dim), ps.New("bias", nn.Zeros, 1)
		return model.Model{
			Forward: func(t *nn.Tape, batch model.Batch) model.Outputs {
				return model.Outputs{t.EmbeddingBag(batch.Bags, rows, nn.SumPool, nil)}
			},
			Loss: func(t *nn.Tape, batch model.Batch, out model.Outputs) model.Loss {
				sum := t.Scale(t.Sum(t.Reshape(out[0], batch.N*slots*dim), 0), -1/float32(batch.N))
				sum = t.Reshape(sum, 1)
				return model.Loss{Mean: t.Add(sum, t.Scale(t.Parameter(bias), 0)), Terms: batch.N}
			},
		}
	}}
}
