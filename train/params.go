package train

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// paramPlacement stores and updates a replica's parameters, on ranks or on servers. The exchange of
// a step, the processes that take part and the optimizer depend on the implementation; the training
// loop does not. Each replica has one, for the replica's thread; any goroutine may call abort.
type paramPlacement interface {
	// layOut selects the memory for the parameters of a model. It is called before the model is
	// built.
	layOut(ps *nn.Params)
	// begin makes the optimizer of the replica's dense gradients. All ranks call it.
	begin(cfg Config, at beginning) error

	// prefetches reports whether a pass is faster if setNextBatch has announced its batch.
	prefetches() bool
	// setNextBatch announces the batch after that of the next pass; more reports whether both
	// belong to one step.
	setNextBatch(b *data.Batch, more bool)
	// fetch loads the rows for a pass over a batch, and returns the batch with rows instead of ids.
	fetch(b model.Batch, training bool) (model.Batch, error)
	// rowsReady receives the gradient of a table's rows, with the labels of the batch: in the last
	// backward pass of a step, or in each if passes fetch rows.
	rowsReady(table int, ids []int32, grads []float32, labels []int32) error
	// takeWaitTime returns the time that passes waited for values since the last call.
	takeWaitTime() time.Duration
	// setRate sets the learning rates of the current step and of the next one.
	setRate(lr, next float64)
	// end ends a step after the optimizer's Step, or a step of a replica that had no batch.
	end() error
	// sync makes the parameters of all ranks equal. All ranks call it, on the first of their
	// replicas, for all.
	sync() error
	// swapAverage exchanges the parameters with their moving average, if the run has one.
	swapAverage()

	stored

	// leave ends the use of servers without an error, for all replicas of the rank.
	leave() error
	// abort ends the waits of all the rank's replicas with an error.
	abort()
	close()
}

// stored is the access of checkpoints and hashes to parameters.
type stored interface {
	// arrays names the values in this rank's memory that are equal on all ranks.
	arrays() []checkpoint.Array
	// localState returns the state that only this replica has. Names and their order are equal on
	// all ranks.
	localState() []stream
	// rows returns a function that calls show with all rows of a table, in pieces; nil if the rows
	// are in the table. ok is false if only servers can list the rows.
	rows(table int) (each func(show func(rows []float32) error) error, ok bool)
	// save completes arrays on rank 0, makes servers save their values as of a step of the run, and
	// returns entries about these for the checkpoint. All ranks call it.
	save(step int64) (more map[string]string, err error)
	// resumed sends the parameters that rank 0 has read from a checkpoint. All ranks call it.
	resumed() error
}

// placement returns a constructor of the paramPlacement of each of a rank's replicas, in order.
func placement(c Config, p communicator) func(r *Replica) paramPlacement {
	if c.Servers.Consistency == "" {
		return func(r *Replica) paramPlacement { return &replicatedParams{replica: r} }
	}
	s := &servers{peers: p}
	return s.addReplica
}

// replicatedParams are parameters with a copy on each rank, updated by the same gradients.
type replicatedParams struct {
	replica *Replica
	rule    *optim.Shared
	average *weightAverage // nil without Config.Average
}

func (p *replicatedParams) layOut(ps *nn.Params) { ps.ArenasFrom(p.replica.job.Alloc) }

func (p *replicatedParams) begin(cfg Config, _ beginning) (err error) {
	r := p.replica
	if reducer := r.job.Reducer(); reducer != nil {
		cfg.Exchange.Reducer = reducer
	}
	if p.rule, err = cfg.newRule(r.Params, r.Params.Tables()); err != nil {
		return err
	}
	var tables []distopt.Table
	for _, t := range r.Params.Tables() {
		tables = append(tables, distopt.Table{Name: t.Name, Rows: t.Rows, Dim: t.Dim, Data: t.Data})
	}
	if err = r.optimize(cfg, r.job.Group(), p.rule, tables); err == nil {
		p.average = newAverage(cfg.Average, r.kernels, r.Params)
	}
	return err
}

func (p *replicatedParams) prefetches() bool                                 { return false }
func (p *replicatedParams) setNextBatch(*data.Batch, bool)                   {}
func (p *replicatedParams) fetch(b model.Batch, _ bool) (model.Batch, error) { return b, nil }
func (p *replicatedParams) takeWaitTime() time.Duration                      { return 0 }
func (p *replicatedParams) setRate(lr, _ float64)                            { p.rule.SetLR(lr) }
func (p *replicatedParams) sync() error                                      { return p.replica.Opt.Sync() }

func (p *replicatedParams) rowsReady(table int, ids []int32, grads []float32, _ []int32) error {
	p.replica.Opt.RowsReady(table, ids, grads)
	return nil
}

func (p *replicatedParams) end() error {
	if o := p.replica.Opt; p.average != nil && o.Times().Skipped == nil {
		p.average.update(o.Steps())
	}
	return nil
}

func (p *replicatedParams) swapAverage() { p.average.swap() }

func (p *replicatedParams) arrays() (out []checkpoint.Array) {
	ps := p.replica.Params
	for _, v := range ps.List() {
		out = append(out, arraysOf(paramName(v.Name), v.Data, p.average.ofParam(v))...)
	}
	for _, s := range p.rule.State() {
		out = append(out, checkpoint.Floats("optimizer/"+s.Name, s.Data))
	}
	for i, t := range ps.Tables() {
		out = append(out, arraysOf(tableName(t.Name), t.Data, p.average.ofTable(i))...)
		for _, s := range p.rule.TableState(i) {
			out = append(out, checkpoint.Floats("optimizer/"+s.Name+"/"+t.Name, s.Data))
		}
	}
	return out
}

