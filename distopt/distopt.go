// Package distopt wraps an optimizer so that several ranks train as one (after
// DistOpt of Apache SINGA).
//
// A step is: backward tells GradReady of each layer whose gradient is final;
// complete buckets are compressed, as the strategy says, and sent at once, in
// plan order, while backward goes on; Step waits for the rest, updates each bucket
// as soon as it is agreed, and returns. Gradients and parameters lie in two
// arenas of the same layout, and everything is done in place. Row-sparse tables
// lie outside them: their gradients travel as ids and rows, in every strategy.
//
// Where the ranks share memory and both arenas lie in it, each rank sums and updates a
// part under FP32 and writes it to all, a bucket as soon as all ranks have its gradients.
// From the first GradReady of a step until Step returns, parameters must therefore not be
// read, but by the backward under way, and the settings of the wrapped optimizer, such as
// its learning rate, not be changed. What is in the gradients after Step is undefined, and
// the optimizer's State is whole on no rank until GatherState.
//
//	opt, err := distopt.New(group, sgd, layers, params, grads, tables, distopt.Config{})
//	defer opt.Close()
//	err = opt.Broadcast()
//	for each batch {
//	    tape.Backward(loss, opt.GradReady)
//	    err = opt.Step()
//	}
//
// A step that fails on one rank alone ends those of the others, see Step. Of what else fails between two calls they do not know: its
// caller tells them, by ringo.Run or Job.Fail, or by Group.Fail of package collective.
package distopt

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// Optimizer carries each step's gradients to their agreed value and applies
// the wrapped optimizer's update. It is used by one goroutine, and every rank
// must call its methods in the same order.
type Optimizer struct {
	group   *collective.Group
	reducer exchange.Reducer
	opt     optim.Optimizer
	layers  []bucket.Param
	params  []float32
	grads   []float32
	tables  tables
	cfg     Config
	info    Info // of the strategy
	kernels *simd.Kernels

	agreed   bucket.Plan // of strategies that may have any
	planName string      // of it
	plan     bucket.Plan // of the strategy
	queue    *bucket.Queue
	requests []exchange.Request // by bucket
	inFlight []bool             // by bucket: started and not waited for
	partial  exchange.Request   // of a partition of the parameters
	codec    codec
	shards   shards
	pieces   pieces  // what the norm is summed by
	factor   float32 // of a shared update under way
	watch    stepTimer
	skip     skips

	otherSpars float64 // the share while cfg.Spars is a threshold, and the reverse

	step  int64
	fault error // the first one; no later step hides it
	alike bool  // all ranks have this fault
}

type (
	// Param is the range of one parameter in the arenas of parameters and gradients: its Name, its
	// Offset and its length Len, in values and with the padding behind it.
	Param = bucket.Param
	// Plan is an ordered list of buckets: ranges of parameters with gradients that travel together.
	Plan = bucket.Plan
)

