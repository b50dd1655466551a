package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/simd"
)

// TapeConfig configures a Tape. The zero value is the host's best kernels and
// one thread.
type TapeConfig struct {
	// Kernels are the vector kernels; nil means simd.Host().
	Kernels *simd.Kernels
	// Threads is how many threads compute, 0 means 1. invariant[thread-bits]: it does not change
	// the result: sums are cut in parts that depend on shapes alone.
	Threads int
	// Constant says that parameters do not change while the tape is in use, which is for
	// evaluations only: ResetEval must begin each, the first one too. Products, convolutions and
	// LSTM layers then prepare their weights once. The prepared weights take as much memory again,
	// for 3x3 convolutions up to four times as much.
	Constant bool
	// Labels makes profiles of the processor's time tell what the tape computes, on all of its
	// threads: each sample of an operation has the labels "phase" (forward, backward or evaluate),
	// "layer" (what the names of its parameters begin with, or of an operation without any what it
	// is) and "op". The ready function of Backward is the phase "ready", and the time until the
	// next forward pass "between". Cost: some ten ns per operation and thread.
	Labels bool
}

// Validate reports a negative number of threads.
func (c TapeConfig) Validate() error {
	if c.Threads < 0 {
		return fmt.Errorf("nn: threads %d: want at least 1, or 0 for 1", c.Threads)
	}
	return nil
}

// Tape records operations and runs them backwards. It owns the results and all
// other memory of the operations and reuses it after Reset: when shapes
// repeat, a step allocates nothing. A Tape is used by one goroutine.
type Tape struct {
	k    *simd.Kernels
	pool *pool

	ops           []op // the first n are recorded, the rest wait to be reused
	n             int
	eval          bool
	params        *Params // those of the recorded operations, nil when none yet
	last          *Params // those of earlier recordings
	pending       []int   // by slot: contributions still to come in this Backward
	grads         freeList
	norm          normScratch
	roots         []*Tensor  // of the Backward under way
	inputs        []*Tensor  // of operandsOf
	weights       []*Param   // of operandsOf
	values        vectorJob  // the elementwise operation under way
	strided       stridedJob // that with broadcasting
	folds         foldJob    // the sum under way
	rows          rowsJob    // the copy of rows under way
	parts         partsJob   // the sum of parts under way
	packing       packJob    // the packing under way
	merging       mergeJob   // the merging of a table's gradient under way
	blocks        blocksJob  // the sum over rows under way
	packed        convPacked
	packedWeights map[weightsKey]*weights // of constant parameters; nil: they may change
	seed          uint64                  // see SetSeed
	work          Work                    // of a dry walk, since the last slot
	watch         watch
	labels        labels

	crossing []*Tensor // what the parts under way were given, see OnDevice
	divert   func(place string, part Stage, x []*Tensor) *Tensor
}

// op is a recorded operation. It owns its result and its working memory.
type op interface {
	// operands returns the inputs and the parameters, nil where there are
	// fewer.
	operands() (x [4]*Tensor, p [4]*Param)
	result() *Tensor
	// backward adds to the gradients of operands that need one, given the
	// gradient of the result, which it may destroy; the tape then takes back
	// the gradient's memory.
	backward(t *Tape)
}

// wideOp is an operation of any number of operands. Its operands method returns none.
type wideOp interface {
	allOperands() ([]*Tensor, []*Param)
}

// operandsOf returns the inputs and the parameters of o, good until the next call.
func (t *Tape) operandsOf(o op) ([]*Tensor, []*Param) {
	if w, ok := o.(wideOp); ok {
		return w.allOperands()
	}
	t.inputs, t.weights = t.inputs[:0], t.weights[:0]
	xs, ps := o.operands()
	for _, x := range xs {
		if x != nil {
			t.inputs = append(t.inputs, x)
		}
	}
	for _, p := range ps {
		if p != nil {
			t.weights = append(t.weights, p)
		}
	}
	return t.inputs, t.weights
}

// tableOp is an operation that reads a row-sparse table.
type tableOp interface{ table() *Table }

// NewTape makes a tape. It panics when cfg is not valid. With more than one
// thread, Close ends the goroutines it starts.
func NewTape(cfg TapeConfig) *Tape {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	if cfg.Kernels == nil {
		cfg.Kernels = simd.Host()
	}
	t := &Tape{k: cfg.Kernels, pool: newPool(cfg.Kernels, max(1, cfg.Threads)), eval: cfg.Constant}
	t.labels = labels{on: cfg.Labels, known: map[string]*label{}}
	if cfg.Constant {
		t.packedWeights = map[weightsKey]*weights{}
	}
	return t
}

// Close ends the tape's goroutines. The tape must not be used afterwards;
// tensors it made remain valid.
func (t *Tape) Close() { t.pool.close() }

// Threads is how many parts Run runs at the same time.
func (t *Tape) Threads() int { return t.pool.threads() }

