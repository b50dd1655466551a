package heter

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// RemoteStage runs micro-batches in other processes.
type RemoteStage interface {
	// Send sends a micro-batch, which must not change until its Wait has returned.
	Send(m *MicroBatch) error
	// Wait waits for the results of a sent micro-batch.
	Wait(m *MicroBatch) error
	// End ends the step, after each micro-batch's Wait. rate is the update's learning rate.
	End(rate float64) error
}

// StageTimes are the times of one stage of the pipeline.
type StageTimes struct {
	Busy    time.Duration
	Starved time.Duration // the previous stage had no data
	Blocked time.Duration // the next stage had no space
}

// Times are the times of a trainer's stages.
type Times struct {
	Pool StageTimes // the model up to the cut
	Send StageTimes // heter-trainers: blocked while these are full or in the previous step
	Back StageTimes // backward from the cut: starved until gradients arrive
}

// Trainer runs a trainer's side of steps: it sends a batch's micro-batches to a RemoteStage as a
// pipeline, and runs the next micro-batch up to the cut during the computation. A Trainer is not
// safe for concurrent use.
//
// A micro-batch is sent as soon as it is at the cut and the RemoteStage has space. Gradients are
// processed in the order of sending, so that the trainer's sums have the same order in each run.
// Each micro-batch in flight has a separate tape: activations take as much memory as for the whole
// batch.
type Trainer struct {
	cut          *Cut
	remote       RemoteStage
	stems        []*TrainerStage
	microBatches []*MicroBatch
	pieces       []piece
	hold         func(from []int32)
	loan         *remoteParams // nil: heter-trainers own the stage's parameters
	out          nn.Tensor
	mean         nn.Tensor
	times        Times
	sent         int // micro-batches of the step
}

// NewTrainer returns a Trainer of a model with arranged parameters, and the stage's parameters
// frozen: see Cut.Freeze. micros is the number of micro-batches per batch, at least 1.
func NewTrainer(m model.Model, c *Cut, micros int, remote RemoteStage, cfg nn.TapeConfig) (*Trainer, error) {
	if micros < 1 {
		return nil, fmt.Errorf("heter: %d micro-batches of a batch: want at least 1", micros)
	}
	t := &Trainer{cut: c, remote: remote, pieces: make([]piece, micros)}
	for range micros {
		t.stems, t.microBatches = append(t.stems, NewStem(m, c, cfg)), append(t.microBatches, &MicroBatch{})
	}
	t.mean.Resize(1)
	return t, nil
}

// BeforeEach sets a function to call before each micro-batch's forward pass, with the index in the
// batch of each of its keys, or nil for the whole batch: see nn.Table.Hold.
func (t *Trainer) BeforeEach(hold func(from []int32)) { t.hold = hold }

// Backward runs the model over a batch and adds to the gradients of the trainer's parameters, as
// nn.Tape.Backward does. The result is valid until the next call.
func (t *Trainer) Backward(b model.Batch, seed uint64, ready func(slot int)) (model.Pass, error) {
	n, err := t.send(b, true, seed)
	if err != nil {
		return model.Pass{}, err
	}
	pass := t.pass(b)
	if err := t.loan.collect(); err != nil {
		return pass, err
	}
	for i, m := range t.microBatches[:n] {
		if err := t.wait(m); err != nil {
			return pass, err
		}
		begun := time.Now()
		if i < n-1 {
			t.stems[i].Backward(m, nil)
		} else {
			t.stems[i].Backward(m, t.loan.readyExceptStage(ready))
		}
		t.times.Back.Busy += time.Since(begun)
	}
	begun := time.Now()
	if err := t.loan.take(ready); err != nil {
		return pass, err
	}
	t.times.Back.Starved += time.Since(begun)
	return t.gather(pass, n)
}

// Evaluate runs the model over a batch. The result is valid until the next call.
func (t *Trainer) Evaluate(b model.Batch) (model.Pass, error) {
	n, err := t.send(b, false, 0)
	if err != nil {
		return model.Pass{}, err
	}
	for _, m := range t.microBatches[:n] {
		if err := t.wait(m); err != nil {
			return model.Pass{}, err
		}
	}
	return t.gather(t.pass(b), n)
}

// send runs a batch up to the cut and sends its micro-batches, each of at least one sample.
func (t *Trainer) send(b model.Batch, training bool, seed uint64) (n int, err error) {
	if err := t.loan.send(); err != nil {
		return 0, err
	}
	n = min(len(t.microBatches), b.N)
	for i, m := range t.microBatches[:n] {
		lo, hi := bounds(b.N, n, i)
		begun := time.Now()
		some := t.pieces[i].of(b, lo, hi)
		if t.hold != nil && n > 1 {
			t.hold(t.pieces[i].from)
		} else if t.hold != nil {
			t.hold(nil)
		}
		t.stems[i].Forward(some, m, training, seed+uint64(i))
		m.Index = t.sent + i
		m.Seed = float32(float64(hi-lo) / float64(b.N) * float64(cmp.Or(b.Share, 1)))
		sent := time.Now()
		t.times.Pool.Busy += sent.Sub(begun)
		if err := t.remote.Send(m); err != nil {
			return n, err
		}
		t.times.Pool.Blocked += time.Since(sent)
	}
	if training {
		t.sent += n
	}
	return n, nil
}

func (t *Trainer) wait(m *MicroBatch) error {
	begun := time.Now()
	err := t.remote.Wait(m)
	t.times.Back.Starved += time.Since(begun)
	return err
}

func (t *Trainer) pass(b model.Batch) model.Pass {
	t.out.Resize(append([]int{b.N}, t.cut.Out...)...)
	return model.Pass{Batch: b, Outputs: model.Outputs{&t.out}, Loss: model.Loss{Mean: &t.mean}}
}

// gather merges the results of n micro-batches.
func (t *Trainer) gather(p model.Pass, n int) (model.Pass, error) {
	at, sum := 0, 0.0
	for _, m := range t.microBatches[:n] {
		at += copy(t.out.Data[at:], m.Out)
		p.Loss.Terms += m.Terms
		p.Loss.Correct += m.Correct
		sum += float64(m.Loss) * float64(m.Terms)
	}
	if p.Loss.Terms < 1 {
		return p, errors.New("heter: a batch whose loss has no terms")
	}
	if t.mean.Data[0] = t.microBatches[0].Loss; n > 1 {
		t.mean.Data[0] = float32(sum / float64(p.Loss.Terms))
	}
	return p, nil
}

// End ends the step: see RemoteStage.End.
func (t *Trainer) End(rate float64) error {
	t.sent = 0
	return t.remote.End(rate)
}

// Times are the times since the last call.
func (t *Trainer) Times() Times {
	was := t.times
	if r, ok := t.remote.(interface{ Times() StageTimes }); ok {
		was.Send = r.Times()
	}
	t.times = Times{}
	return was
}

// Close ends the threads.
func (t *Trainer) Close() {
	for _, s := range t.stems {
		s.Close()
	}
}
