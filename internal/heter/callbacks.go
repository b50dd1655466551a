package heter

import (
	"errors"

	"github.com/ringo-ml/ringo/internal/simd"
)

// Start is the source of a device's first parameter values.
type Start int32

// The sources. With StartOwn the device has parameters that the model of the trainers does not
// have: trainers can neither set nor save them.
const (
	StartSeed    Start = iota // the seed, equal on all processes of the job
	StartTrainer              // trainer 0
	StartOwn                  // the device
)

// SyncAction is a copy between a device and the host memory of Callbacks, or a Reset.
type SyncAction int

// The actions. The numbers never change: programs in C have them.
const (
	ReadGradients SyncAction = iota // from the device to host memory
	WriteGradients
	ReadState // parameters and the optimizer's state
	WriteState
	ResetGradients
)

// Callbacks is a Device of another program, behind functions. Values are copied from the device
// when a caller asks for them, and back before the device's next operation. If device and host
// share memory, the program's copies may do nothing.
type Callbacks struct {
	// Memory is the host memory. Its State is the optimizer's state alone.
	Memory struct{ Gradients, Values, State []float32 }
	Start  Start
	// OnRun, OnUpdate and OnSync are Device.Run, Device.Update and the copies; an error ends the
	// job. OnClose may be nil.
	OnRun    func(m *MicroBatch) error
	OnUpdate func(rate float64, scale float32) error
	OnSync   func(action SyncAction) error
	OnClose  func()

	gradients, state hostCopy
	err              error // first error of a copy
}

// hostCopy describes whether values in host memory are current, and whether a caller may have
// changed them.
type hostCopy struct {
	current bool // equal to the device's, or newer
	lent    bool // a caller may have written to it
}

// Source returns Start.
func (d *Callbacks) Source() Start { return d.Start }

// Err returns the first error of OnSync.
func (d *Callbacks) Err() error { return d.err }

func (d *Callbacks) sync(action SyncAction) {
	if d.err == nil {
		d.err = d.OnSync(action)
	}
}

// lend returns values in host memory, after a copy from the device if they are not current.
func (d *Callbacks) lend(c *hostCopy, read SyncAction) {
	if !c.current {
		d.sync(read)
	}
	c.current, c.lent = true, true
}

// push copies back values that a caller may have written.
func (d *Callbacks) push(c *hostCopy, write SyncAction) {
	if c.lent {
		d.sync(write)
		c.lent = false
	}
}

// Run calls OnRun.
func (d *Callbacks) Run(m *MicroBatch) error {
	if m.BF16 {
		return errors.New("heter: a micro-batch in bf16: the device computes in its own precision: use training.precision fp32")
	}
	d.push(&d.state, WriteState)
	if !m.Eval {
		d.push(&d.gradients, WriteGradients)
		d.gradients.current = false
	}
	if d.err != nil {
		return d.err
	}
	return d.OnRun(m)
}

// Gradients copies from the device.
func (d *Callbacks) Gradients() []float32 {
	d.lend(&d.gradients, ReadGradients)
	return d.Memory.Gradients
}

// Values copies from the device after an Update.
func (d *Callbacks) Values() []float32 {
	d.lend(&d.state, ReadState)
	return d.Memory.Values
}

// State copies from the device after an Update.
func (d *Callbacks) State() [][]float32 {
	if len(d.Memory.State) == 0 {
		return [][]float32{d.Values()}
	}
	return [][]float32{d.Values(), d.Memory.State}
}

// Update calls OnUpdate. A gradient that is not finite is an error, without an update.
func (d *Callbacks) Update(rate float64, scale float32) error {
	g := d.Gradients()
	if d.err != nil {
		return d.err
	}
	if err := finite(g); err != nil {
		return err
	}
	d.push(&d.state, WriteState)
	d.push(&d.gradients, WriteGradients)
	if d.err != nil {
		return d.err
	}
	d.state.current = false
	if err := d.OnUpdate(rate, scale); err != nil {
		return err
	}
	d.Reset()
	return d.err
}

// Reset discards the device's gradients and those in host memory.
func (d *Callbacks) Reset() {
	d.sync(ResetGradients)
	d.gradients = hostCopy{}
}

// Close calls OnClose.
func (d *Callbacks) Close() {
	if d.OnClose != nil {
		d.OnClose()
	}
}

// finite returns an error for a gradient with a value that is not finite.
func finite(g []float32) error {
	if s := simd.Host().SumSquares(g); s-s != 0 {
		return errors.New("heter: the gradient of the heter-trainers' part is not finite: lower the learning rate, or look for a fault in the data or the model")
	}
	return nil
}
