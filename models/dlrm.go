package models

import (
	"fmt"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// dlrmRows is the number of values of each slot in MLPerf's DLRM-DCNv2, at most 40,000,000.
var dlrmRows = [ctrSlots]int{
	40_000_000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40_000_000, 3067956, 405282, 10,
	2209, 11938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590152, 12973, 108, 36,
}

// dlrm is MLPerf's DLRM-DCNv2: a separate table for each slot, numbers through a tower to the width
// of a row, and cross layers of low rank over all. Options.Rows is the maximum size of a table:
// 40,000,000 is MLPerf's shape, the default 10,000 fits small machines.
func dlrm() model.Spec {
	return clickSpec(model.Spec{
		Name: "dlrm", Params: 35203457, Rows: 10_000, Defaults: model.Defaults{LR: 0.002}, // 0.01 diverges
		About: "click prediction: MLPerf's DLRM-DCNv2, 26 tables of 128 and a tower of numbers through 3 cross layers of rank 512 and dense 1024, 1024, 512, 256, 1",
	}, func(c *clickNet) func(t *nn.Tape, b model.Batch) *nn.Tensor {
		const dim, rank = 128, 512
		var tables []*nn.Table
		for i := range c.slots {
			rows := c.rows
			if len(c.slots) == len(dlrmRows) {
				rows = min(rows, dlrmRows[i])
			}
			tables = append(tables, c.table(fmt.Sprintf("embedding%d", i+1), rows, dim))
		}
		width := len(c.slots) * dim
		var bottom tower
		if c.numbers > 0 {
			bottom = c.tower("bottom", c.numbers, 512, 256, dim)
			width += dim
		}
		cross := c.cross(width, 3, rank)
		top := c.tower("top", width, 1024, 1024, 512, 256, 1)
		var parts []*nn.Tensor
		dense := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor {
			return top.forward(t, cross.forward(t, t.Concat(1, x...)), nn.Identity)
		}
		return func(t *nn.Tape, b model.Batch) *nn.Tensor {
			parts = parts[:0]
			if c.numbers > 0 {
				parts = append(parts, bottom.forward(t, b.Values, nn.ReLU))
			}
			for i, rows := range tables {
				parts = append(parts, t.EmbeddingBag(b.Bags.Slots(i, i+1), rows, nn.SumPool, nil))
			}
			return t.OnDevice(heter, dense, parts...)
		}
	})
}
