// Package distopt wraps an optimizer so that several ranks train as one (after
// DistOpt of Apache SINGA).
//
// A step is: backward tells GradReady of each layer whose gradient is final;
// complete buckets are sent at once, in plan order, while backward goes on;
// Step waits for the rest, updates each bucket as soon as it is agreed, and
// returns. Gradients and parameters lie in two arenas of the same layout, and
// everything is done in place. Row-sparse tables lie outside them: their
// gradients travel as ids and rows, in every strategy.
//
//	opt, err := distopt.New(group, sgd, layers, params, grads, tables, distopt.Config{})
//	err = opt.Broadcast()
//	for each batch {
//	    tape.Backward(loss, opt.GradReady)
//	    err = opt.Step()
//	}
package distopt

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// Optimizer carries each step's gradients to their agreed value and applies
// the wrapped optimizer's update. It is used by one goroutine, and every rank
// must call its methods in the same order.
type Optimizer struct {
	group  *collective.Group
	opt    optim.Optimizer
	layers []bucket.Layer
	params []float32
	grads  []float32
	tables tables
	cfg    Config

	plan    bucket.Plan
	queue   *bucket.Queue
	work    []*collective.Work // by bucket, nil when not in flight
	step    int64
	fault   error // the first one; no later step hides it
	exposed time.Duration
	kernels *simd.Kernels
}

// New wraps opt. layers cover params and grads, two arenas of the same length,
// in the order in which backward finishes them; rows are the tables, if there
// are any, for which opt must be an optim.RowOptimizer. The plan is computed by rank 0
// and broadcast, so New is a collective call. Errors: a bad configuration (all
// faults together), arenas that do not fit the layers, or a failed broadcast.
func New(g *collective.Group, opt optim.Optimizer, layers []bucket.Layer, params, grads []float32, rows []Table, cfg Config) (*Optimizer, error) {
	if err := errors.Join(cfg.Validate(), checkArenas(layers, params, grads)); err != nil {
		return nil, fmt.Errorf("distopt: %w", err)
	}
	cfg.Strategy, _ = ParseStrategy(string(cfg.Strategy))
	cfg.Accumulation = max(1, cfg.Accumulation)
	if cfg.Plan == "" {
		cfg.Plan = PlanFixed
	}
	if cfg.Partitions == 0 {
		cfg.Partitions = 4
	}
	if err := opt.Bind(len(params)); err != nil {
		return nil, fmt.Errorf("distopt: %w", err)
	}
	sparse, err := newTables(g, opt, rows)
	if err == nil {
		err = sparse.agree()
	}
	if err != nil {
		return nil, fmt.Errorf("distopt: %w", err)
	}
	plan, err := agreePlan(g, cfg.plan(layers), layers)
	if err != nil {
		return nil, err
	}
	return &Optimizer{
		group: g, opt: opt, layers: layers, params: params, grads: grads, tables: sparse, cfg: cfg,
		plan: plan, queue: bucket.NewQueue(plan), work: make([]*collective.Work, len(plan)), kernels: simd.Host(),
	}, nil
}

// checkArenas reports layers that do not cover the arenas without gaps.
func checkArenas(layers []bucket.Layer, params, grads []float32) error {
	at := 0
	for i, l := range layers {
		if l.Offset != at || l.Len < 0 {
			return fmt.Errorf("layer %d (%s) lies at %d with %d values, want it at %d", i, l.Name, l.Offset, l.Len, at)
		}
		at += l.Len
	}
	if len(params) != at || len(grads) != at {
		return fmt.Errorf("the layers hold %d values, the parameter arena %d and the gradient arena %d: want them equal", at, len(params), len(grads))
	}
	return nil
}

