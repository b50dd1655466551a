package models

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// deepFM is wideDeep with the products of pairs of embeddings, a factorisation machine (Guo et al.
// 2017). The sum over all pairs is half of the difference between the square of the sum and the sum
// of the squares.
func deepFM() model.Spec {
	return clickSpec(model.Spec{
		Name: "deepfm", Params: 11430826,
		About: "click prediction: a factorisation machine, plus embeddings of 10 through dense 400, 400, 400, 1",
	}, func(c *clickNet) func(t *nn.Tape, b model.Batch) *nn.Tensor {
		const dim = 10
		linear, rows := c.wide(), c.table("embedding", c.rows, dim)
		deep := c.tower("fc", c.embedded(dim), 400, 400, 400, 1)
		sum := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor { return t.Add(x[1], deep.forward(t, x[0], nn.Identity)) }
		return func(t *nn.Tape, b model.Batch) *nn.Tensor {
			v := t.EmbeddingBag(b.Bags, rows, nn.SumPool, nil)
			fields := t.Reshape(v, b.N, len(c.slots), dim)
			of := t.Sum(fields, 1) // [n, dim]
			pairs := t.Subtract(t.RowDot(of, of), t.RowDot(v, v))
			x := v
			if c.numbers > 0 {
				x = t.Concat(1, v, b.Values)
			}
			shallow := t.Add(linear.forward(t, b), t.Scale(t.Reshape(pairs, b.N, 1), 0.5))
			return t.OnDevice(heter, sum, x, shallow)
		}
	})
}
