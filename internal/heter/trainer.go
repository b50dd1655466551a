package heter

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// RemoteStage runs micro-batches elsewhere.
type RemoteStage interface {
	// Send hands a micro-batch over, which stays as it is until Wait has returned for it.
	Send(m *MicroBatch) error
	// Wait waits until a micro-batch that was sent has its results.
	Wait(m *MicroBatch) error
	// End ends the step: all its micro-batches have been waited for. rate is the learning rate by which the part moves.
	End(rate float64) error
}

// StageTimes are how a stage of a pipeline has spent its time.
type StageTimes struct {
	Busy    time.Duration
	Starved time.Duration // the stage before had nothing for it
	Blocked time.Duration // the stage behind had no room
}

// Times are those of a trainer's stages.
type Times struct {
	Pool StageTimes // the model up to the cut
	Send StageTimes // to heter-trainers: blocked where these have no room, or are still at the step before
	Back StageTimes // the model from the cut backward: starved until gradients are back
}

// Trainer does a trainer's share of steps: a batch goes in micro-batches up to the cut, to a
// RemoteStage and back. While that computes one, the trainer is at the next. It is used by one
// goroutine.
//
// Micro-batches go there as soon as they are at the cut, as long as the RemoteStage has room, and
// gradients are taken in the order in which they were sent, whichever come back first: what stays
// with the trainer adds up in the same order in each run. Each micro-batch under way has a tape of
// its own, so that memory for activations is that of the whole batch.
type Trainer struct {
	cut          *Cut
	remote       RemoteStage
	stems        []*TrainerStage
	microBatches []*MicroBatch
	pieces       []piece
	hold         func(from []int32)
	loan         *remoteParams // nil: heter-trainers have the part's parameters
	out          nn.Tensor
	mean         nn.Tensor
	times        Times
}

// NewTrainer makes one of a model whose parameters are arranged, with those of the part frozen: see Cut.Freeze. A batch goes in so
// many micro-batches, at least 1.
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

// BeforeEach makes hold be called before a micro-batch goes up to the cut, with the place in the batch of each of its keys, or nil where
// it is the whole batch: rows that lie elsewhere are held by the places of keys, see nn.Table.Hold.
func (t *Trainer) BeforeEach(hold func(from []int32)) { t.hold = hold }

// Backward runs the model over a batch and adds to the gradients of what stays, as nn.Tape.Backward does. What it returns is good
// until the next call.
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

// Evaluate runs the model over a batch; what it returns is good until the next call.
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

// send runs a batch up to the cut and sends what crosses, in as many micro-batches as it has samples for.
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
		m.Seed = float32(float64(hi-lo) / float64(b.N) * float64(cmp.Or(b.Share, 1)))
		sent := time.Now()
		t.times.Pool.Busy += sent.Sub(begun)
		if err := t.remote.Send(m); err != nil {
			return n, err
		}
		t.times.Pool.Blocked += time.Since(sent)
	}
	return n, nil
}

func (t *Trainer) wait(m *MicroBatch) error {
	begun := time.Now()
	err := t.remote.Wait(m)
	t.times.Back.Starved += time.Since(begun)
	return err
}

// pass is that of a batch without its results.
func (t *Trainer) pass(b model.Batch) model.Pass {
	t.out.Resize(append([]int{b.N}, t.cut.Out...)...)
	return model.Pass{Batch: b, Outputs: model.Outputs{&t.out}, Loss: model.Loss{Mean: &t.mean}}
}

// gather puts the results of n micro-batches together.
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
func (t *Trainer) End(rate float64) error { return t.remote.End(rate) }

// Times are what was spent since the last call.
func (t *Trainer) Times() Times {
	was := t.times
	if r, ok := t.remote.(interface{ Times() StageTimes }); ok {
		was.Send = r.Times()
	}
	t.times = Times{}
	return was
}

// Close ends its threads.
func (t *Trainer) Close() {
	for _, s := range t.stems {
		s.Close()
	}
}