// agreePlan gives every rank rank 0's plan.
func agreePlan(g *collective.Group, own bucket.Plan, layers []bucket.Layer) (bucket.Plan, error) {
	code := own.Encode()
	size := []int32{int32(len(code))}
	if err := collective.Broadcast(g, size, 0); err != nil {
		return nil, fmt.Errorf("distopt: broadcasting the plan: %w", err)
	}
	if size[0] < 0 || int(size[0]) > 4*len(layers) {
		return nil, fmt.Errorf("distopt: rank 0's plan has %d bytes, but %d layers allow %d: do all ranks train the same model?", size[0], len(layers), 4*len(layers))
	}
	code = append(code, make([]byte, 4*len(layers))...)[:size[0]]
	if err := collective.Broadcast(g, code, 0); err != nil {
		return nil, fmt.Errorf("distopt: broadcasting the plan: %w", err)
	}
	plan, err := bucket.Decode(code, layers)
	if err != nil {
		return nil, fmt.Errorf("distopt: rank 0's plan does not fit this rank's model: %w", err)
	}
	return plan, nil
}

// Broadcast gives every rank the parameters, the tables and the optimizer state
// of rank 0.
func (o *Optimizer) Broadcast() error {
	if err := o.between("call Broadcast"); err != nil {
		return err
	}
	if err := collective.Broadcast(o.group, o.params, 0); err != nil {
		return fmt.Errorf("distopt: broadcasting the initial parameters: %w", err)
	}
	for _, s := range o.opt.State() {
		if err := collective.Broadcast(o.group, s.Data, 0); err != nil {
			return fmt.Errorf("distopt: broadcasting the optimizer state %q: %w", s.Name, err)
		}
	}
	if err := o.tables.broadcast(); err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	return nil
}

// Plan is the agreed plan. It must not be changed.
func (o *Optimizer) Plan() bucket.Plan { return o.plan }

// PlanName is the kind of plan that was configured: "one", "per-layer" or
// "fixed".
func (o *Optimizer) PlanName() string { return o.cfg.Plan }

// Strategy is the strategy of the next step.
func (o *Optimizer) Strategy() Strategy { return o.cfg.Strategy }

// Exposed is the time from the end of the last step's backward, when Step was
// called, to when the last of its values were agreed: the communication that
// backward did not hide. For PartialUpdate, whose exchange begins after the
// update, it is the time of that exchange.
func (o *Optimizer) Exposed() time.Duration { return o.exposed }

// Steps is how many steps have been completed.
func (o *Optimizer) Steps() int64 { return o.step }

// SetSteps says how many steps have been completed, of a run that goes on from
// a checkpoint: PartialUpdate's partitions follow the count. It is called
// between steps, with the same number on every rank.
func (o *Optimizer) SetSteps(n int64) error {
	if err := o.between("call SetSteps"); err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("distopt: %d steps completed: want 0 or more", n)
	}
	o.step = n
	return nil
}

// between reports a call in the middle of a step: it would change what
// exchanges under way read or write.
func (o *Optimizer) between(what string) error {
	if o.queue.Begun() {
		return fmt.Errorf("distopt: step %d has begun: %s before backward, or after Step", o.step, what)
	}
	return nil
}

// SetStrategy changes the strategy of the following steps. It is a collective
// call between steps, before the first GradReady or after Step. Leaving PartialUpdate brings parameters and optimizer
// state together first, or the replicas would stay apart for good.
func (o *Optimizer) SetStrategy(s Strategy) error {
	s, err := ParseStrategy(string(s))
	if err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	if err := o.between("change the strategy"); err != nil {
		return err
	}
	if o.cfg.Strategy == PartialUpdate && s != PartialUpdate {
		if err := o.Sync(); err != nil {
			return err
		}
		for _, st := range o.opt.State() {
			if err := collective.AllReduce(o.group, st.Data, collective.Mean); err != nil {
				return fmt.Errorf("distopt: averaging the optimizer state %q: %w", st.Name, err)
			}
		}
	}
	o.cfg.Strategy = s
	return nil
}

// GradReady says that the gradient of a layer is final. When that completes a
// bucket, its exchange starts and goes on in the background; the gradients of
// reported layers must not be touched until Step returns. A fault is kept for
// Step to return.
func (o *Optimizer) GradReady(layer int) {
	if o.fault != nil {
		return
	}
	if err := o.queue.Mark(layer); err != nil {
		name := "unknown"
		if layer >= 0 && layer < len(o.layers) {
			name = o.layers[layer].Name
		}
		o.fail(fmt.Errorf("distopt: step %d, layer %s: %w", o.step, name, err))
		return
	}
	if o.cfg.Strategy != FP32 {
		return
	}
	for b, ok := o.queue.Next(); ok; b, ok = o.queue.Next() {
		k := o.plan[b]
		o.work[b] = collective.StartAllReduce(o.group, o.grads[k.Lo:k.Hi], collective.Sum)
	}
	// Where computing takes every core, this is when exchanges get their turn:
	// between two layers, with nothing in the caches that is still needed.
	runtime.Gosched()
}