// Run calls part(0) to part(parts-1) on the tape's threads, in any order, and returns
// when all have returned. It is for work between operations, such as that of Backward's
// ready, on the goroutine that uses the tape.
func (t *Tape) Run(parts int, part func(i int)) { t.pool.run(partFunc(part), parts) }

// partFunc is a job that needs no working memory.
type partFunc func(i int)

func (f partFunc) part(_ *worker, i int) { f(i) }

// Reset forgets the recording, for the next training step. It panics where parameters are constant.
func (t *Tape) Reset() {
	if t.packedWeights != nil {
		panic(errors.New("nn: Reset of a tape whose parameters are constant: it is for evaluations, which begin with ResetEval"))
	}
	t.reset(false)
}

// ResetEval is Reset for an evaluation: operations compute their results but
// not what only Backward would need, and Backward panics.
func (t *Tape) ResetEval() { t.reset(true) }

func (t *Tape) reset(eval bool) {
	t.watch.end(t)
	t.pool.level()
	t.n, t.eval, t.params = 0, eval, nil
}

// record returns the next operation, of type T, with the memory it had in
// earlier recordings when its type was the same.
func record[T any, P interface {
	*T
	op
}](t *Tape) P {
	if t.n < len(t.ops) {
		if old, ok := t.ops[t.n].(P); ok {
			t.watch.begin(t, old, t.n, "forward")
			t.operation(old, t.n, forwardPass, false)
			t.n++
			return old
		}
		clear(t.ops[t.n:]) // the model has changed: what follows is of no use
		t.ops = t.ops[:t.n]
	}
	o := P(new(T))
	t.ops = append(t.ops, o)
	t.watch.begin(t, o, t.n, "forward")
	t.operation(o, t.n, forwardPass, true)
	t.n++
	return o
}

// begin prepares o's result for the given shape and notes its parameters.
func (t *Tape) begin(o op, shape ...int) *Tensor {
	y := o.result()
	y.Resize(shape...)
	t.note(o)
	return y
}

// note marks whether o's result needs a gradient.
func (t *Tape) note(o op) {
	y := o.result()
	y.needs, y.has, y.live = false, false, false
	y.made, y.retained, y.cut = true, false, false
	xs, ps := t.operandsOf(o)
	for _, x := range xs {
		y.needs = y.needs || x.needs
	}
	for _, p := range ps {
		y.needs = y.needs || !p.frozen
		t.belongs(p.owner, p.Name)
	}
	if o, ok := o.(tableOp); ok {
		y.needs = true
		t.belongs(o.table().owner, o.table().Name)
	}
}

// belongs checks that all parameters of a recording are of one registry.
func (t *Tape) belongs(owner *Params, name string) {
	if t.params == nil {
		t.params = owner
	}
	if t.params != owner {
		panic(errors.New("nn: a tape cannot record parameters of two registries: parameter " + name))
	}
}

// Backward computes the gradients of loss, a tensor of one value, with respect
// to all parameters that it depends on, adding to those of earlier Backwards of
// the same step.
//
// With ready == nil that is all. A ready function says that this is the last
// Backward of the step: it is called once for each slot, on this goroutine, as
// soon as the slot's gradient is final, after the last of its contributions.
// Parameters that no Backward of the step contributed to become zero and are
// reported at the end. The next Backward starts a new sum.
func (t *Tape) Backward(loss *Tensor, ready func(slot int)) {
	require(loss != nil && len(loss.Data) == 1, "backward", "a loss of one value", shapeOf(loss)...)
	t.roots = append(t.roots[:0], loss)
	t.check()
	t.walk(nil, false, ready)
}

// BackwardFrom is Backward from any number of outputs of any shape: seeds[i] is the
// gradient of the loss with respect to outputs[i], as many values. It is for a model of
// which another process computes the rest: that one's RetainGrad and Grad give the seeds.
// The contributions of an output that comes twice are added.
func (t *Tape) BackwardFrom(outputs []*Tensor, seeds [][]float32, ready func(slot int)) {
	require(len(outputs) > 0 && len(outputs) == len(seeds), "backward", "a seed for each output, one at least", len(outputs), len(seeds))
	for i, y := range outputs {
		require(y != nil && len(y.Data) == len(seeds[i]), "backward", "a seed of as many values as the output", append([]int{len(seeds[i])}, shapeOf(y)...)...)
	}
	t.roots = append(t.roots[:0], outputs...)
	t.check()
	t.walk(seeds, false, ready)
}

// check panics where nothing was recorded that a Backward can use.
func (t *Tape) check() {
	if t.eval {
		panic(errors.New("nn: Backward after ResetEval: nothing was recorded"))
	}
	if t.params == nil { // the loss depends on none: all are unused
		t.params = t.last
	}
	t.last = t.params
	if t.params != nil && t.params.slots == nil {
		panic(errors.New("nn: Backward before Params.Arrange"))
	}
}

