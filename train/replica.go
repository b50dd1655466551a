package train

import (
	"fmt"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/trace"
	"github.com/ringo-ml/ringo/tune"
)

// Replica is one rank's copy of a model, with the optimizer that keeps it equal
// to the others'.
type Replica struct {
	Spec   models.Spec
	Params *nn.Params
	Opt    *distopt.Optimizer
	Tuner  *tune.Tuner // beside Opt: what a step's gradients go by, if it is chosen

	rule    *optim.Shared // within Opt
	model   models.Model
	job     *ringo.Job
	group   *collective.Group
	peers   peers
	tape    *nn.Tape
	kernels *simd.Kernels
	trace   *trace.Recorder
	x       nn.Tensor // the last batch's values
	seed    uint64
	passes  uint64  // backwards so far
	begun   bool    // a step of several backwards
	remote  *remote // nil: parameters lie here

	thread  int        // which of its rank's that train at once
	threads int        // how many they are
	mates   []*Replica // those of the other threads, of the first one's
}

// NewReplica builds the model that cfg names, with the initial parameters of
// rank 0. opts is what the data set says of it. Gradients go through the job's
// servers, if it has any. It is a collective call.
//
// Its gradients and parameters lie in the memory that the ranks of a host share, if they do:
// replicas of one job are closed in the opposite order of their making, or their
// memory stays in use until the job ends.
func NewReplica(job *ringo.Job, cfg Config, opts models.Options) (*Replica, error) {
	r, err := build(job, cfg, opts)
	if err != nil {
		return nil, err
	}
	if err := r.begin(cfg, beginning{rate: cfg.LR}, nil); err != nil {
		return nil, err
	}
	return r, nil
}

// build makes a replica that cannot train yet: begin must follow.
func build(job *ringo.Job, cfg Config, opts models.Options) (*Replica, error) {
	spec, err := cfg.spec()
	if err != nil {
		return nil, err
	}
	if job.Reducer() != nil && cfg.Exchange.Strategy == distopt.PartialUpdate {
		return nil, fmt.Errorf("strategy %s averages parameters among the ranks, which leaves nothing to the job's %d servers: use another strategy, or none", distopt.PartialUpdate, job.Servers())
	}
	opts.Batch, opts.Dropout = cfg.Batch, cfg.Dropout
	r := &Replica{Spec: spec, Params: nn.NewParams(cfg.Seed), kernels: simd.Host(), job: job, group: job.Group(), peers: peersOf(job), seed: cfg.Seed, trace: cfg.Exchange.Trace, threads: cfg.Servers.threads()}
	away := cfg.Servers.Consistency != ""
	if away {
		r.Params.TablesElsewhere()
	}
	r.model = spec.Build(r.Params, opts)
	if !away {
		r.Params.ArenasFrom(job.Alloc)
	}
	if err := r.arrange(); err != nil {
		r.Params.Release(job.Free)
		return nil, fmt.Errorf("model %s: %w", cfg.Model, err)
	}
	return r, nil
}

// beginning is where a replica begins.
type beginning struct {
	step int64   // how many were done before, of the run
	rate float64 // of the first step
	job  string  // what servers call it
}

