package train

import (
	"errors"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// paramPlacement is who has a replica's parameters and moves them by its gradients: what a step
// agrees on, with whom, and who updates. The loop knows no more of it. One of them belongs to each
// replica and is used by its thread, but for abort.
type paramPlacement interface {
	// layOut says where the parameters of a model that is about to be built lie.
	layOut(ps *nn.Params)
	// begin makes the replica's optimizer, which dense gradients go to. It is a collective call.
	begin(cfg Config, at beginning) error

	// prefetches reports that passes are faster if they know the batch that follows.
	prefetches() bool
	// setNextBatch names the batch that follows the one of the next pass.
	setNextBatch(b *data.Batch)
	// fetch brings what a pass over a batch reads of tables, and returns the batch with the rows of these where its ids were.
	fetch(b model.Batch, training bool) (model.Batch, error)
	// rowsReady gives the gradient of a table's rows in a step's last backward, and the labels of its batch.
	rowsReady(table int, ids []int32, grads []float32, labels []int32) error
	// takeWaitTime is how long passes have waited for what they read since it was last asked.
	takeWaitTime() time.Duration
	// setRate sets the learning rate of the step under way, and that of the one after it.
	setRate(lr, next float64)
	// end ends a step behind the optimizer's, or one in which the replica had no batch.
	end() error
	// sync makes the parameters of all ranks equal. Of a rank's replicas the first one does it for all; it
	// is a collective call.
	sync() error

	stored

	// leave ends this rank's part in good order.
	leave() error
	// abort ends the waits of all the rank's replicas with an error. Any goroutine may call it.
	abort()
	close()
}

// stored is what a checkpoint and a hash see of parameters.
type stored interface {
	// arrays names what is the same on all ranks and lies in their memory.
	arrays() []checkpoint.Array
	// localState is what this replica alone keeps, on all ranks by the same names in the same
	// order.
	localState() []stream
	// rows shows all rows of a table, some at a time; it is nil where they lie in the table. Not ok: nobody here knows which there are.
	rows(table int) (each func(show func(rows []float32) error) error, ok bool)
	// save makes arrays whole on rank 0, saves what lies elsewhere as of a step of the run, and returns what tells of that, for
	// the checkpoint. It is a collective call.
	save(step int64) (more map[string]string, err error)
	// resumed makes the parameters of all ranks those of the checkpoint that rank 0 has read. It is a collective
	// call.
	resumed() error
}

// placement returns what makes the parameters of a rank's replicas, the first one's first.
func (c Config) placement(p communicator) func(r *Replica) paramPlacement {
	if c.Servers.Consistency == "" {
		return func(r *Replica) paramPlacement { return &replicatedParams{replica: r} }
	}
	s := &servers{peers: p}
	return s.another
}

// replicatedParams are parameters that each rank has a copy of, and moves by the gradients that all
// agree on.
type replicatedParams struct {
	replica *Replica
	rule    *optim.Shared
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
	return r.optimize(cfg, r.job.Group(), p.rule, tables)
}

func (p *replicatedParams) prefetches() bool                                 { return false }
func (p *replicatedParams) setNextBatch(*data.Batch)                         {}
func (p *replicatedParams) fetch(b model.Batch, _ bool) (model.Batch, error) { return b, nil }
func (p *replicatedParams) takeWaitTime() time.Duration                      { return 0 }
func (p *replicatedParams) setRate(lr, _ float64)                            { p.rule.SetLR(lr) }
func (p *replicatedParams) end() error                                       { return nil }
func (p *replicatedParams) sync() error                                      { return p.replica.Opt.Sync() }

func (p *replicatedParams) rowsReady(table int, ids []int32, grads []float32, _ []int32) error {
	p.replica.Opt.RowsReady(table, ids, grads)
	return nil
}

func (p *replicatedParams) arrays() (out []checkpoint.Array) {
	ps := p.replica.Params
	for _, v := range ps.List() {
		out = append(out, checkpoint.Floats(paramName(v.Name), v.Data))
	}
	for _, s := range p.rule.State() {
		out = append(out, checkpoint.Floats("optimizer/"+s.Name, s.Data))
	}
	for i, t := range ps.Tables() {
		out = append(out, checkpoint.Floats(tableName(t.Name), t.Data))
		for _, s := range p.rule.TableState(i) {
			out = append(out, checkpoint.Floats("optimizer/"+s.Name+"/"+t.Name, s.Data))
		}
	}
	return out
}

func (p *replicatedParams) localState() []stream                               { return streamsOf("", p.replica.Opt.State()) }
func (p *replicatedParams) rows(int) (func(func([]float32) error) error, bool) { return nil, true }
func (p *replicatedParams) resumed() error                                     { return p.replica.Opt.Broadcast() }
func (p *replicatedParams) leave() error                                       { return nil }
func (p *replicatedParams) abort()                                             {}

// save brings the replicas together where they may differ, and the optimizer's state to rank 0.
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

// newRule makes the optimizer of a replica's arenas and of tables, on its threads.
func (c Config) newRule(ps *nn.Params, tables []*nn.Table) (*optim.Shared, error) {
	opt := c.newOptimizer(ps)
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

// ratesOf are the ranges of the arena whose rate is not the optimizer's.
func ratesOf(ps *nn.Params) (rates []optim.Rate) {
	for _, s := range ps.Slots() {
		if s.Rate != 1 {
			rates = append(rates, optim.Rate{Lo: s.Offset, Hi: s.Offset + s.Padded, Factor: s.Rate})
		}
	}
	return rates
}

// threadsEach is how many threads compute in each of a rank's replicas.
func (c Config) threadsEach() int { return max(1, c.Threads/c.Servers.threads()) }

// optimize makes the replica's optimizer, which agrees on dense gradients with a group and moves the parameters by a
// rule; nil: cfg.Exchange.Reducer takes the gradients to those who do.
func (r *Replica) optimize(cfg Config, g *collective.Group, rule *optim.Shared, tables []distopt.Table) (err error) {
	if cfg.Exchange.Update == "" && cfg.threadsEach() > g.Size() {
		cfg.Exchange.Update = distopt.UpdateWhole // a shared one has a thread of each rank, a whole one all of this one's
	}
	cfg.Exchange.Pool = r.tape // idle while gradients are selected from
	var opt optim.Optimizer
	if rule != nil {
		opt = rule
	}
	if r.Opt, err = distopt.New(g, opt, planParams(r.Params), r.Params.Values(), r.Params.Grads(), tables, cfg.tuning().Base()); err != nil {
		return err
	}
	if err = r.Opt.Broadcast(); err == nil {
		r.Tuner, err = r.newTuner(cfg, g)
	}
	return err
}
