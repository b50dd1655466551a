package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/simd"
)

// TapeConfig configures a Tape. The zero value means the host's best kernels and a single thread.
type TapeConfig struct {
	// Kernels are the vector kernels; nil means simd.Host().
	Kernels *simd.Kernels
	// Threads is the number of computing threads; 0 means 1. invariant[thread-bits]: Threads never
	// changes the result, because sums are cut into parts by shapes only.
	Threads int
	// Constant declares that parameters do not change while the tape is in use, for evaluations
	// only: ResetEval must begin each, including the first. Products, convolutions and LSTM layers
	// then prepare their weights once. The prepared weights need as much memory as the weights, for
	// 3x3 convolutions up to four times as much.
	Constant bool
	// Labels adds pprof labels to all threads of the tape. Samples of an operation have "phase"
	// (forward, backward or evaluate), "layer" (the prefix of its parameters' names, or the
	// operation's kind without parameters) and "op". The ready function of Backward is the phase
	// "ready", and the time until the next forward pass "between". Cost: some ten ns per operation
	// and thread.
	Labels bool
}

// Validate reports a negative number of threads.
func (c TapeConfig) Validate() error {
	if c.Threads < 0 {
		return fmt.Errorf("nn: threads %d: want at least 1, or 0 for 1", c.Threads)
	}
	return nil
}

// Tape records operations and runs them backwards. It owns the results and all other memory of the
// operations and reuses it after Reset: with repeated shapes, a step allocates no memory. A Tape is
// for a single goroutine.
type Tape struct {
	k    *simd.Kernels
	pool *pool

	ops           []op // the first n are recorded, the rest wait to be reused
	n             int
	eval          bool
	params        *Params // registry of the recorded operations, nil without any
	last          *Params // registry of earlier recordings
	pending       []int   // contributions still to come in this Backward, by slot
	grads         freeList
	norm          normScratch
	roots         []*Tensor  // roots of the Backward in progress
	inputs        []*Tensor  // result of operandsOf
	weights       []*Param   // result of operandsOf
	values        vectorJob  // elementwise operation in progress
	strided       stridedJob // operation with broadcasting in progress
	folds         foldJob    // sum in progress
	rows          rowsJob    // copy of rows in progress
	parts         partsJob   // sum of parts in progress
	packing       packJob    // packing in progress
	merging       mergeJob   // merging of a table's gradient in progress
	blocks        blocksJob  // sum over rows in progress
	packed        convPacked
	packedWeights map[weightsKey]*weights // prepared constant parameters; nil: they may change
	seed          uint64                  // see SetSeed
	work          Work                    // work of a dry walk since the last slot
	watch         watch
	labels        labels

	crossing []*Tensor // arguments of stages in progress, see OnDevice
	divert   func(place string, part Stage, x []*Tensor) *Tensor
}

// op is a recorded operation. It owns its result and its working memory.
type op interface {
	// operands returns the inputs and the parameters, padded with nil.
	operands() (x [4]*Tensor, p [4]*Param)
	result() *Tensor
	// backward adds to the gradients of operands that need one, from the gradient of the result,
	// which it may overwrite; the tape then reuses the gradient's memory.
	backward(t *Tape)
}

// wideOp is an operation with any number of operands. Its operands method returns none.
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

// tableOp is an operation on a row-sparse table.
type tableOp interface{ table() *Table }

// NewTape makes a tape. It panics if cfg is invalid. With more than one thread, Close ends the
// tape's goroutines.
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

// Close ends the tape's goroutines. The tape must not be used afterwards; its tensors remain valid.
func (t *Tape) Close() { t.pool.close() }

// Threads is the number of parts that Run runs simultaneously.
func (t *Tape) Threads() int { return t.pool.threads() }

// Run calls part(0) to part(parts-1) on the tape's threads, in any order, and returns when all have
// returned. It is for work between operations, as in Backward's ready, on the tape's goroutine.
func (t *Tape) Run(parts int, part func(i int)) { t.pool.run(partFunc(part), parts) }

// partFunc is a job without working memory.
type partFunc func(i int)

func (f partFunc) part(_ *worker, i int) { f(i) }

// Reset discards the recording, for the next training step. It panics if parameters are constant.
func (t *Tape) Reset() {
	if t.packedWeights != nil {
		panic(errors.New("nn: Reset of a tape whose parameters are constant: it is for evaluations, which begin with ResetEval"))
	}
	t.reset(false)
}