// begin gives a replica its optimizer, and where parameters lie on servers connects it, with the
// connections of the lead, if there is one. It is a collective call. After
// an error the replica is closed.
func (r *Replica) begin(cfg Config, at beginning, lead *Replica) (err error) {
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	g, away := r.group, cfg.Servers.Consistency != ""
	if reducer := r.job.Reducer(); reducer != nil {
		cfg.Exchange.Reducer = reducer
	}
	rule := cfg.newOptimizer(r.Params)
	if away && cfg.Servers.geoSteps() == 0 {
		rule = &elsewhere{name: cfg.Optimizer}
	}
	threads := max(1, cfg.Threads/r.threads)
	if r.rule, err = optim.NewShared(rule, threads); err != nil {
		return err
	}
	var tables []distopt.Table
	if away {
		if err := r.connect(cfg, at, lead); err != nil {
			return err
		}
		if g = r.remote.alone; cfg.Servers.geoSteps() == 0 {
			cfg.Exchange.Reducer = r.remote
		}
	} else {
		for _, t := range r.Params.Tables() {
			tables = append(tables, distopt.Table{Name: t.Name, Rows: t.Rows, Dim: t.Dim, Data: t.Data})
		}
	}
	r.tape = nn.NewTape(nn.TapeConfig{Kernels: r.kernels, Threads: threads})
	if cfg.Exchange.Update == "" && threads > g.Size() {
		cfg.Exchange.Update = distopt.UpdateWhole // a shared one has a thread of each rank, a whole one all of this one's
	}
	cfg.Exchange.Pool = r.tape // idle while gradients are selected from
	r.Opt, err = distopt.New(g, r.rule, layersOf(r.Params), r.Params.Values(), r.Params.Grads(), tables, cfg.tuning().Base())
	if err != nil {
		return err
	}
	if err = r.Opt.Broadcast(); err == nil {
		r.Tuner, err = r.newTuner(cfg, g)
	}
	return err
}

// layersOf returns the arena's slots as the layers that a plan is made of.
func layersOf(ps *nn.Params) []bucket.Layer {
	slots := ps.Slots()
	layers := make([]bucket.Layer, len(slots))
	for i, s := range slots {
		layers[i] = bucket.Layer{Name: s.Name, Offset: s.Offset, Len: s.Padded, Pad: s.Padded - s.Len}
	}
	return layers
}

// arrange runs one pass over one sample of zeros, which shows the order in which
// gradients become final. Running statistics and carried state do not keep it.
func (r *Replica) arrange() error {
	var before [][]float32
	for _, b := range r.Params.BufferList() {
		before = append(before, append([]float32(nil), b.Data...))
	}
	var one data.Batch
	one.Resize(r.shape(), 1)
	clear(one.Values)
	clear(one.IDs)
	clear(one.Labels)
	err := r.Params.Arrange(func(t *nn.Tape) *nn.Tensor {
		loss, _ := r.model.Loss(t, r.Batch(&one))
		return loss
	})
	for i, b := range r.Params.BufferList() {
		copy(b.Data, before[i])
	}
	r.ResetState()
	return err
}

// shape is that of the model's samples.
func (r *Replica) shape() data.Shape {
	return data.Shape{Values: r.Spec.Input, IDs: r.Spec.IDs, Labels: max(1, r.Spec.Labels)}
}

// Batch is b as the model sees it: the same memory. It is good until the next
// call.
func (r *Replica) Batch(b *data.Batch) models.Batch {
	out := models.Batch{N: b.N, IDs: b.IDs, Labels: b.Labels}
	if len(r.Spec.Input) > 0 {
		r.x.Shape, r.x.Data = append(append(r.x.Shape[:0], b.N), r.Spec.Input...), b.Values
		out.Values = &r.x
	}
	return out
}

// Result is what a batch was like.
type Result struct {
	models.Outcome
	Loss float64 // mean over Count
}

