package heter

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// Device computes a stage: the whole interface between a heter-trainer and the hardware. CPU is a
// Device, and an accelerator would be. A Device is not safe for concurrent use.
//
// A step is a number of Runs, with the sum of their gradients, and an Update. Evaluations may be
// between any two and have no effect on state. Gradients and Values are in this process's
// memory: a device with separate memory copies.
type Device interface {
	// Run runs the stage forward over a micro-batch, and backward unless m.Eval is set. It adds to
	// the parameters' gradients, and writes its results to m.
	Run(m *MicroBatch) error
	// Gradients are the sums over all Runs since the last Update, Values the parameters, in the
	// same order. Callers that synchronise devices read and write both. They are valid until the
	// next call.
	Gradients() []float32
	Values() []float32
	// State is the whole state of training: the parameters and the optimizer's state. Devices with
	// equal State compute equal steps. It may be written between steps, and is valid until the next
	// call.
	State() [][]float32
	// Update updates the parameters by the gradients times scale, and starts a new sum.
	Update(rate float64, scale float32) error
	// Reset discards the gradients of all Runs since the last Update.
	Reset()
	// Source returns the source of the parameters' first values.
	Source() Start
	// Err returns the first error of a copy between the device and this process's memory, because
	// Gradients, Values, State and Reset return none.
	Err() error
	Close()
}

// Precision describes the precisions of a device, which MicroBatch.BF16 selects.
type Precision struct {
	// BF16 reports that the device has products of bfloat16, and AMX that they are computed by AMX,
	// which has other bits than AVX512-BF16.
	BF16, AMX bool
	// Times are measured times of a micro-batch in fp32 and in bf16, 0 without a measurement.
	Times [2]time.Duration
}

// PrecisionOf returns the precisions of a device: fp32 alone, unless it has a method Precision.
func PrecisionOf(d Device) (p Precision) {
	if m, ok := d.(interface{ Precision() Precision }); ok {
		p = m.Precision()
	}
	return p
}

// CPUConfig configures a CPU.
type CPUConfig struct {
	Options model.Options
	// Seed is the seed of the parameters' initial values.
	Seed uint64
	// Threads is the number of threads, 0 for one.
	Threads int
	// Prepare may freeze parameters before they are arranged; it may be nil.
	Prepare func(*nn.Params) error
	// Optimizer returns the rule for the arena. It is required.
	Optimizer func(*nn.Params) (optim.Optimizer, error)
}

// CPU is a Device on the processors of this host.
type CPU struct {
	cut    *Cut
	model  model.Model
	stage  nn.Stage
	params *nn.Params
	tapes  [2]*nn.Tape // of fp32 and of bf16, nil before the first use
	opt    optim.Optimizer
	x      []*nn.Tensor
	roots  [1]*nn.Tensor
	seed   [1]float32
	seeds  [1][]float32
	ran    bool // since the last Update

	threads int
	times   [2]time.Duration
}

// NewCPU returns a device for the stage of a cut. It has no memory for tables.
func NewCPU(spec model.Spec, c *Cut, cfg CPUConfig) (*CPU, error) {
	d := &CPU{cut: c, params: nn.NewParams(cfg.Seed), threads: cfg.Threads}
	var err error
	if d.model, err = c.arrange(d.params, spec, cfg.Options, cfg.Prepare); err != nil {
		return nil, err
	}
	if err := d.find(spec); err != nil {
		return nil, err
	}
	if d.opt, err = cfg.Optimizer(d.params); err != nil {
		return nil, err
	}
	if err := d.opt.Bind(len(d.params.Values())); err != nil {
		return nil, err
	}
	for _, x := range c.In {
		t := &nn.Tensor{}
		if x.Grad {
			t.RetainGrad()
		}
		d.x = append(d.x, t)
	}
	return d, nil
}

func (d *CPU) find(spec model.Spec) error {
	_, err := nn.Trace(func(t *nn.Tape) {
		t.Intercept(func(place string, part nn.Stage, x []*nn.Tensor) *nn.Tensor {
			if place == DeviceName {
				d.stage = part
			}
			return part(t, x)
		})
		d.model.Forward(t, spec.Sample(1))
	})
	if err == nil && d.stage == nil {
		err = errors.New("heter: the model marks no part")
	}
	return err
}

