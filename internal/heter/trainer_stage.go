package heter

import (
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// TrainerStage is a trainer's side of one micro-batch: the model up to the cut, and backward from
// there. A stage is for a single micro-batch at a time. All stages of a model share the parameters,
// and are not safe for concurrent use together.
type TrainerStage struct {
	model model.Model
	cut   *Cut
	tape  *nn.Tape
	bf16  bool // precision of the tape, and of the micro-batches
	x     []*nn.Tensor
	stand nn.Tensor // replaces the stage's result
	outs  []*nn.Tensor
	seeds [][]float32
}

// NewStem returns a stage of a model with arranged parameters. Close ends it.
func NewStem(m model.Model, c *Cut, cfg nn.TapeConfig) *TrainerStage {
	s := &TrainerStage{model: m, cut: c, tape: nn.NewTape(cfg), bf16: cfg.Kernels != nil && cfg.Kernels != cfg.Kernels.Single()}
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

// Forward runs the model up to the cut and sets m's inputs, valid until the next call. Backward
// needs training. seed is the seed of the tape's random numbers.
func (s *TrainerStage) Forward(b model.Batch, m *MicroBatch, training bool, seed uint64) {
	if s.x = s.x[:0]; training {
		s.tape.Reset()
		s.tape.SetSeed(seed)
	} else {
		s.tape.ResetEval()
	}
	s.model.Forward(s.tape, b)
	m.N, m.Eval, m.BF16, m.Labels, m.Targets, m.In = b.N, !training, s.bf16, b.Labels, b.Targets, m.In[:0]
	for _, x := range s.x {
		m.In = append(m.In, x.Data)
	}
	m.size(s.cut, b.N)
}

// Backward continues with m's gradients. ready is as in nn.Tape.Backward, and nil for all
// micro-batches of a step except the last.
func (s *TrainerStage) Backward(m *MicroBatch, ready func(slot int)) {
	s.outs, s.seeds = s.outs[:0], s.seeds[:0]
	for i, x := range s.x {
		if s.cut.In[i].Grad {
			s.outs, s.seeds = append(s.outs, x), append(s.seeds, m.Grads[i])
		}
	}
	s.tape.BackwardFrom(s.outs, s.seeds, ready)
}

// Close ends the threads.
func (s *TrainerStage) Close() { s.tape.Close() }
