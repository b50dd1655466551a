// Package heter splits a model between two kinds of processes. Trainers read data, look up and pool
// rows, and run all other cheap layers. The stage that the model marks by [nn.Tape.OnDevice] with
// [DeviceName], its dense layers, runs on heter-trainers with its parameters; stateless
// heter-trainers receive the parameters for each step ([StatelessStage]). Activations are sent
// forward and gradients back, per micro-batch:
//
//	trainer                                       heter-trainer
//	TrainerStage.Forward  activations, labels ─▶  Device.Run: stage and loss, forward and backward
//	TrainerStage.Backward ◀─ gradients, outputs
//	                                              Device.Update: once all trainers ended the step
//
// Stateless heter-trainers run no Update. Find determines the tensors to send. Without a split the
// mark has no effect.
package heter

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// DeviceName marks stages for heter-trainers: see nn.Tape.OnDevice.
const DeviceName = "heter"

// CutTensor is a tensor that trainers send.
type CutTensor struct {
	// Name is the operation with this output and the operation's table or first parameter;
	// "values" are the samples' values.
	Name string
	// Shape is the shape for one sample.
	Shape []int
	// Grad reports that its gradient is sent back.
	Grad bool
}

// Len is the number of values per sample.
func (c CutTensor) Len() int { return volume(c.Shape) }

// Cut is where a model is divided between trainers and heter-trainers, with the tensors that are
// sent there.
type Cut struct {
	Model string
	// In are the inputs of the stage.
	In []CutTensor
	// Out is the shape of the stage's result for one sample: the model's output.
	Out []int
	// Labels and Targets are the number of each per sample, sent for the loss.
	Labels, Targets int
	// Classes is the number of distinct labels, 0 if unknown.
	Classes int
	// Params are the names of the stage's trained parameters, with Values values in all.
	Params []string
	Values int
	// Frozen are the names of the stage's frozen parameters, TrainerParams of all other parameters
	// except tables.
	Frozen, TrainerParams []string
	// Slots are the ranges of the stage's parameters in a device's arena.
	Slots []nn.ParamRange
	// Stage are the stage's operations, Loss those of the loss of its result.
	Stage, Loss []StageOp
	// Hash depends on the stage's operations, parameters and shapes.
	Hash [sha256.Size]byte
}

// BytesPerSample returns the request and result bytes of a sample as float32.
func (c *Cut) BytesPerSample() (there, back int) {
	there, back = 4*(c.Labels+c.Targets), 4*volume(c.Out)
	for _, x := range c.In {
		if there += 4 * x.Len(); x.Grad {
			back += 4 * x.Len()
		}
	}
	return there, back
}

// String lists the tensors sent, one per line.
func (c *Cut) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %s: heter-trainers compute with %d values of %d parameters: %s\n", c.Model, c.Values, len(c.Params), strings.Join(c.Params, ", "))
	for _, x := range c.In {
		back := "no gradient comes back"
		if x.Grad {
			back = "its gradient comes back"
		}
		fmt.Fprintf(&b, "  to them    %s %v, %s\n", x.Name, x.Shape, back)
	}
	if c.Labels > 0 {
		fmt.Fprintf(&b, "  to them    labels [%d]\n", c.Labels)
	}
	if c.Targets > 0 {
		fmt.Fprintf(&b, "  to them    targets [%d]\n", c.Targets)
	}
	there, back := c.BytesPerSample()
	fmt.Fprintf(&b, "  from them  the output %v and the loss\n  %d bytes of each sample there and %d back, as fp32", c.Out, there, back)
	return b.String()
}

