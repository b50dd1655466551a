package models

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// wideDeep adds a linear model, for memorisation, to a network over embeddings, for generalisation
// (Cheng et al. 2016).
func wideDeep() model.Spec {
	return clickSpec(model.Spec{
		Name: "wide-deep", Params: 11430826,
		About: "click prediction: a linear model of keys and numbers, plus embeddings of 10 through dense 400, 400, 400, 1",
	}, func(c *clickNet) func(t *nn.Tape, b model.Batch) *nn.Tensor {
		const dim = 10
		linear, rows := c.wide(), c.table("embedding", c.rows, dim)
		deep := c.tower("fc", c.embedded(dim), 400, 400, 400, 1)
		sum := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor { return t.Add(x[1], deep.forward(t, x[0], nn.Identity)) }
		return func(t *nn.Tape, b model.Batch) *nn.Tensor {
			x := t.EmbeddingBag(b.Bags, rows, nn.SumPool, b.Values)
			return t.OnDevice(heter, sum, x, linear.forward(t, b))
		}
	})
}