func (p *replicatedParams) localState() []stream                               { return streamsOf("", p.replica.Opt.State()) }
func (p *replicatedParams) rows(int) (func(func([]float32) error) error, bool) { return nil, true }
func (p *replicatedParams) leave() error                                       { return nil }
func (p *replicatedParams) abort()                                             {}

func (p *replicatedParams) resumed() error {
	if err := p.replica.Opt.Broadcast(); err != nil {
		return err
	}
	return p.average.broadcast(p.replica.job.Group())
}

// save makes replicas equal under distopt.PartialUpdate, and gathers optimizer state on rank 0.
func (p *replicatedParams) save(int64) (map[string]string, error) {
	o := p.replica.Opt
	if s := o.Strategy(); s == distopt.PartialUpdate {
		if err := errors.Join(o.SetStrategy(distopt.FP32), o.SetStrategy(s)); err != nil {
			return nil, err
		}
	}
	return nil, o.GatherState(0)
}

func (p *replicatedParams) close() {
	if p.rule != nil {
		p.rule.Close()
	}
}

// newRule makes the optimizer of a replica's arenas and tables.
func (c Config) newRule(ps *nn.Params, tables []*nn.Table) (*optim.Shared, error) {
	opt := c.newOptimizer(ps)
	if c.CustomOptimizer != nil {
		own, err := newCustomRule(c.CustomOptimizer)
		if err != nil {
			return nil, err
		}
		opt = own
	}
	if rates := ratesOf(ps); len(rates) > 0 {
		grouped, err := optim.NewGrouped(opt, rates)
		if err != nil {
			return nil, err
		}
		opt = grouped
	}
	opt, err := c.withTableRules(opt, tables)
	if err != nil {
		return nil, err
	}
	return optim.NewShared(opt, c.threadsEach())
}

func ratesOf(ps *nn.Params) (rates []optim.Rate) {
	for _, s := range ps.Slots() {
		if s.Rate != 1 {
			rates = append(rates, optim.Rate{Lo: s.Offset, Hi: s.Offset + s.Padded, Factor: s.Rate})
		}
	}
	return rates
}

// threadsEach returns the number of computing threads of each replica of a rank.
func (c Config) threadsEach() int { return max(1, c.Threads/c.Servers.threads()) }

// optimize sets r.Opt, which exchanges dense gradients in g and updates by rule. With a nil rule,
// the parameter servers behind cfg.Exchange.Reducer update.
func (r *Replica) optimize(cfg Config, g *collective.Group, rule *optim.Shared, tables []distopt.Table) (err error) {
	if cfg.Exchange.Update == "" && cfg.threadsEach() > g.Size() {
		cfg.Exchange.Update = distopt.UpdateWhole // a sharded update has one thread of each rank, a whole one all threads of this rank
	}
	if cfg.Precision == auto && r.split == nil {
		if err := r.choosePrecision(cfg, "", func(k *simd.Kernels) precisionChoice { return r.timePrecisions(cfg, k) }); err != nil {
			return err
		}
	}
	r.tape = nn.NewTape(nn.TapeConfig{Kernels: r.kernels, Threads: cfg.threadsEach(), Labels: cfg.Labelled})
	cfg.Exchange.Pool = r.tape // idle while a codec selects
	var opt optim.Optimizer
	if rule != nil {
		opt = rule
	}
	if r.Opt, err = distopt.New(g, opt, planParams(r.Params), r.Params.Values(), r.Params.Grads(), tables, cfg.exchangeOf(r.job)); err != nil {
		return err
	}
	if err = r.Opt.Broadcast(); err == nil {
		r.Tuner, err = r.newTuner(cfg, g)
	}
	return err
}

type values struct {
	name string
	data []float32
	// each, if not nil, passes the values in pieces; data is then nil.
	each func(func([]float32) error) error
}

// learnt returns the parameters, tables and buffers of the replica, sorted by name.
func (r *Replica) learnt() []values {
	var all []values
	for _, p := range r.Params.List() {
		all = append(all, values{name: p.Name, data: p.Data})
	}
	for i, t := range r.Params.Tables() {
		if each, ok := r.params.rows(i); ok {
			all = append(all, values{name: t.Name, data: t.Data, each: each})
		}
	}
	for _, b := range r.Params.BufferList() {
		all = append(all, values{name: b.Name, data: b.Data})
	}
	slices.SortFunc(all, func(a, b values) int { return strings.Compare(a.name, b.name) })
	return all
}

// hash returns the SHA-256 of parameters, tables and running statistics: name and little-endian
// values of each, sorted by name, independent of memory layout. copies covers only values that each
// rank has in memory: ranks read the same rows from servers, but these may delete rows between two
// reads. Neither hash covers rows by key on servers, because they may be too many and only servers
// can list them. An error comes from the servers of a table.
func (r *Replica) hash() (sum, copies [sha256.Size]byte, err error) {
	all := r.learnt()
	if sum, err = hashOf(all); err != nil {
		return sum, copies, err
	}
	here := slices.DeleteFunc(slices.Clone(all), func(v values) bool { return v.each != nil })
	if len(here) == len(all) {
		return sum, sum, nil
	}
	copies, err = hashOf(here)
	return sum, copies, err
}

func hashOf(all []values) (sum [sha256.Size]byte, err error) {
	const piece = 4096 // values, so that a large table needs no copy
	h := sha256.New()
	buf := make([]byte, 0, 4*piece)
	write := func(data []float32) error {
		for part := range slices.Chunk(data, piece) {
			buf = buf[:0]
			for _, x := range part {
				buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
			}
			h.Write(buf)
		}
		return nil
	}
	for _, v := range all {
		h.Write(append(buf[:0], v.name+"\x00"...))
		if v.each == nil {
			_ = write(v.data)
		} else if err := v.each(write); err != nil {
			return sum, err
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
