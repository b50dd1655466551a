package models

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// dinSteps is the number of keys of a sequence that din uses: the last ones.
const dinSteps = 50

// din weights a user's history by its relevance to the offered item (Zhou et al. 2018): a small
// network scores each step of a sequence from its row and the row of the slot before the sequence,
// the candidate. As in the paper, weights do not add up to 1. Steps after a sequence's end are
// zeros with zero products, so no mask is needed. Sequences share the candidate's table.
func din() model.Spec {
	return clickSpec(model.Spec{
		Name: "din", Params: 16030954,
		Slots: []model.Slot{{Name: "user"}, {Name: "item"}, {Name: "history", Sequence: true}},
		About: "click prediction: attention of a candidate to the last 50 of a sequence, embeddings of 16 through dense 200, 80, 1",
	}, func(c *clickNet) func(t *nn.Tape, b model.Batch) *nn.Tensor {
		const dim = 16
		rows := c.table("embedding", c.rows, dim)
		score := c.tower("attention", 4*dim, 36, 1)
		deep := c.tower("fc", c.embedded(dim), 200, 80, 1)
		var parts []*nn.Tensor
		return func(t *nn.Tape, b model.Batch) *nn.Tensor {
			parts = parts[:0]
			var candidate *nn.Tensor
			for i, slot := range c.slots {
				of := b.Bags.Slots(i, i+1)
				if slot.Sequence && candidate != nil {
					parts = append(parts, attended(t, t.EmbeddingSequence(of, rows, dinSteps), candidate, score))
					continue
				}
				candidate = t.EmbeddingBag(of, rows, nn.SumPool, nil)
				parts = append(parts, candidate)
			}
			if c.numbers > 0 {
				parts = append(parts, b.Values)
			}
			return deep.forward(t, t.Concat(1, parts...), nn.Identity)
		}
	})
}

// attended is the sum of the steps of a sequence, [n, steps, dim], each times its score against the
// candidate, [n, dim].
func attended(t *nn.Tape, steps, candidate *nn.Tensor, score tower) *nn.Tensor {
	n, most, dim := steps.Shape[0], steps.Shape[1], steps.Shape[2]
	now := t.Broadcast(t.Reshape(candidate, n, 1, dim), n, most, dim)
	pair := t.Concat(2, steps, now, t.Subtract(steps, now), t.Multiply(steps, now))
	weights := score.forward(t, t.Reshape(pair, n*most, 4*dim), nn.Identity)
	return t.Sum(t.Multiply(steps, t.Reshape(weights, n, most, 1)), 1)
}
