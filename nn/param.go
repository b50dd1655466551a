package nn

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
)

// Param is a trainable tensor. After Params.Arrange, Data and Grad are parts of the arenas, the
// slices of all parameters and all gradients.
type Param struct {
	Name  string
	Shape []int
	Data  []float32
	// Grad is the sum of the gradients of all calls of Backward since the end of the last step. Its
	// values are unspecified before the first call; after the last call of a step all have values.
	// For a frozen parameter it is nil or undefined.
	Grad []float32

	owner   *Params
	param   int
	touched bool // Grad has a contribution of this step
	frozen  bool
	rate    float64 // see SetRate; 0 is 1
}

// Init fills data, the values of a new parameter, drawing from r.
type Init func(r *rand.Rand, data []float32)

// Zeros leaves a parameter at zero.
func Zeros(*rand.Rand, []float32) {}

// Uniform draws from the uniform distribution over [-bound, bound).
func Uniform(bound float64) Init {
	return func(r *rand.Rand, data []float32) {
		b := float32(bound)
		for i := range data {
			data[i] = (2*r.Float32() - 1) * b // 2x-1 is exact: no rounding to differ in
		}
	}
}

// Normal draws from the normal distribution of mean 0.
func Normal(deviation float64) Init {
	return func(r *rand.Rand, data []float32) {
		for i := range data {
			data[i] = float32(deviation * r.NormFloat64())
		}
	}
}

// FanIn is Uniform(1/sqrt(n)), with n the number of inputs of each output: PyTorch's default for
// the weights and biases of dense and convolutional layers.
func FanIn(n int) Init { return Uniform(1 / math.Sqrt(float64(max(1, n)))) }

// ParamRange is a parameter's range in the arenas, in values.
type ParamRange struct {
	Name   string
	Offset int // a multiple of 16 values, 64 bytes
	Len    int // true length
	Padded int // Len rounded up to 16; the next slot starts at Offset+Padded
	// Rate is the factor of the learning rate, 1 unless set by SetRate: see optim.NewGrouped.
	Rate float64
	// Shape is the parameter's shape.
	Shape []int
}

// Params is the registry of a model's parameters, for a single goroutine.
type Params struct {
	seed      uint64
	list      []*Param // creation order, then (arranged) arena order
	faults    []error
	slots     []ParamRange
	values    []float32
	grads     []float32
	alloc     func(n int) []float32 // allocator of grads
	home      func(n int) []float32 // allocator of values
	allocated [][]float32           // allocated by these, in order
	tables    []*Table
	buffers   []*Buffer
	state     []float32 // the arena of buffers
	finished  bool      // the last Backward ended a step

	alias     func(name string) string
	outline   bool // see NewOutline
	elsewhere bool // see TablesElsewhere
	forward   Work
	backward  []Work // one per slot
	unused    []string
}

// NewParams makes an empty registry. Each parameter draws its initial values from random numbers
// that depend on the seed and the parameter's name alone, not on the order of creation or the
// machine.
func NewParams(seed uint64) *Params { return &Params{seed: seed} }

// New makes a parameter. Arrange reports errors (a name used twice, a shape without values, a call
// after Arrange).
func (ps *Params) New(name string, init Init, shape ...int) *Param {
	p := &Param{Name: name, Shape: slices.Clone(shape), owner: ps, param: len(ps.list)}
	if err := ps.check(name, shape); err != nil {
		ps.faults = append(ps.faults, err)
		return p
	}
	p.Data = make([]float32, volume(shape))
	if !ps.outline {
		init(ps.stream(name), p.Data)
	}
	ps.list = append(ps.list, p)
	return p
}

func hashName(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64()
}

func (ps *Params) check(name string, shape []int) error {
	if ps.slots != nil {
		return fmt.Errorf("parameter %q was made after Arrange", name)
	}
	if err := ps.taken(name); err != nil {
		return err
	}
	for _, d := range shape {
		if d < 1 {
			return fmt.Errorf("parameter %q has shape %v: want positive dimensions", name, shape)
		}
	}
	return nil
}

// Layer is the weight and the bias of a dense or convolutional layer. B may be
// nil. Layers may share parameters.
type Layer struct{ W, B *Param }