// Step ends the step that backward began: it agrees on what is still missing
// and updates the parameters. On an error, which names the step and the
// bucket, the parameters are not usable on this rank and every later Step
// fails with the same error.
func (o *Optimizer) Step() error {
	o.exposed = 0
	if l, waiting := o.queue.Waiting(); waiting && o.fault == nil {
		o.fail(fmt.Errorf("distopt: step %d: Step was called before the gradient of layer %d (%s) was ready", o.step, l, o.layers[l].Name))
	}
	if name := o.tables.waiting(); name != "" && o.fault == nil {
		o.fail(fmt.Errorf("distopt: step %d: Step was called before the gradient of table %s was ready", o.step, name))
	}
	if o.fault == nil {
		o.opt.BeginStep()
		o.tables.begin()
		if o.cfg.Strategy == PartialUpdate {
			o.partialStep()
		} else {
			o.averageStep()
		}
	}
	o.drain()
	if o.fault != nil {
		return o.fault
	}
	o.queue.Reset()
	o.tables.reset()
	o.step++
	return nil
}

// averageStep waits for each bucket's average and updates with it. Without
// clipping a bucket is updated while later ones and the tables' rows still
// travel; the norm of the whole gradient is only known after the last.
func (o *Optimizer) averageStep() {
	start := time.Now()
	for b := range o.plan {
		end, ok := o.wait(b)
		if !ok {
			return
		}
		o.exposed = max(o.exposed, end.Sub(start))
		if o.cfg.ClipNorm == 0 {
			o.update(o.plan[b].Lo, o.plan[b].Hi, o.scale())
		}
	}
	if !o.gatherTables(start) {
		return
	}
	factor, ok := o.clipFactor(true, true)
	if !ok {
		return
	}
	if o.cfg.ClipNorm > 0 {
		o.update(0, len(o.params), o.scale()*factor)
	}
	o.tables.update(o.tableScale() * factor)
}

// gatherTables agrees on the tables' gradients.
func (o *Optimizer) gatherTables(start time.Time) bool {
	end, err := o.tables.finish()
	if err != nil {
		o.fail(fmt.Errorf("distopt: step %d: %w", o.step, err))
		return false
	}
	o.exposed = max(o.exposed, end.Sub(start))
	return true
}

// partialStep updates everything locally, then averages one partition of the
// parameters. Tables are updated as under FP32, so that they are always equal on
// all ranks and untouched rows do not move; their gradient is therefore clipped
// by its own norm, the dense one by that of this rank's.
func (o *Optimizer) partialStep() {
	factor, ok := o.clipFactor(true, false)
	if !ok {
		return
	}
	o.update(0, len(o.params), o.scale()*factor)
	start := time.Now()
	if !o.gatherTables(start) {
		return
	}
	if factor, ok = o.clipFactor(false, true); !ok {
		return
	}
	o.tables.update(o.tableScale() * factor)
	k := int(o.step % int64(o.cfg.Partitions))
	lo, hi := partition(len(o.params), o.cfg.Partitions, k)
	if err := collective.AllReduce(o.group, o.params[lo:hi], collective.Mean); err != nil {
		o.fail(&Error{Step: o.step, Bucket: k, Buckets: o.cfg.Partitions, What: "averaging a partition of the parameters", Err: err})
	}
	o.exposed = time.Since(start)
}

// partition returns part i of k about equal parts of n values. Parts start at
// multiples of 16 values, a cache line.
func partition(n, k, i int) (lo, hi int) {
	const line = 16
	lines := (n + line - 1) / line
	return min(n, lines*i/k*line), min(n, lines*(i+1)/k*line)
}