// ResetEval is Reset for an evaluation: operations skip work for Backward, which panics.
func (t *Tape) ResetEval() { t.reset(true) }

func (t *Tape) reset(eval bool) {
	t.watch.end(t)
	t.pool.level()
	t.n, t.eval, t.params = 0, eval, nil
}

// record returns the next operation of the recording, of type T. It reuses the memory of the
// operation that had the same index before, if the type is the same.
func record[T any, P interface {
	*T
	op
}](t *Tape) P {
	if t.n < len(t.ops) {
		if _, ok := t.ops[t.n].(P); !ok { // the model has changed: later operations are useless
			clear(t.ops[t.n:])
			t.ops = t.ops[:t.n]
		}
	}
	isNew := t.n == len(t.ops)
	if isNew {
		t.ops = append(t.ops, P(new(T)))
	}
	o := t.ops[t.n].(P)
	t.watch.begin(t, o, t.n, "forward")
	t.operation(o, t.n, forwardPass, isNew)
	t.n++
	return o
}

// begin prepares o's result with the given shape and records which parameters o has.
func (t *Tape) begin(o op, shape ...int) *Tensor {
	y := o.result()
	y.Resize(shape...)
	t.note(o)
	return y
}

// note records whether o's result needs a gradient.
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

// belongs checks that all parameters of a recording belong to one registry.
func (t *Tape) belongs(owner *Params, name string) {
	if t.params == nil {
		t.params = owner
	}
	if t.params != owner {
		panic(errors.New("nn: a tape cannot record parameters of two registries: parameter " + name))
	}
}

// Backward computes the gradients of loss, a tensor of one value, with respect to all its
// parameters, and adds to the gradients of earlier Backwards of the same step.
//
// A ready that is not nil means that this Backward is the last of the step. It is called once per
// parameter, with the parameter's index in Slots, on this goroutine, as soon as the gradient is
// final. Parameters without a gradient in the step get zeros and are reported at the end. The next
// Backward starts a new sum. With a nil ready, the sum continues.
func (t *Tape) Backward(loss *Tensor, ready func(slot int)) {
	require(loss != nil && len(loss.Data) == 1, "backward", "a loss of one value", shapeOf(loss)...)
	t.roots = append(t.roots[:0], loss)
	t.check()
	t.walk(nil, false, ready)
}

// BackwardFrom is Backward from any number of outputs of any shape: seeds[i] is the gradient of the
// loss with respect to outputs[i], of equal size. It is for a model with a last part that another
// process computes: there RetainGrad and Grad give the seeds. Seeds of a repeated output are added.
func (t *Tape) BackwardFrom(outputs []*Tensor, seeds [][]float32, ready func(slot int)) {
	require(len(outputs) > 0 && len(outputs) == len(seeds), "backward", "a seed for each output, one at least", len(outputs), len(seeds))
	for i, y := range outputs {
		require(y != nil && len(y.Data) == len(seeds[i]), "backward", "a seed of as many values as the output", append([]int{len(seeds[i])}, shapeOf(y)...)...)
	}
	t.roots = append(t.roots[:0], outputs...)
	t.check()
	t.walk(seeds, false, ready)
}

// check panics unless a Backward can use the recording.
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

// walk goes backwards over the operations that the roots depend on. The gradients of the roots are
// seeds, or ones if nil. With dry it computes no gradient, and only calls ready.
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

// sow sets the gradients of the roots.
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

// plan finds the operations that the roots depend on and counts the contributions to each
// parameter.
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

// finish reports the slots without a contribution from this walk; slots without any in this step
// become zero.
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

// into returns memory for an operation to write x's gradient to, followed by a call of merge.
func (t *Tape) into(x *Tensor) []float32 {
	buf := t.grads.take(len(x.Data))
	if !x.has {
		t.grads.give(&x.grad)
		x.grad = buf
	}
	return buf
}

// merge adds the slice that into returned to x's gradient.
func (t *Tape) merge(x *Tensor, wrote []float32) {
	if x.has {
		t.elementwise(addTo, x.grad, x.grad, wrote)
		t.grads.give(&wrote)
	}
	x.has = true
}

// freeList holds memory for gradients of intermediate values. Each gradient needs memory only until
// its operation has used it, so that a few buffers suffice for all of backward.
type freeList [][]float32

// take returns n unspecified values: the smallest free buffer that is large enough, or a new one
// instead of the largest. After a few steps no new memory is needed.
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

// give returns *b to the list and sets it to nil.
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