// tape returns the tape of a precision. A processor without products of bfloat16 is an error.
func (d *CPU) tape(bf16 bool) (_ *nn.Tape, err error) {
	i, k := 0, simd.Host()
	if bf16 {
		i = 1
		if k, err = simd.BF16(); err != nil {
			return nil, fmt.Errorf("heter: a micro-batch in bf16: %w: use training.precision fp32", err)
		}
	}
	if d.tapes[i] == nil {
		d.tapes[i] = nn.NewTape(nn.TapeConfig{Kernels: k, Threads: d.threads})
	}
	return d.tapes[i], nil
}

// Precision returns the precisions of this processor, and the times of SetTimes.
func (d *CPU) Precision() Precision {
	k, err := simd.BF16()
	return Precision{BF16: err == nil, AMX: err == nil && k.Name() == "amx-bf16", Times: d.times}
}

// SetTimes sets the times of Precision, and discards the gradients and the memory of their Runs.
func (d *CPU) SetTimes(times [2]time.Duration) {
	d.times = times
	d.Reset()
	d.closeTapes()
}

func (d *CPU) closeTapes() {
	for i, t := range d.tapes {
		if t != nil {
			t.Close()
		}
		d.tapes[i] = nil
	}
}

// Run returns an error for bfloat16 on a processor without its products.
func (d *CPU) Run(m *MicroBatch) error {
	tape, err := d.tape(m.BF16)
	if err != nil {
		return err
	}
	if m.Eval {
		tape.ResetEval()
	} else {
		tape.Reset()
	}
	for i, x := range d.x {
		x.Shape, x.Data = append(append(x.Shape[:0], m.N), d.cut.In[i].Shape...), m.In[i]
	}
	y := d.stage(tape, d.x)
	b := model.Batch{N: m.N, Labels: m.Labels, Targets: m.Targets}
	loss := d.model.Loss(tape, b, model.Outputs{y})
	copy(m.Out, y.Data)
	m.Loss, m.Terms, m.Correct = loss.Mean.Data[0], loss.Terms, loss.Correct
	if m.Eval {
		return nil
	}
	d.ran, d.seed[0] = true, m.Seed
	d.roots[0], d.seeds[0] = loss.Mean, d.seed[:]
	tape.BackwardFrom(d.roots[:], d.seeds[:], nil)
	for i, x := range d.x {
		if g := x.Grad(); g != nil {
			copy(m.Grads[i], g)
		}
	}
	return nil
}

// Gradients are zeros before the first Run of a step.
func (d *CPU) Gradients() []float32 {
	if !d.ran {
		clear(d.params.Grads())
		d.ran = true // the caller may write gradients to this memory
	}
	return d.params.Grads()
}

// Values is the arena.
func (d *CPU) Values() []float32 { return d.params.Values() }

// State is the arena and the optimizer's arrays.
func (d *CPU) State() [][]float32 {
	all := [][]float32{d.params.Values()}
	for _, s := range d.opt.State() {
		all = append(all, s.Data)
	}
	return all
}

// Update is the optimizer's step. A gradient that is not finite is an error, without an update.
func (d *CPU) Update(rate float64, scale float32) error {
	g := d.Gradients()
	if err := finite(g); err != nil {
		return err
	}
	d.opt.SetLR(rate)
	d.opt.BeginStep()
	d.opt.Update(0, d.params.Values(), g, scale)
	d.Reset()
	return nil
}

// Reset starts a new sum, which the next Run overwrites.
func (d *CPU) Reset() {
	d.params.ZeroGrads()
	d.ran = false
}

// Source returns StartSeed.
func (d *CPU) Source() Start { return StartSeed }

// Err returns nil: the device has no separate memory.
func (d *CPU) Err() error { return nil }

// Close ends the threads of the tapes and of the optimizer.
func (d *CPU) Close() {
	d.closeTapes()
	if o, ok := d.opt.(interface{ Close() }); ok {
		o.Close()
	}
}