// Sync makes all replicas equal by averaging the parameters where the strategy
// lets them differ, which tables never do; it must be called, on all ranks, before evaluating, hashing
// or saving. Where replicas are always equal it costs nothing.
func (o *Optimizer) Sync() error {
	if o.cfg.Strategy != PartialUpdate {
		return nil
	}
	if err := o.between("call Sync"); err != nil {
		return err
	}
	if err := collective.AllReduce(o.group, o.params, collective.Mean); err != nil {
		return fmt.Errorf("distopt: averaging the parameters after step %d: %w", o.step, err)
	}
	return nil
}

// scale turns the sum over accumulated backwards, and over the ranks where they
// exchange gradients, into the mean: in the update's own pass over the values.
func (o *Optimizer) scale() float32 {
	n := o.cfg.Accumulation
	if o.cfg.Strategy == FP32 {
		n *= o.group.Size()
	}
	return 1 / float32(n)
}

// tableScale is scale for tables, which the ranks exchange in every strategy.
func (o *Optimizer) tableScale() float32 {
	return 1 / float32(o.cfg.Accumulation*o.group.Size())
}

func (o *Optimizer) update(lo, hi int, scale float32) {
	o.opt.Update(lo, o.params[lo:hi], o.grads[lo:hi], scale)
}

// clipFactor is what the gradients of the arena, of the tables or of both are
// to be multiplied by so that their norm together is at most ClipNorm (Pascanu
// et al. 2013); 1 where clipping is off. The norm has the same bits on every
// rank where the gradients have. ok is false when there is none.
func (o *Optimizer) clipFactor(dense, rows bool) (factor float32, ok bool) {
	if o.cfg.ClipNorm == 0 {
		return 1, true
	}
	sum := 0.0
	if dense {
		sum += squared(o.scale()) * o.kernels.SumSquares(o.grads)
	}
	if rows {
		sum += squared(o.tableScale()) * o.tables.sumSquares(o.kernels)
	}
	norm := math.Sqrt(sum)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		o.fail(fmt.Errorf("distopt: step %d: the norm of the gradient is %v, first in %s: lower the learning rate, or look for a fault in the data or the model", o.step, norm, o.firstNotFinite()))
		return 0, false
	}
	if norm > o.cfg.ClipNorm {
		return float32(o.cfg.ClipNorm / norm), true
	}
	return 1, true
}

func squared(x float32) float64 { return float64(x) * float64(x) }

// firstNotFinite names the first layer or table whose gradient holds a NaN or
// an infinity.
func (o *Optimizer) firstNotFinite() string {
	for _, l := range o.layers {
		if !finite(o.grads[l.Offset : l.Offset+l.Len]) {
			return "layer " + l.Name
		}
	}
	for _, t := range o.tables.list {
		if !finite(t.sumRows) {
			return "table " + t.Name
		}
	}
	return "none (the sum of squares overflows)"
}

func finite(x []float32) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// wait waits for one bucket and returns when, and whether, it was agreed.
func (o *Optimizer) wait(b int) (end time.Time, ok bool) {
	end, err := o.work[b].WaitEnd()
	o.work[b] = nil
	if err != nil {
		o.fail(&Error{Step: o.step, Bucket: b, Buckets: len(o.plan), What: "averaging the gradients", Err: err})
	}
	return end, err == nil
}

// drain waits for everything still in flight after a fault, so that no
// operation writes to the arenas once Step has returned.
func (o *Optimizer) drain() {
	for b, w := range o.work {
		if w != nil {
			_ = w.Wait() // the first fault is already kept
			o.work[b] = nil
		}
	}
	o.tables.drain()
}

func (o *Optimizer) fail(err error) {
	if o.fault == nil {
		o.fault = err
	}
}

// Error says in which step and bucket an exchange failed. For PartialUpdate
// the bucket is the partition. Err names the operation, the rank and the peer.
type Error struct {
	Step            int64
	Bucket, Buckets int
	What            string
	Err             error
}

// Error returns one line.
func (e *Error) Error() string {
	return fmt.Sprintf("distopt: step %d, bucket %d of %d: %s: %v", e.Step, e.Bucket, e.Buckets, e.What, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