// Conv2D makes the layer name of a square convolution: W is
// [kernel, kernel, in, out], B is [out], both from FanIn.
func (ps *Params) Conv2D(name string, in, out, kernel int) Layer {
	init := FanIn(in * kernel * kernel)
	return Layer{
		W: ps.New(name+".weight", init, kernel, kernel, in, out),
		B: ps.New(name+".bias", init, out),
	}
}

// Dense makes the layer name of a dense layer: W is [out, in], B is [out], both from FanIn.
func (ps *Params) Dense(name string, in, out int) Layer {
	return Layer{
		W: ps.New(name+".weight", FanIn(in), out, in),
		B: ps.New(name+".bias", FanIn(in), out),
	}
}

// Count is the number of parameters without padding, tables included.
func (ps *Params) Count() int {
	n := 0
	for _, t := range ps.tables {
		n += t.Rows * t.Dim
	}
	for _, p := range ps.list {
		n += len(p.Data)
	}
	return n
}

// List returns the trained parameters, after Arrange in the order of Slots, and then the frozen
// ones. Callers must not change it.
func (ps *Params) List() []*Param { return ps.list }

// Slots returns the parameters' ranges in the arenas, in the order in which backward finishes them;
// nil before Arrange. Callers must not change it.
func (ps *Params) Slots() []ParamRange { return ps.slots }

// Unused returns the names of parameters without a gradient, in order of creation: the loss of the
// recorded model does not depend on them, or only through Detach. It is nil before Arrange.
func (ps *Params) Unused() []string { return ps.unused }

// Values is the arena of parameters. Padding is always zero.
func (ps *Params) Values() []float32 { return ps.values }

// Grads is the arena of gradients, with the layout of Values. Padding is always zero. Values are
// unspecified for a parameter without a contribution in this step.
func (ps *Params) Grads() []float32 { return ps.grads }

// ZeroGrads starts a new sum: the next contribution to each parameter overwrites its gradient.
// Cost: O(number of parameters), not of values. It is needed only to abandon a sum: a Backward with
// a ready function ends the step, and the next Backward starts a new sum.
func (ps *Params) ZeroGrads() {
	for _, p := range ps.list {
		p.touched = false
	}
	for _, t := range ps.tables {
		t.ids, t.grads = t.ids[:0], t.grads[:0]
	}
	ps.finished = false
}

// GradsFrom sets the allocator of gradients: of their arena in Arrange, and of the tables'
// gradients in Backward, each time they need more memory. alloc returns n zeros aligned to 64
// bytes. If alloc returns memory that ranks share (ringo.Job.Alloc), they sum gradients without a
// copy. nil, the default, means Go's memory.
func (ps *Params) GradsFrom(alloc func(n int) []float32) { ps.alloc = alloc }

// ArenasFrom is GradsFrom, but also for the arena of parameters: ranks that share both arenas can
// divide updates.
func (ps *Params) ArenasFrom(alloc func(n int) []float32) { ps.alloc, ps.home = alloc, alloc }

// Release passes all memory that alloc of GradsFrom or ArenasFrom has returned to free, the latest
// first. Afterwards, gradients and parameters in this memory must not be used.
func (ps *Params) Release(free func(x []float32)) {
	for _, x := range slices.Backward(ps.allocated) {
		free(x)
	}
	ps.allocated = nil
}

// take allocates n values by alloc, or from Go if nil.
func (ps *Params) take(alloc func(n int) []float32, n int) []float32 {
	if alloc == nil {
		return aligned(n)
	}
	x := alloc(n)
	ps.allocated = append(ps.allocated, x)
	return x
}

// arena allocates an arena; name is the method that set alloc.
func (ps *Params) arena(alloc func(n int) []float32, n int, name string) ([]float32, error) {
	x := ps.take(alloc, n)
	if len(x) != n || !isAligned(x) {
		return nil, fmt.Errorf("nn: Arrange: %s got %d values at %p, want %d at a multiple of 64 bytes", name, len(x), x, n)
	}
	return x, nil
}