// walk goes backwards over the operations that the roots depend on, with the seeds or,
// where these are nil, ones. A dry walk computes nothing and only reports.
func (t *Tape) walk(seeds [][]float32, dry bool, ready func(slot int)) {
	t.watch.end(t)
	t.plan()
	if ps := t.params; ps != nil && ps.finished {
		ps.ZeroGrads()
	}
	t.sow(seeds)
	for i := t.n - 1; i >= 0; i-- {
		o := t.ops[i]
		y := o.result()
		if !y.live || !y.needs {
			continue
		}
		y.keep()
		switch {
		case dry:
			_, work := workOf(o)
			t.work.Add(work)
		case !y.cut:
			t.watch.begin(t, o, i, "backward")
			t.operation(o, i, backwardPass, false)
			t.allocFrozenGrads(o)
			o.backward(t)
			t.watch.end(t)
		}
		t.grads.give(&y.grad)
		t.contributed(o, ready)
	}
	t.finish(ready, dry)
	t.mark("between")
}

// sow gives the roots their gradients.
func (t *Tape) sow(seeds [][]float32) {
	for i, y := range t.roots {
		buf := t.into(y)
		if seeds != nil {
			copy(buf, seeds[i])
		} else {
			fill(buf, 1)
		}
		t.merge(y, buf)
	}
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// plan finds the operations that the roots depend on and counts the contributions
// to each parameter.
func (t *Tape) plan() {
	if t.params != nil {
		t.pending = t.pending[:0]
		for range t.params.list {
			t.pending = append(t.pending, 0)
		}
	}
	for _, o := range t.ops[:t.n] {
		y := o.result()
		y.live, y.has, y.retainedGrad = false, false, y.retainedGrad[:0]
	}
	for _, y := range t.roots {
		y.live, y.has = true, false
	}
	for i := t.n - 1; i >= 0; i-- {
		if !t.ops[i].result().live {
			continue
		}
		xs, ps := t.operandsOf(t.ops[i])
		for _, x := range xs {
			x.live, x.has = true, false
		}
		for _, p := range ps {
			if !p.frozen {
				t.pending[p.param]++
			}
		}
	}
}

// contributed counts o's contributions as done and reports final gradients.
func (t *Tape) contributed(o op, ready func(slot int)) {
	_, ps := t.operandsOf(o)
	for _, p := range ps {
		if p.frozen {
			continue
		}
		p.touched = true
		t.pending[p.param]--
		if t.pending[p.param] == 0 && ready != nil {
			t.mark("ready")
			ready(p.param)
			t.pending[p.param] = -1
		}
	}
}

// finish reports the slots that this walk did not contribute to; those without
// any contribution in this step become zero.
func (t *Tape) finish(ready func(slot int), dry bool) {
	ps := t.params
	if ps == nil || ready == nil {
		return
	}
	for slot, p := range ps.list {
		if t.pending[slot] < 0 || p.frozen {
			continue
		}
		if !p.touched && !dry {
			clear(p.Grad)
		}
		t.mark("ready")
		ready(slot)
	}
	ps.finished = true
}

// into returns where an operation writes x's gradient; merge must follow.
func (t *Tape) into(x *Tensor) []float32 {
	buf := t.grads.take(len(x.Data))
	if !x.has {
		t.grads.give(&x.grad)
		x.grad = buf
	}
	return buf
}

// merge adds what was written to the slice that into returned.
func (t *Tape) merge(x *Tensor, wrote []float32) {
	if x.has {
		t.elementwise(addTo, x.grad, x.grad, wrote)
		t.grads.give(&wrote)
	}
	x.has = true
}

// freeList holds memory for gradients of intermediate values. Each lives from
// its first contribution to when its operation has passed it on, so that a few
// buffers serve the whole of backward.
type freeList [][]float32

// take returns n unspecified values: the smallest free buffer that is large
// enough, or a new one in place of the largest. A sequence of takes and gives
// that repeats soon finds what it needs.
func (f *freeList) take(n int) []float32 {
	best, largest := -1, -1
	for i, b := range *f {
		if cap(b) >= n && (best < 0 || cap(b) < cap((*f)[best])) {
			best = i
		}
		if largest < 0 || cap(b) > cap((*f)[largest]) {
			largest = i
		}
	}
	if best < 0 {
		if largest >= 0 {
			*f = slices.Delete(*f, largest, largest+1)
		}
		return aligned(n)
	}
	b := (*f)[best]
	*f = slices.Delete(*f, best, best+1)
	return b[:n]
}

// give takes *b back and sets it to nil.
func (f *freeList) give(b *[]float32) {
	if cap(*b) > 0 {
		*f = append(*f, *b)
	}
	*b = nil
}

func shapeOf(x *Tensor) []int {
	if x == nil {
		return nil
	}
	return x.Shape
}