// New wraps opt, which is nil where those that cfg.Reducer brings the gradients to update the
// parameters: Step then updates nothing. layers cover params and grads, two arenas of the same
// length, in the order in which backward finishes them; rows are the tables, if there are any, for
// which opt must be an optim.RowOptimizer. The plan is computed by rank 0 and broadcast, so New is
// a collective call. Errors: a bad configuration (all faults together), arenas that do not fit the
// layers, ranks with other strategies, or a failed broadcast.
func New(g *collective.Group, opt optim.Optimizer, layers []Param, params, grads []float32, rows []Table, cfg Config) (*Optimizer, error) {
	if err := errors.Join(cfg.Validate(), checkArenas(layers, params, grads)); err != nil {
		return nil, fmt.Errorf("distopt: %w", err)
	}
	if opt == nil && (cfg.Reducer == nil || len(rows) > 0) {
		return nil, fmt.Errorf("distopt: there is no optimizer and %d tables: want an optimizer, or a Reducer whose other end updates the parameters, and no tables", len(rows))
	}
	if err := cfg.checkSkip(opt != nil); err != nil {
		return nil, err
	}
	if opt != nil {
		if err := opt.Bind(len(params)); err != nil {
			return nil, fmt.Errorf("distopt: %w", err)
		}
	}
	sparse, err := newTables(g, opt, rows)
	if err == nil {
		err = agreeModel(g, layers, rows)
	}
	if err != nil {
		return nil, fmt.Errorf("distopt: %w", err)
	}
	o := &Optimizer{
		watch: newWatch(g.Recorder()), group: g, opt: opt, layers: layers, params: params, grads: grads, tables: sparse, cfg: cfg.Resolved(), kernels: simd.Host(),
	}
	if cfg.name() == PartialUpdate && cfg.Partitions > len(params) {
		return nil, fmt.Errorf("distopt: %s %d of %d values: want no more than there are", pathPartitions, cfg.Partitions, len(params))
	}
	if err := o.fitsRule(cfg.name()); err != nil {
		return nil, err
	}
	o.codec.pool, o.planName, o.pieces = cfg.Pool, cfg.planName(Info{}), piecesOf(layers)
	if o.agreed, err = agreePlan(g, cfg.plan(layers, o.planName), layers); err != nil {
		return nil, fmt.Errorf("distopt: %w", err)
	}
	if err := o.agreeShards(); err != nil {
		return nil, fmt.Errorf("distopt: %w", err)
	}
	if err := o.adopt(o.cfg); err != nil {
		return nil, err
	}
	if o.reducer = cfg.Reducer; o.reducer == nil {
		own, err := exchange.NewGroupReducer(g, cfg.sparse())
		if err != nil {
			return nil, fmt.Errorf("distopt: %w", err)
		}
		o.reducer = own
	}
	return o, nil
}

// checkArenas reports layers that do not cover the arenas without gaps.
func checkArenas(layers []bucket.Param, params, grads []float32) error {
	at := 0
	for i, l := range layers {
		if l.Offset != at || l.Len < 0 || l.Pad < 0 || l.Pad > l.Len {
			return fmt.Errorf("layer %d (%s) lies at %d with %d values, %d of them padding: want it at %d", i, l.Name, l.Offset, l.Len, l.Pad, at)
		}
		at += l.Len
	}
	if len(params) != at || len(grads) != at {
		return fmt.Errorf("the layers hold %d values, the parameter arena %d and the gradient arena %d: want them equal", at, len(params), len(grads))
	}
	return nil
}

// Explain says in one line by which algorithms the entries of the plan's largest
// bucket are exchanged; "" where the strategy selects none, or the reducer does not
// tell.
func (o *Optimizer) Explain() string {
	e, ok := o.reducer.(interface {
		Explain(op *exchange.Request) string
	})
	if !ok || len(o.plan) == 0 || o.codec.entries(0) == nil {
		return ""
	}
	largest := slices.MaxFunc(o.plan, func(a, b bucket.Bucket) int { return a.Len() - b.Len() })
	return e.Explain(&o.requests[slices.Index(o.plan, largest)])
}

// Close ends the reducer that New made. In the middle of a step, after a fault of the
// caller's, it first waits for shared updates under way, which write to the arenas: others
// come to them, or the group fails. Nothing may be called afterwards.
func (o *Optimizer) Close() error {
	o.drainShards()
	if o.cfg.Reducer != nil {
		return nil
	}
	if err := o.reducer.Close(); err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	return nil
}

// Broadcast gives every rank the parameters, the tables and the optimizer state
// of rank 0. What the codec keeps is each rank's own.
func (o *Optimizer) Broadcast() error {
	if err := o.GatherState(0); err != nil {
		return err
	}
	if err := collective.Broadcast(o.group, o.params, 0); err != nil {
		return fmt.Errorf("distopt: broadcasting the initial parameters: %w", err)
	}
	for _, s := range o.optState() {
		if err := collective.Broadcast(o.group, s.Data, 0); err != nil {
			return fmt.Errorf("distopt: broadcasting the optimizer state %q: %w", s.Name, err)
		}
	}
	o.shards.split = false
	if err := o.tables.broadcast(); err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	return nil
}

// optState is what the wrapped optimizer keeps, if there is one.
func (o *Optimizer) optState() []optim.State {
	if o.opt == nil {
		return nil
	}
	return o.opt.State()
}

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
