package models

import (
	"cmp"
	"fmt"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// heter is the name of the device for parts of click models that compute much and use no table:
// processes of another kind can run them, see nn.Tape.OnDevice.
const heter = "heter"

// clickSpec completes the spec of a click model with keys as input. The model takes any slots and
// numbers, by default Criteo's, and returns a logit for each sample.
func clickSpec(s model.Spec, build func(c *clickNet) func(t *nn.Tape, b model.Batch) *nn.Tensor) model.Spec {
	s.Task, s.Data, s.Classes = model.Click, "criteo", 2
	s.AnySlots, s.Input = true, []int{ctrNumbers}
	s.Rows = cmp.Or(s.Rows, ctrRows)
	if s.Slots == nil {
		for i := range ctrSlots {
			s.Slots = append(s.Slots, model.Slot{Name: fmt.Sprintf("C%d", i+1)})
		}
	}
	s.Defaults = model.Defaults{Optimizer: "adagrad", Batch: 512, Epochs: 1, LR: cmp.Or(s.Defaults.LR, 0.01), GlobalBatch: 512}
	spec := s
	s.Build = func(ps *nn.Params, o model.Options) model.Model {
		c := &clickNet{ps: ps, rows: cmp.Or(o.Rows, spec.Rows), numbers: ctrNumbers, slots: spec.Slots}
		if len(o.Slots) > 0 {
			c.slots, c.numbers = o.Slots, product(o.Input)
		}
		logit := build(c)
		return model.Model{
			Forward: func(t *nn.Tape, b model.Batch) model.Outputs { return model.Outputs{logit(t, b)} },
			Loss:    model.BinaryCrossEntropy,
			Metrics: clickMetrics(),
		}
	}
	return s
}

func clickMetrics() []model.Metric {
	return []model.Metric{detail(model.Accuracy()), model.LogLoss(), model.AUC(model.Probability), detail(model.Calibration(model.Probability))}
}

// clickNet builds a click model.
type clickNet struct {
	ps      *nn.Params
	slots   []model.Slot
	rows    int // rows of a table
	numbers int // numbers of a sample, possibly 0
}

// table makes a table with rows of dim values, which slots may share.
func (c *clickNet) table(name string, rows, dim int) *nn.Table {
	return c.ps.NewTable(name, nn.UniformRows(0.05), rows, dim)
}

// tower is a sequence of dense layers.
type tower []nn.Layer

func (c *clickNet) tower(name string, in int, widths ...int) (t tower) {
	for i, width := range widths {
		t = append(t, c.ps.Dense(fmt.Sprintf("%s%d", name, i+1), in, width))
		in = width
	}
	return t
}

// forward applies the layers: ReLU follows each layer, except that last follows the final one.
func (l tower) forward(t *nn.Tape, x *nn.Tensor, last nn.Activation) *nn.Tensor {
	for i, layer := range l {
		act := nn.ReLU
		if i == len(l)-1 {
			act = last
		}
		x = t.Dense(x, layer, act)
	}
	return x
}

// wide is a linear model: a weight for each key and each number, and a bias.
type wide struct {
	keys *nn.Table
	rest nn.Layer // layer of the numbers, if any
	bias *nn.Param
}

func (c *clickNet) wide() (w wide) {
	if w.keys = c.table("wide", c.rows, 1); c.numbers > 0 {
		w.rest = c.ps.Dense("numbers", c.numbers, 1)
	} else {
		w.bias = c.ps.New("bias", nn.Zeros, 1)
	}
	return w
}

// forward returns a value per sample, [n, 1].
func (w wide) forward(t *nn.Tape, b model.Batch) *nn.Tensor {
	sum := t.Reshape(t.Sum(t.EmbeddingBag(b.Bags, w.keys, nn.SumPool, nil), 1), b.N, 1)
	if w.bias != nil {
		return t.Add(sum, t.Broadcast(t.Parameter(w.bias), b.N, 1))
	}
	return t.Add(sum, t.Dense(b.Values, w.rest, nn.Identity))
}

// embedded is the number of values in the concatenation of all slots' rows and the numbers.
func (c *clickNet) embedded(dim int) int { return len(c.slots)*dim + c.numbers }
