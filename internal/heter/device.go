package heter

import (
	"errors"

	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// Device computes a part. It is all that a heter-trainer needs of what it computes with: CPU is one, and an accelerator would be
// another. One goroutine uses it.
//
// A step is some Runs, whose gradients add up, and an Update. Evaluations may come between any two of them and change nothing.
// Buffers, Gradients and Values are memory that this process can read: a device with memory of its own copies.
type Device interface {
	// Buffers makes the memory of a micro-batch where the device reads and writes it, for any number of samples up to n.
	Buffers(n int) *MicroBatch
	// Run runs the part over a micro-batch forward, and unless it is m.Eval backward: it adds to the gradients of the
	// parameters, and m has its results when it returns.
	Run(m *MicroBatch) error
	// Gradients are the sums over all Runs since the last Update, and Values the parameters, both in the same order: who
	// keeps several devices equal reads and writes them. They are good until the next call.
	Gradients() []float32
	Values() []float32
	// State is all that the next steps follow from: the parameters, and what the optimizer keeps. Devices that have the same go on
	// alike. It may be written to between steps, and is good until the next call.
	State() [][]float32
	// Update moves the parameters by the gradients times scale, and begins a new sum.
	Update(rate float64, scale float32) error
	Close()
}

// CPUConfig says what a CPU device is.
type CPUConfig struct {
	Options model.Options
	// Seed is that of the parameters' first values.
	Seed uint64
	// Threads compute; 0: one.
	Threads int
	// Prepare may freeze parameters, before they are arranged; nil: nothing.
	Prepare func(*nn.Params) error
	// Optimizer makes the rule of the arena. It is needed.
	Optimizer func(*nn.Params) (optim.Optimizer, error)
}

// CPU is the processors of this host as a Device.
type CPU struct {
	cut    *Cut
	model  model.Model
	stage  nn.Stage
	params *nn.Params
	tape   *nn.Tape
	opt    optim.Optimizer
	x      []*nn.Tensor
	roots  [1]*nn.Tensor
	seed   [1]float32
	seeds  [1][]float32
	ran    bool // since the last Update
}

// NewCPU makes a device of the part of a model that Find has found. It has no memory for tables.
func NewCPU(spec model.Spec, c *Cut, cfg CPUConfig) (*CPU, error) {
	d := &CPU{cut: c, params: nn.NewParams(cfg.Seed)}
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
	d.tape = nn.NewTape(nn.TapeConfig{Kernels: simd.Host(), Threads: cfg.Threads})
	for _, x := range c.In {
		t := &nn.Tensor{}
		if x.Grad {
			t.RetainGrad()
		}
		d.x = append(d.x, t)
	}
	return d, nil
}

// find takes the part from the model's code.
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

// Buffers is memory of Go.
func (d *CPU) Buffers(n int) *MicroBatch {
	m := &MicroBatch{}
	m.Size(d.cut, n)
	return m
}

// Run returns no error.
func (d *CPU) Run(m *MicroBatch) error {
	if m.Eval {
		d.tape.ResetEval()
	} else {
		d.tape.Reset()
	}
	for i, x := range d.x {
		x.Shape, x.Data = append(append(x.Shape[:0], m.N), d.cut.In[i].Shape...), m.In[i]
	}
	y := d.stage(d.tape, d.x)
	b := model.Batch{N: m.N, Labels: m.Labels, Targets: m.Targets}
	loss := d.model.Loss(d.tape, b, model.Outputs{y})
	copy(m.Out, y.Data)
	m.Loss, m.Terms, m.Correct = loss.Mean.Data[0], loss.Terms, loss.Correct
	if m.Eval {
		return nil
	}
	d.ran, d.seed[0] = true, m.Seed
	d.roots[0], d.seeds[0] = loss.Mean, d.seed[:]
	d.tape.BackwardFrom(d.roots[:], d.seeds[:], nil)
	for i, x := range d.x {
		if g := x.Grad(); g != nil {
			copy(m.Grads[i], g)
		}
	}
	return nil
}

// Gradients are zeros where nothing has run.
func (d *CPU) Gradients() []float32 {
	if !d.ran {
		clear(d.params.Grads())
		d.ran = true // what others had to add may be there from now on
	}
	return d.params.Grads()
}

// Values are the arena.
func (d *CPU) Values() []float32 { return d.params.Values() }

// State is the arena and the optimizer's arrays.
func (d *CPU) State() [][]float32 {
	all := [][]float32{d.params.Values()}
	for _, s := range d.opt.State() {
		all = append(all, s.Data)
	}
	return all
}

// Update is the optimizer's step. A gradient that is not finite is an error, and moves nothing.
func (d *CPU) Update(rate float64, scale float32) error {
	g := d.Gradients()
	if s := simd.Host().SumSquares(g); s-s != 0 {
		return errors.New("heter: the gradient of the heter-trainers' part is not finite: lower the learning rate, or look for a fault in the data or the model")
	}
	d.opt.SetLR(rate)
	d.opt.BeginStep()
	d.opt.Update(0, d.params.Values(), g, scale)
	d.params.ZeroGrads()
	d.ran = false
	return nil
}

// Params is the registry of the part's parameters, for their names and places; those that stay with trainers are frozen in it.
func (d *CPU) Params() *nn.Params { return d.params }

// Close ends its threads, and those of an optimizer that has some.
func (d *CPU) Close() {
	d.tape.Close()
	if o, ok := d.opt.(interface{ Close() }); ok {
		o.Close()
	}
}
