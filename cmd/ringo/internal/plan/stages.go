package plan

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/costmodel"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/randbatch"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/train"
)

// measuredCosts measures a split model's sides and the whole, without rows, servers and messages.
func measuredCosts(spec model.Spec, batch, threads int, stop func() error) (costmodel.Costs, error) {
	o := model.Options{Batch: batch, Input: spec.Input, Slots: spec.Slots}
	cut, err := heter.Find(spec, o, nil)
	if err != nil {
		return costmodel.Costs{}, err
	}
	device, err := heter.NewCPU(spec, cut, heter.CPUConfig{Options: o, Seed: 1, Threads: threads, Optimizer: func(*nn.Params) (optim.Optimizer, error) {
		return optim.NewAdagrad(spec.Defaults.LR), nil
	}})
	if err != nil {
		return costmodel.Costs{}, err
	}
	defer device.Close()
	ps := nn.NewParams(1)
	m := spec.Build(ps, o)
	if err = cut.Freeze(ps, cut.Params); err == nil {
		err = m.Arrange(ps, spec.Sample(1))
	}
	if err != nil {
		return costmodel.Costs{}, fmt.Errorf("model %s: %w", spec.Name, err)
	}
	micros := train.Defaults(spec, "").Heter.Micros
	remote := &timedPart{Local: heter.Local{Device: device}}
	trainer, err := heter.NewTrainer(m, cut, micros, remote, nn.TapeConfig{Threads: threads})
	if err != nil {
		return costmodel.Costs{}, err
	}
	defer trainer.Close()
	s, err := timeStages(trainer, remote, batchOf(spec, randbatch.Batch(spec, ps, batch, 0)), stop)
	if err != nil {
		return costmodel.Costs{}, err
	}
	whole, err := measuredProfile(spec, batch, threads, stop)
	if err != nil {
		return costmodel.Costs{}, err
	}
	pass := whole.Forward
	for _, l := range whole.Layers {
		pass += l.Backward
	}
	there, back := cut.BytesPerSample()
	each := func(seconds float64) costmodel.Cost {
		return costmodel.Cost{Sample: seconds * float64(threads) / float64(batch)}
	}
	part := each(median.Of(s.part))
	part.Step = median.Of(s.update) * float64(threads)
	return costmodel.Costs{
		Model: spec.Name, Batch: batch, Micros: min(micros, batch),
		Pool: each(median.Of(s.pool)), Back: each(median.Of(s.back)), Part: part, Pass: each(pass),
		RequestBytes: float64(there), BackBytes: float64(back), PartBytes: float64(4 * cut.Values),
	}, nil
}

// timedPart is a local heter-trainer that measures its running time.
type timedPart struct {
	heter.Local
	spent time.Duration
}

func (p *timedPart) Send(m *heter.MicroBatch) error {
	begun := time.Now()
	defer func() { p.spent += time.Since(begun) }()
	return p.Local.Send(m)
}

// stageTimes are the seconds per step.
type stageTimes struct{ pool, back, part, update []float64 }

// timeStages trains on one batch, with some steps for warm-up.
func timeStages(t *heter.Trainer, part *timedPart, b model.Batch, stop func() error) (s stageTimes, err error) {
	for step := range measureWarm + measureSteps {
		if err = stop(); err != nil {
			return s, err
		}
		if _, err = t.Backward(b, 0, func(int) {}); err != nil {
			return s, err
		}
		begun := time.Now()
		if err = t.End(0); err != nil {
			return s, err
		}
		update, spent := time.Since(begun), t.Times()
		if step >= measureWarm {
			s.pool, s.back = append(s.pool, spent.Pool.Busy.Seconds()), append(s.back, spent.Back.Busy.Seconds())
			s.part, s.update = append(s.part, part.spent.Seconds()), append(s.update, update.Seconds())
		}
		part.spent = 0
	}
	return s, nil
}