// Arrange records the model once to determine the order in which backward finishes gradients, and
// moves the parameters into one slice, the arena, in that order; unused ones come last.
// invariant[arena-order]: a slot's index in the arena is always its index in this order, equal on
// every rank, so that consecutive layers are one sub-slice. dry builds the loss on the given tape,
// for example from a batch of one sample; operations check their operands but do not compute:
// results are zeros. It reports all errors of the registry, or the first operation with operands
// that do not fit.
func (ps *Params) Arrange(dry func(t *Tape) *Tensor) error {
	return ps.ArrangeOutputs(func(t *Tape) []*Tensor {
		loss := dry(t)
		require(loss != nil && len(loss.Data) == 1, "backward", "a loss of one value", shapeOf(loss)...)
		return []*Tensor{loss}
	})
}

// ArrangeOutputs is Arrange for a model with a loss that another process computes: dry returns the
// outputs, of any shape, that BackwardFrom will get.
func (ps *Params) ArrangeOutputs(dry func(t *Tape) []*Tensor) error {
	if ps.slots != nil {
		return errors.New("nn: Arrange was called twice")
	}
	if len(ps.faults) > 0 {
		return fmt.Errorf("nn: bad parameters: %w", errors.Join(ps.faults...))
	}
	if err := ps.settle(); err != nil {
		return err
	}
	order, err := ps.finishingOrder(dry)
	if err != nil {
		return err
	}
	if err := ps.layOut(order); err != nil {
		return err
	}
	ps.arrangeBuffers()
	return nil
}

// finishingOrder returns the parameters in the order in which backward finishes their gradients. It
// records the model without computing.
func (ps *Params) finishingOrder(dry func(t *Tape) []*Tensor) (order []*Param, err error) {
	defer recoverShape(&err)
	t := NewTape(TapeConfig{})
	defer t.Close()
	t.pool.dry = true
	t.roots = dry(t)
	if t.params != nil && t.params != ps {
		return nil, errors.New("nn: Arrange: the model uses parameters of another registry")
	}
	t.params = ps
	for _, o := range t.ops[:t.n] {
		forward, _ := workOf(o)
		ps.forward.Add(forward)
	}
	t.walk(nil, true, func(slot int) {
		order = append(order, ps.list[slot])
		ps.backward, t.work = append(ps.backward, t.work), Work{}
	})
	for _, p := range ps.list {
		if !p.touched && !p.frozen {
			ps.unused = append(ps.unused, p.Name)
		}
	}
	return order, nil
}

const lineValues = 16 // values in a cache line of 64 bytes

func (ps *Params) layOut(order []*Param) error {
	ps.slots = make([]ParamRange, 0, len(order))
	at := 0
	for i, p := range order {
		n := len(p.Data)
		padded := (n + lineValues - 1) / lineValues * lineValues
		ps.slots = append(ps.slots, ParamRange{Name: p.Name, Offset: at, Len: n, Padded: padded, Rate: cmp.Or(p.rate, 1), Shape: p.Shape})
		p.param = i
		at += padded
	}
	ps.list = append(order, frozenOf(ps.list)...)
	if ps.outline {
		return nil
	}
	var err error
	if ps.values, err = ps.arena(ps.home, at, "ArenasFrom"); err != nil {
		return err
	}
	for i, p := range order {
		lo, hi := ps.slots[i].Offset, ps.slots[i].Offset+ps.slots[i].Len
		copy(ps.values[lo:hi], p.Data)
		p.Data = ps.values[lo:hi:hi]
	}
	if err := ps.makeGrads(at); err != nil {
		return err
	}
	for i, p := range order {
		lo, hi := ps.slots[i].Offset, ps.slots[i].Offset+ps.slots[i].Len
		p.Grad = ps.grads[lo:hi:hi]
	}
	return nil
}

// makeGrads makes the arena of n gradients.
func (ps *Params) makeGrads(n int) (err error) {
	if ps.alloc == nil {
		runtime.GC() // reuses the old memory of the values for gradients
	} else {
		debug.FreeOSMemory() // returns the old memory of the values
	}
	ps.grads, err = ps.arena(ps.alloc, n, "GradsFrom")
	return err
}

// FanOut draws from the normal distribution of variance 2/n, with n the number of outputs of each
// input (He et al. 2015): the initial values of residual networks.
func FanOut(n int) Init { return Normal(math.Sqrt(2 / float64(max(1, n)))) }
