package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/ps/trainer"
	"github.com/ringo-ml/ringo/transport/mem"
)

// Consistencies are the names that Servers.Consistency accepts, besides none.
func Consistencies() []string { return []string{"sync", "async", "ssp"} }

// Servers says that the parameters lie on the job's servers of tables, which update them.
type Servers struct {
	// Consistency is what the servers do, which they are told on their own: sync, async
	// or ssp. Empty: parameters lie with the ranks.
	Consistency string
}

// validateServers reports what parameters on servers rule out.
func (c Config) validateServers() (errs []error) {
	if c.Servers.Consistency == "" {
		return nil
	}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("parameters on servers (%s): "+format, append([]any{c.Servers.Consistency}, args...)...))
		}
	}
	fault(!slices.Contains(Consistencies(), c.Servers.Consistency), "that consistency is not known: use one of %s", strings.Join(Consistencies(), ", "))
	x := c.Exchange.Resolved()
	fault(x.Strategy != distopt.FP32, "strategy %s selects or codes gradients: use fp32, or let the servers sum only", x.Strategy)
	fault(x.ClipNorm > 0, "clipping to a norm of %v needs the whole gradient in one place: use no clipping, or let the servers sum only", x.ClipNorm)
	fault(x.Accumulation > 1, "%d backwards in a step: want 1", x.Accumulation)
	fault(c.Tuning.Measure || c.Tuning.Profile != nil, "nothing is tuned: leave it out")
	fault(c.Warmup != schedule.Warmup{}, "a warm-up begins below the rate that servers begin with: leave it out")
	fault(c.Checkpoint.Dir != "", "checkpoints of ranks do not hold what servers have: leave them out")
	fault(c.Optimizer == "adamw" && c.WeightDecay > 0, "adamw decays all parameters there, biases too: use adam, or a weight decay of 0")
	return errs
}

// remote is what a replica has whose parameters lie on servers.
type remote struct {
	*trainer.Trainer
	alone *collective.Group // of this rank
	next  float64           // the learning rate of the next step
}

// schemaOf describes the parameters of a model and the rules that move them.
func (c Config) schemaOf(ps *nn.Params) (schema.Schema, error) {
	rule := schema.Rule{Name: c.Optimizer, LR: c.LR, Settings: map[string]float64{}}
	set := func(name string, v float64) {
		if v != 0 {
			rule.Settings[name] = v
		}
	}
	set("momentum", c.Momentum)
	set("weight_decay", c.WeightDecay)
	set("eps", c.Eps)
	s := schema.Schema{Dense: []schema.Dense{{Name: "dense", Len: len(ps.Values()), Rule: rule}}}
	if len(ps.Tables()) > 1 {
		return s, fmt.Errorf("model %s has %d tables: parameters on servers can have one", c.Model, len(ps.Tables()))
	}
	for _, t := range ps.Tables() {
		s.Sparse = append(s.Sparse, schema.Sparse{Name: t.Name, Dim: t.Dim, Rule: rule, Init: t.Init, Seed: c.Seed})
	}
	return s, s.Validate()
}

// connect finds the servers. It is called with the arenas arranged.
func (r *Replica) connect(cfg Config) error {
	s, err := cfg.schemaOf(r.Params)
	if err != nil {
		return err
	}
	rows := 0
	for _, t := range r.Params.Tables() {
		rows = t.Rows
	}
	c, err := r.job.DialTables(client.Config{Schema: s})
	if err != nil {
		return err
	}
	r.remote = &remote{next: -1}
	r.remote.Trainer, err = trainer.New(trainer.Config{Client: c, Schema: s, Values: r.Params.Values(), Rows: rows, First: r.job.Rank() == 0})
	if err != nil {
		return errors.Join(err, c.Close())
	}
	r.remote.alone, err = collective.New(mem.New(1)[0], collective.Config{})
	return err
}

// fetch brings the parameters that a pass needs, and maps the batch's ids to the rows held.
func (r *Replica) fetch(ids []int32, training bool) ([]int32, error) {
	get := r.remote.Peek
	if training {
		get = func(ids []int32) ([]int32, []float32, error) { return r.remote.Fetch(ids, true) }
	}
	mapped, rows, err := get(ids)
	if err != nil || len(rows) == 0 {
		return ids, err
	}
	r.Params.Tables()[0].Hold(rows)
	return mapped, nil
}

// settle is Sync where parameters lie on servers.
func (r *Replica) settle() error {
	if err := r.remote.Flush(context.Background()); err != nil {
		return err
	}
	if err := collective.Barrier(r.group); err != nil {
		return fmt.Errorf("waiting for all ranks' pushes: %w", err)
	}
	return r.remote.Settle()
}

// elsewhere is an optimizer whose work others do.
type elsewhere struct {
	name string
	lr   float64
}

var _ optim.RowOptimizer = (*elsewhere)(nil)

func (e *elsewhere) Name() string                                           { return e.name }
func (e *elsewhere) Bind(int) error                                         { return nil }
func (e *elsewhere) SetLR(lr float64)                                       { e.lr = lr }
func (e *elsewhere) CurrentLR() float64                                     { return e.lr }
func (e *elsewhere) BeginStep()                                             {}
func (e *elsewhere) Update(int, []float32, []float32, float32)              {}
func (e *elsewhere) State() []optim.State                                   { return nil }
func (e *elsewhere) BindTables([][2]int) error                              { return nil }
func (e *elsewhere) UpdateRows(int, []float32, []int32, []float32, float32) {}
func (e *elsewhere) TableState(int) []optim.State                           { return nil }

// leave ends the replica's part in its servers' job, in good order.
func (r *Replica) leave() error {
	if r.remote == nil {
		return nil
	}
	return r.remote.Leave(context.Background())
}

// disconnect is Close's part.
func (r *Replica) disconnect() {
	if r.remote != nil {
		r.remote.Abandon()
		if r.remote.alone != nil {
			_ = r.remote.alone.Close()
		}
	}
}