// Backward runs the model over a batch and adds to the gradients. With last,
// it is the step's last backward: each gradient is handed to the optimizer as
// soon as it is final. An error is one of the servers that parameters lie on.
func (r *Replica) Backward(b models.Batch, last bool) (res Result, err error) {
	if r.remote != nil {
		if b.IDs, err = r.fetch(b.IDs, true); err != nil {
			return res, err
		}
	}
	if !r.begun {
		r.Opt.BeginForward()
	}
	r.begun = !last
	r.tape.Reset()
	r.tape.SetSeed(mix(mix(r.seed, uint64(r.job.Rank()*r.threads+r.thread)), r.passes))
	r.passes++
	start := r.trace.Now()
	loss, out := r.model.Loss(r.tape, b)
	res = Result{Outcome: out, Loss: float64(loss.Data[0])}
	middle := r.trace.Now()
	r.trace.Span(trace.Forward, "forward", start, middle)
	if !last {
		r.tape.Backward(loss, nil)
		r.trace.Span(trace.Backward, "backward", middle, r.trace.Now())
		return res, nil
	}
	r.Opt.BeginBackward()
	r.tape.Backward(loss, r.Opt.GradReady)
	r.trace.Span(trace.Backward, "backward", middle, r.trace.Now())
	for i, t := range r.Params.Tables() {
		ids, rows := t.Grad()
		if r.remote == nil {
			r.Opt.RowsReady(i, ids, rows)
		} else if err = r.remote.push(ids, rows, b); err != nil {
			return res, err
		}
	}
	return res, nil
}

// mix is a hash of two numbers: one round of SplitMix64 (Steele, Lea and Flood
// 2014) from each.
func mix(a, b uint64) uint64 {
	z := a + 0x9e3779b97f4a7c15*(b+1)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Step ends a step: it waits for the agreed gradients and updates.
func (r *Replica) Step() error {
	err := r.Tuner.Step()
	if err == nil && r.remote != nil {
		err = r.remote.End(r.remote.next)
	}
	return err
}

// SetLR sets the learning rate of the step under way, and that of the one after it, which servers
// are told at its end.
func (r *Replica) SetLR(lr, next float64) {
	r.rule.SetLR(lr)
	if r.remote != nil {
		r.remote.SetRate(lr)
		r.remote.next = next
	}
}

// Evaluate runs the model over a batch without recording it for backward. An error is one
// of the servers that parameters lie on.
func (r *Replica) Evaluate(b models.Batch) (res Result, err error) {
	if r.remote != nil {
		if b.IDs, err = r.fetch(b.IDs, false); err != nil {
			return res, err
		}
	}
	r.tape.ResetEval()
	loss, out := r.model.Loss(r.tape, b)
	return Result{Outcome: out, Loss: float64(loss.Data[0])}, nil
}

// ResetState makes a model that carries state start anew, as before a pass over
// the data.
func (r *Replica) ResetState() {
	if m, ok := r.model.(models.Stateful); ok {
		m.ResetState()
	}
}

// state is what a model carries from batch to batch; nil for most.
func (r *Replica) state() [][]float32 {
	if m, ok := r.model.(models.Stateful); ok {
		return m.State()
	}
	return nil
}

// Sync makes the replicas equal before they are evaluated, compared or saved:
// parameters where the strategy lets them differ, and running statistics, which
// become the mean over ranks. It is a collective call.
func (r *Replica) Sync() error {
	sync := r.Opt.Sync
	if r.remote != nil {
		sync = r.settle
	}
	if err := sync(); err != nil {
		return err
	}
	own := r.Params.Buffers()
	for _, m := range r.mates {
		r.kernels.Add(own, m.Params.Buffers())
	}
	for i := range own {
		own[i] /= float32(1 + len(r.mates))
	}
	if err := collective.AllReduce(r.group, own, collective.Mean); err != nil {
		return fmt.Errorf("averaging the running statistics: %w", err)
	}
	for _, m := range r.mates {
		copy(m.Params.Buffers(), own)
	}
	return nil
}

// Kernels names the instruction-set level of the kernels in use.
func (r *Replica) Kernels() string { return r.kernels.Name() }

// Close ends the replica's threads and exchange and gives the memory of its
// gradients and parameters back, which are then zeros where ranks share it.
func (r *Replica) Close() {
	for _, m := range r.mates {
		m.Close()
	}
	if r.tape != nil {
		r.tape.Close()
	}
	if r.Opt != nil {
		_ = r.Opt.Close() // a fault of the exchange was told by Step
	}
	r.disconnect()
	if r.rule != nil {
		r.rule.Close()
	}
	r.Params.Release(r.job.Free)
}
