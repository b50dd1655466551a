package models

import (
	"fmt"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// dcnV2 crosses its input with itself, layer by layer, followed by dense layers: DCN-V2, stacked,
// with full matrices (Wang et al. 2021).
func dcnV2() model.Spec {
	return clickSpec(model.Spec{
		Name: "dcn-v2", Params: 10655217,
		About: "click prediction: embeddings of 10 and 13 numbers through 3 cross layers and dense 400, 400, 400, 1",
	}, func(c *clickNet) func(t *nn.Tape, b model.Batch) *nn.Tensor {
		const dim = 10
		rows, width := c.table("embedding", c.rows, dim), c.embedded(dim)
		cross := c.cross(width, 3, 0)
		deep := c.tower("fc", width, 400, 400, 400, 1)
		dense := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor {
			return deep.forward(t, cross.forward(t, x[0]), nn.Identity)
		}
		return func(t *nn.Tape, b model.Batch) *nn.Tensor {
			return t.OnDevice(heter, dense, t.EmbeddingBag(b.Bags, rows, nn.SumPool, b.Values))
		}
	})
}

// crossing is the cross layers of DCN-V2.
type crossing []crossLayer

type crossLayer struct {
	down nn.Layer // projection to a lower rank; without W: a full matrix
	up   nn.Layer
}

// cross makes cross layers for inputs of this width, with matrices of rank, or of full rank for 0.
func (c *clickNet) cross(width, layers, rank int) (all crossing) {
	for i := range layers {
		var l crossLayer
		in := width
		if rank > 0 {
			l.down = nn.Layer{W: c.ps.Dense(fmt.Sprintf("cross%d.down", i+1), width, rank).W}
			in = rank
		}
		l.up = c.ps.Dense(fmt.Sprintf("cross%d", i+1), in, width)
		all = append(all, l)
	}
	return all
}

// forward is x₀ ⊙ (W x + b) + x, layer by layer, with the first layer's input x₀.
func (l crossing) forward(t *nn.Tape, x0 *nn.Tensor) *nn.Tensor {
	x := x0
	for _, layer := range l {
		y := x
		if layer.down.W != nil {
			y = t.Dense(y, layer.down, nn.Identity)
		}
		x = t.Add(t.Multiply(x0, t.Dense(y, layer.up, nn.Identity)), x)
	}
	return x
}