func volume(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Find runs a model once, without computation, and determines its cut. prepare may freeze
// parameters and may be nil. A model without a useful split is an error.
func Find(spec model.Spec, o model.Options, prepare func(*nn.Params) error) (*Cut, error) {
	c, err := find(spec, o, prepare)
	if err != nil {
		return nil, fmt.Errorf("model %s cannot be split: %w", spec.Name, err)
	}
	ps := nn.NewOutline()
	if _, err = c.arrange(ps, spec, o, prepare); err != nil {
		return nil, err
	}
	c.Slots = ps.Slots()
	return c, nil
}

// arrange builds the model of a device: the trainers' parameters are frozen.
func (c *Cut) arrange(ps *nn.Params, spec model.Spec, o model.Options, prepare func(*nn.Params) error) (m model.Model, err error) {
	ps.TablesElsewhere()
	m = spec.Build(ps, o)
	if prepare != nil {
		err = prepare(ps)
	}
	if err == nil {
		err = c.Freeze(ps, c.TrainerParams)
	}
	if err == nil {
		err = m.Arrange(ps, spec.Sample(1))
	}
	if err != nil {
		return m, fmt.Errorf("model %s: %w", spec.Name, err)
	}
	return m, nil
}

// Freeze freezes the parameters of the other side, before the registry is arranged: c.Params at a
// trainer, c.TrainerParams on a device.
func (c *Cut) Freeze(ps *nn.Params, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return ps.Freeze(names...)
}

// Unpack writes a device's values to the parameters of a trainer's registry.
func (c *Cut) Unpack(ps *nn.Params, values []float32) error {
	return c.each(ps, values, func(own *nn.Param, there []float32) { copy(own.Data, there) })
}

// Pack is the inverse of Unpack.
func (c *Cut) Pack(ps *nn.Params, values []float32) error {
	return c.each(ps, values, func(own *nn.Param, there []float32) { copy(there, own.Data) })
}

// each calls do with the stage's parameters in a registry and their ranges of a device's values.
func (c *Cut) each(ps *nn.Params, values []float32, do func(own *nn.Param, there []float32)) error {
	known := map[string]*nn.Param{}
	for _, p := range ps.List() {
		known[p.Name] = p
	}
	for _, s := range c.Slots {
		p := known[s.Name]
		if p == nil || len(p.Data) != s.Len || s.Offset+s.Len > len(values) {
			return fmt.Errorf("heter: %d values of the part of model %s: parameter %s is not of their kind", len(values), c.Model, s.Name)
		}
		do(p, values[s.Offset:s.Offset+s.Len])
	}
	return nil
}

func find(spec model.Spec, o model.Options, prepare func(*nn.Params) error) (*Cut, error) {
	ps := nn.NewOutline()
	m := spec.Build(ps, o)
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if m.State != nil {
		return nil, errors.New("it carries state from batch to batch, which micro-batches would not find as they left it")
	}
	if prepare != nil {
		if err := prepare(ps); err != nil {
			return nil, err
		}
	}
	f := finder{cut: &Cut{Model: spec.Name, Labels: spec.LabelsEach(), Targets: spec.Targets, Classes: spec.Classes}, params: ps}
	var fault error
	err := ps.ArrangeOutputs(func(t *nn.Tape) []*nn.Tensor {
		loss := f.record(t, m, spec.Sample(samples))
		fault = f.judge(t)
		return []*nn.Tensor{loss}
	})
	if err = errors.Join(fault, err); err != nil {
		return nil, err
	}
	return f.cut, nil
}

// samples is the size of the dry run's batch: more than 1, to distinguish the batch dimension.
const samples = 3

type finder struct {
	cut    *Cut
	params *nn.Params
	parts  int
	x      []*nn.Tensor // inputs of the stage
	y      *nn.Tensor   // result of the stage
	lo, hi int          // range of the stage's operations
	out    []*nn.Tensor // the model's outputs
	fault  error
}

func (f *finder) record(t *nn.Tape, m model.Model, b model.Batch) *nn.Tensor {
	t.Intercept(func(place string, part nn.Stage, x []*nn.Tensor) *nn.Tensor {
		if place != DeviceName {
			return part(t, x)
		}
		f.parts++
		f.x, f.lo = slices.Clone(x), f.count(t)
		f.y = part(t, x)
		f.hi = f.count(t)
		return f.y
	})
	out := m.Forward(t, b)
	f.out = slices.Clone(out.List())
	t.Intercept(nil)
	small := model.Batch{N: b.N, Labels: b.Labels, Targets: b.Targets} // all that a heter-trainer has
	return m.Loss(t, small, out).Mean
}

func (f *finder) count(t *nn.Tape) int {
	nodes, err := t.Nodes()
	f.fault = errors.Join(f.fault, err)
	return len(nodes)
}

// judge fills in the cut, or returns the reason against a split.
func (f *finder) judge(t *nn.Tape) error {
	switch {
	case f.fault != nil:
		return f.fault
	case f.parts == 0:
		return fmt.Errorf("nothing in its code is marked as for heter-trainers: t.On(%q, part, x)", DeviceName)
	case f.parts > 1:
		return fmt.Errorf("%d parts are marked as for heter-trainers: want one", f.parts)
	case len(f.out) != 1 || f.out[0] != f.y:
		return errors.New("what the part makes is not the model's one output: let the part go to the end of the model")
	}
	nodes, err := t.Nodes()
	if err != nil {
		return err
	}
	if err := f.alone(nodes[f.lo:f.hi]); err != nil {
		return err
	}
	if f.cut.Out, err = shapeOf("the part's result", f.y); err != nil {
		return err
	}
	if err := f.crossings(nodes[:f.lo]); err != nil {
		return err
	}
	f.cut.Stage, f.cut.Loss = f.describeOps(nodes)
	return f.deal(nodes)
}

// alone returns an error if the stage reads a tensor other than its inputs, or if its result
// depends on the size of a micro-batch.
func (f *finder) alone(part []nn.Node) error {
	known := map[*nn.Tensor]bool{}
	for _, x := range f.x {
		known[x] = true
	}
	for _, n := range part {
		switch {
		case n.Table != nil:
			return fmt.Errorf("the part reads table %s: its rows would cross by themselves, and not what is made of them; look them up before the part", n.Table.Name)
		case n.Op == "batchnorm":
			return errors.New("the part normalises over the batch, and a heter-trainer sees micro-batches: their means are not the batch's; normalise over layers or groups")
		case n.Op == "dropout":
			return errors.New("the part drops values, and what it drops would depend on which heter-trainer has a micro-batch: train without dropout")
		}
		for _, x := range n.Inputs {
			if x != nil && !known[x] {
				return fmt.Errorf("operation %s of the part reads a tensor %v that the part is not given", n.Op, x.Shape)
			}
		}
		known[n.Output] = true
	}
	return nil
}

// crossings determines Cut.In from the operations before the stage.
func (f *finder) crossings(before []nn.Node) error {
	if len(f.x) == 0 {
		return errors.New("the part is given nothing")
	}
	needs, by := map[*nn.Tensor]bool{}, map[*nn.Tensor]string{}
	for _, n := range before {
		needs[n.Output], by[n.Output] = n.Op != "detach" && trains(n, needs), name(n)
	}
	back := 0
	for i, x := range f.x {
		if slices.Contains(f.x[:i], x) {
			return fmt.Errorf("the part is given the tensor %s twice", by[x])
		}
		c := CutTensor{Name: by[x], Grad: needs[x]}
		if c.Name == "" {
			c.Name = "values"
		}
		var err error
		if c.Shape, err = shapeOf(c.Name, x); err != nil {
			return err
		}
		if f.cut.In = append(f.cut.In, c); c.Grad {
			back++
		}
	}
	if back == 0 {
		return errors.New("no gradient would come back: nothing before the part is trained; train it with an allreduce")
	}
	return nil
}

// trains reports whether node n or a node before it has parameters to train.
func trains(n nn.Node, needs map[*nn.Tensor]bool) bool {
	return n.Table != nil || slices.ContainsFunc(n.Params, func(p *nn.Param) bool { return p != nil && !p.Frozen() }) ||
		slices.ContainsFunc(n.Inputs, func(x *nn.Tensor) bool { return needs[x] })
}

func name(n nn.Node) string {
	switch {
	case n.Table != nil:
		return n.Op + " " + n.Table.Name
	case len(n.Params) > 0 && n.Params[0] != nil:
		return n.Op + " " + n.Params[0].Name
	}
	return n.Op
}

func shapeOf(what string, x *nn.Tensor) ([]int, error) {
	if len(x.Shape) < 1 || x.Shape[0] != samples {
		return nil, fmt.Errorf("%s has the shape %v of %d samples: want them as its first dimension", what, x.Shape, samples)
	}
	return slices.Clone(x.Shape[1:]), nil
}

// deal assigns each parameter to trainers or heter-trainers, and computes the stage's hash.
func (f *finder) deal(nodes []nn.Node) error {
	own, others := map[*nn.Param]bool{}, map[*nn.Param]bool{}
	hash := sha256.New()
	for i, n := range nodes {
		in := i >= f.lo
		for _, p := range n.Params {
			if p == nil {
				continue
			}
			if in {
				own[p] = true
			} else {
				others[p] = true
			}
			if own[p] && others[p] {
				return fmt.Errorf("parameter %s is used both in the part and before it: each needs one of its own", p.Name)
			}
		}
		if in {
			describe(hash, n)
		}
	}
	for _, p := range f.params.List() {
		switch {
		case !own[p]:
			f.cut.TrainerParams = append(f.cut.TrainerParams, p.Name)
		case !p.Frozen():
			f.cut.Params = append(f.cut.Params, p.Name)
			f.cut.Values += volume(p.Shape)
		default:
			f.cut.Frozen = append(f.cut.Frozen, p.Name)
		}
	}
	if len(f.cut.Params) == 0 {
		return errors.New("the part has no parameters to train: nothing is left to compute elsewhere")
	}
	fmt.Fprintf(hash, "%v %v %d %d", f.cut.In, f.cut.Out, f.cut.Labels, f.cut.Targets)
	f.cut.Hash = [sha256.Size]byte(hash.Sum(nil))
	return nil
}
