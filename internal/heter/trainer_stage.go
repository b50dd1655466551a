package heter

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// TrainerStage is what a trainer computes of a micro-batch: the model up to the cut, and backward
// from it. One stem is for one micro-batch at a time; stems of one model share its parameters, and
// one goroutine uses them all.
type TrainerStage struct {
	model model.Model
	cut   *Cut
	tape  *nn.Tape
	x     []*nn.Tensor
	stand nn.Tensor // in place of the part's result
	outs  []*nn.Tensor
	seeds [][]float32
}

// NewStem makes one of a model whose parameters are arranged. Close ends it.
func NewStem(m model.Model, c *Cut, cfg nn.TapeConfig) *TrainerStage {
	s := &TrainerStage{model: m, cut: c, tape: nn.NewTape(cfg)}
	s.tape.Intercept(func(place string, part nn.Stage, x []*nn.Tensor) *nn.Tensor {
		if place != DeviceName {
			return part(s.tape, x)
		}
		s.x = append(s.x, x...)
		s.stand.Resize(append([]int{x[0].Shape[0]}, c.Out...)...)
		return &s.stand
	})
	return s
}

// Forward runs the model up to the cut and gives m what crosses there, which is good until the next call. Without training nothing
// is kept for Backward. seed is that of the tape's random numbers.
func (s *TrainerStage) Forward(b model.Batch, m *MicroBatch, training bool, seed uint64) {
	if s.x = s.x[:0]; training {
		s.tape.Reset()
		s.tape.SetSeed(seed)
	} else {
		s.tape.ResetEval()
	}
	s.model.Forward(s.tape, b)
	m.N, m.Eval, m.Labels, m.Targets, m.In = b.N, !training, b.Labels, b.Targets, m.In[:0]
	for _, x := range s.x {
		m.In = append(m.In, x.Data)
	}
	m.size(s.cut, b.N)
}

// Backward goes on with the gradients that came back to m. ready is as of nn.Tape.Backward: nil where another micro-batch of the
// step follows.
func (s *TrainerStage) Backward(m *MicroBatch, ready func(slot int)) {
	s.outs, s.seeds = s.outs[:0], s.seeds[:0]
	for i, x := range s.x {
		if s.cut.In[i].Grad {
			s.outs, s.seeds = append(s.outs, x), append(s.seeds, m.Grads[i])
		}
	}
	s.tape.BackwardFrom(s.outs, s.seeds, ready)
}

// Close ends its threads.
func (s *TrainerStage) Close() { s.tape.Close() }
