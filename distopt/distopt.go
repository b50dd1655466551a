// Package distopt wraps an optimizer so that several ranks train one model (after DistOpt of Apache
// SINGA).
//
// In a step, the backward pass calls GradReady for each layer as soon as its gradient is final.
// Layers are grouped into buckets, in the order of a plan. A complete bucket is compressed by the
// strategy and sent immediately, during backward. Step waits for the remaining buckets, updates the
// parameters of each bucket as soon as it has the ranks' sum, and returns. All gradients are one
// slice (arena), all parameters another, with the same layout; all work is in place. Row-sparse
// tables are outside the arenas: their gradients travel as ids and rows, in every strategy.
//
// If ranks share memory and both arenas are in it, each rank under FP32 sums and updates a part of
// each bucket, and writes the result to all ranks, as soon as all have the bucket's gradients. From
// the first GradReady of a step until Step returns, only the running backward may read parameters,
// and the wrapped optimizer's settings, such as its learning rate, must not change. Gradients are
// undefined after Step. With such updates no rank has the optimizer's whole State before
// GatherState.
//
//	opt, err := distopt.New(group, sgd, layers, params, grads, tables, distopt.Config{})
//	defer opt.Close()
//	err = opt.Broadcast()
//	for each batch {
//	    tape.Backward(loss, opt.GradReady)
//	    err = opt.Step()
//	}
//
// A step that fails on a single rank fails on all ranks, see Step. An error of the program between
// two calls does not reach other ranks: report it with ringo.Run, Job.Fail, or Group.Fail of
// package collective.
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

// Optimizer averages each step's gradients and applies the wrapped optimizer's update. A single
// goroutine uses it, and every rank must call its methods in the same order.
type Optimizer struct {
	group   *collective.Group
	reducer exchange.Reducer
	opt     optim.Optimizer
	layers  []bucket.Param
	params  []float32
	grads   []float32
	tables  tables
	cfg     Config
	info    Info // row of the strategy
	kernels *simd.Kernels

	agreed   bucket.Plan // plan for strategies that accept any
	planName string      // name of agreed
	plan     bucket.Plan // plan of the strategy
	queue    *bucket.Queue
	requests []exchange.Request
	inFlight []bool           // started and not waited for, by bucket
	partial  exchange.Request // partition of the parameters
	codec    codec
	shards   shards
	pieces   pieces  // partial sums of the norm
	factor   float32 // gradient factor of a sharded update in progress
	watch    stepTimer
	skip     skips
	workers  int     // virtual workers of this rank
	worker   int     // of them, those with a finished backward in this step
	others   []codec // codecs of the workers after the current one, which has codec

	otherSpars float64 // the share while cfg.Spars is a threshold, and conversely

	step  int64
	fault error // first error, which no later step hides
	alike bool  // all ranks have this error
}

type (
	// Param is the range of one parameter in the arenas of parameters and gradients: its Name, its
	// Offset and its length Len, in values and with the padding behind it.
	Param = bucket.Param
	// Plan is an ordered list of buckets: ranges of parameters with gradients that travel together.
	Plan = bucket.Plan
)

// New wraps opt. With a nil opt, the processes with which cfg.Reducer exchanges update the
// parameters. layers cover params and grads, two arenas of the same length, in the order of
// backward. rows are tables, which need an optim.RowOptimizer. All ranks must call New, because
// rank 0 computes and broadcasts the plan of buckets. Errors: a bad configuration (all errors
// together), arenas that do not fit the layers, ranks with different strategies, or a failed
// broadcast.
func New(g *collective.Group, opt optim.Optimizer, layers []Param, params, grads []float32, rows []Table, cfg Config) (*Optimizer, error) {
	if err := errors.Join(cfg.Validate(), checkArenas(layers, params, grads)); err != nil {
		return nil, fmt.Errorf("distopt: %w", err)
	}
	if opt == nil && (cfg.Reducer == nil || len(rows) > 0) {
		return nil, fmt.Errorf("distopt: no optimizer, and %d tables: want an optimizer, or no tables and a Reducer whose servers update the parameters", len(rows))
	}
	if err := errors.Join(cfg.checkSkip(opt != nil), cfg.checkWorkers(g.Size(), len(rows))); err != nil {
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
	o.workers = cfg.ownWorkers(g)
	for range o.workers - 1 {
		o.others = append(o.others, codec{pool: cfg.Pool})
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
		if err == nil {
			err = own.Prepare(grads)
		}
		if err != nil {
			return nil, fmt.Errorf("distopt: %w", err)
		}
		o.reducer = own
	}
	return o, nil
}

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

// Explain names, in one line, the algorithms that sum the selected entries of the plan's largest
// bucket. It returns "" if the strategy selects no entries or the reducer has no Explain.
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

// Close ends the reducer of New. After an error in the middle of a step, Close first waits for
// updates that ranks of a host divide, because these write to the arenas. No call may follow Close.
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

// Broadcast copies parameters, tables and optimizer state from rank 0 to every rank, but not the
// residuals of compression, which differ.
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

func (o *Optimizer) optState() []optim.State {
	if o.opt == nil {
		return nil
	}
	return o.opt.State()
}

// Steps is the number of completed steps.
func (o *Optimizer) Steps() int64 { return o.step }

// SetSteps sets the number of completed steps, for a run that continues from a checkpoint: the part
// of the parameters that PartialUpdate averages next depends on it. All ranks call it between
// steps, with the same number.
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

// between returns an error if a step has begun: the call named by what would change data of
// exchanges in flight.
func (o *Optimizer) between(what string) error {
	if o.queue.Begun() {
		return fmt.Errorf("distopt: step %d has begun: %s before backward, or after Step", o.step, what)
	}
	return nil
}
