package train

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// Replica is one rank's copy of a model, with the optimizer that keeps the copies equal.
type Replica struct {
	Spec   model.Spec
	Params *nn.Params
	Opt    *distopt.Optimizer
	// Tuner chooses strategy and plan of Opt, if enabled.
	Tuner *tune.Tuner

	params  paramPlacement
	split   *heterParams // nil if the whole model runs on this rank
	model   model.Model
	learner model.Model // model, with the loss of training
	job     *ringo.Job
	tape    *nn.Tape
	kernels *simd.Kernels
	choice  precisionChoice
	rec     *record.Recorder // nil if another thread of the rank records
	x       nn.Tensor        // last batch's values
	seed    uint64
	// passes counts backward passes.
	passes uint64
	// begun reports whether a step of several backward passes is in progress.
	begun bool
	// skips reports whether steps may be skipped. before has the copies that note has made.
	skips  bool
	before [][]float32
	// stream is the number, in the job, of the replica or of its current virtual worker. It selects
	// the random numbers for dropout.
	stream uint64
	// current is the index of the current one of this rank's virtual workers; aside has the state
	// of the other workers.
	current int
	aside   [][][]float32
}

// NewReplica builds the model of cfg with the initial parameters of rank 0. opts are the model's
// options for the data set. Gradients go through the job's servers, if any. All ranks call it.
//
// Gradients and parameters are in shared memory, if ranks of the host share any: close the replicas
// of one job in reverse order, or their memory stays in use until the job ends.
func NewReplica(job *ringo.Job, cfg Config, opts model.Options) (*Replica, error) {
	r, err := build(job, cfg, opts, placement(cfg, peersOf(job)), 0)
	if err != nil {
		return nil, err
	}
	if _, err = r.initParams(cfg); err == nil {
		err = r.begin(cfg, beginning{rate: cfg.LR})
	}
	if err == nil {
		err = r.shareUntrained()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// build makes a rank's replica with the given number, from 0. Call begin before training.
func build(job *ringo.Job, cfg Config, opts model.Options, place func(*Replica) paramPlacement, number int) (*Replica, error) {
	if job.Reducer() != nil && cfg.Exchange.Strategy == distopt.PartialUpdate {
		return nil, fmt.Errorf("strategy %s averages parameters between ranks, and does not use the job's %d aggregation servers: use another strategy, or no servers", distopt.PartialUpdate, job.Servers())
	}
	kernels, err := cfg.kernels()
	if err != nil {
		return nil, err
	}
	opts.Batch, opts.Dropout = cfg.Batch, cfg.Dropout
	r := &Replica{
		Spec: cfg.Model, Params: nn.NewParams(cfg.Seed), kernels: kernels, job: job, seed: cfg.Seed, skips: cfg.Exchange.NonFinite == "skip",
		stream: uint64(job.Rank()*cfg.Servers.threads() + number),
	}
	if number == 0 {
		r.rec = job.Recorder()
	}
	r.params = place(r)
	r.params.layOut(r.Params)
	r.model = cfg.Model.Build(r.Params, opts)
	if r.learner, err = cfg.trainingModel(r.model); err == nil {
		err = cfg.Start.choose(r.Params, r.Spec.PyTorch)
	}
	if err == nil {
		err = freezeSaved(r.Params, cfg.saved)
	}
	if err == nil && cfg.Heter.Count > 0 {
		err = r.delegate(cfg, opts)
	}
	if err == nil {
		err = errors.Join(cfg.checkTableRules(r.Params.Tables()), r.model.Arrange(r.Params, r.Spec.Sample(1)))
	}
	if err != nil {
		r.Params.Release(job.Free)
		return nil, fmt.Errorf("model %s: %w", cfg.name(), err)
	}
	return r, nil
}

// beginning is the state of a run when a replica begins to train.
type beginning struct {
	step int64   // number of steps of the run
	rate float64 // learning rate of the first step
	job  string  // servers' name of the job
}

// begin makes a replica's optimizer. All ranks call it. After an error only Close may be called.
func (r *Replica) begin(cfg Config, at beginning) error {
	return r.params.begin(cfg, at)
}

// planParams returns the parameters' ranges of the arena for a plan.
func planParams(ps *nn.Params) []bucket.Param {
	slots := ps.Slots()
	layers := make([]bucket.Param, len(slots))
	for i, s := range slots {
		layers[i] = bucket.Param{Name: s.Name, Offset: s.Offset, Len: s.Padded, Pad: s.Padded - s.Len, Shape: s.Shape}
	}
	return layers
}

// Batch returns b for the model, in the same memory. It is valid until the next call.
func (r *Replica) Batch(b *data.Batch) model.Batch {
	out := model.Batch{N: b.N, IDs: b.IDs, Labels: b.Labels, Targets: b.Targets, Bags: nn.Bags{Keys: b.Bags.Keys, Offsets: b.Bags.Offsets, N: b.N}}
	if len(r.Spec.Input) > 0 {
		r.x.Shape, r.x.Data = append(append(r.x.Shape[:0], b.N), r.Spec.Input...), b.Values
		out.Values = &r.x
	}
	return out
}

// Backward runs the model over a batch and adds to the gradients. With last, the step's last
// backward pass, the optimizer exchanges each gradient as soon as it is final. The pass is valid
// until the next call. An error comes from parameter servers. With a loss that is not finite
// Backward computes no gradients, so that no bad values reach other ranks or servers: the run fails
// or, with Exchange.NonFinite "skip", Step applies no update on any rank.
func (r *Replica) Backward(b model.Batch, last bool) (pass model.Pass, err error) {
	if b, err = r.params.fetch(b, true); err != nil {
		return pass, err
	}
	if !r.begun {
		r.Opt.BeginForward()
		r.note()
	}
	r.begun = !last
	seed := mix(mix(r.seed, r.stream), r.passes)
	if r.passes++; r.split != nil {
		pass, err = r.split.backward(b, seed, last)
	} else {
		pass = r.backward(b, seed, last)
	}
	loss := lossOf(pass)
	if err == nil && r.skips && !finite(loss) {
		r.reject(loss, last)
	}
	if err != nil || !last && !r.params.prefetches() || !finite(loss) {
		return pass, err
	}
	for i, t := range r.Params.Tables() {
		ids, rows := t.Grad()
		if err = r.params.rowsReady(i, ids, rows, b.Labels); err != nil {
			return pass, err
		}
	}
	return pass, nil
}

func (r *Replica) backward(b model.Batch, seed uint64, last bool) model.Pass {
	r.tape.Reset()
	r.tape.SetSeed(seed)
	phase := r.rec.BeginPhase(record.Forward, r.rec.Now())
	pass := r.learner.Pass(r.tape, b)
	loss := pass.Loss.Mean
	middle := r.rec.Now()
	phase.End(middle, -1, false)
	if !finite(lossOf(pass)) {
		return pass
	}
	phase = r.rec.BeginPhase(record.Backward, middle)
	if last {
		r.Opt.BeginBackward()
		r.differentiate(loss, b.Share, r.Opt.GradReady)
	} else {
		r.differentiate(loss, b.Share, nil)
	}
	phase.End(r.rec.Now(), -1, false)
	return pass
}

// differentiate runs backward from a batch's loss, weighted by its share of the step; 0 means 1.
func (r *Replica) differentiate(loss *nn.Tensor, share float32, ready func(slot int)) {
	if share == 0 || share == 1 {
		r.tape.Backward(loss, ready)
		return
	}
	r.tape.BackwardFrom([]*nn.Tensor{loss}, [][]float32{{share}}, ready)
}

// mix is a hash of two numbers: one round of SplitMix64 (Steele, Lea and Flood 2014) from each.
func mix(a, b uint64) uint64 {
	z := a + 0x9e3779b97f4a7c15*(b+1)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Step ends a step: it waits for the sums of gradients and updates the parameters. An error of one
// rank ends the steps of all, see distopt.Optimizer.Step. Errors of parameter servers reach other
// ranks by ringo.Run or Job.Fail.
func (r *Replica) Step() error {
	if err := r.Tuner.Step(); err != nil {
		return err
	}
	if r.Opt.Times().Skipped != nil {
		r.restore()
	}
	return r.params.end()
}

// Evaluate runs the model over a batch without recording it for backward. The pass is valid until
// the next call. An error comes from parameter servers.
func (r *Replica) Evaluate(b model.Batch) (pass model.Pass, err error) {
	if b, err = r.params.fetch(b, false); err != nil {
		return pass, err
	}
	if r.split != nil {
		return r.split.evaluate(b)
	}
	r.tape.ResetEval()
	return r.model.Pass(r.tape, b), nil
}

// Forward runs the model over a batch without its loss, as Evaluate does; it ignores labels and
// targets. The outputs are valid until the next call. An error comes from parameter servers.
func (r *Replica) Forward(b model.Batch) (out model.Outputs, err error) {
	if b, err = r.params.fetch(b, false); err != nil {
		return out, err
	}
	r.tape.ResetEval()
	return r.model.Forward(r.tape, b), nil
}

// ResetState sets the model's state between batches to its initial value, as before an epoch.
func (r *Replica) ResetState() { r.model.Reset() }

// Model returns the network.
func (r *Replica) Model() model.Model { return r.model }

// state returns the model's state between batches; nil for most models.
func (r *Replica) state() [][]float32 {
	if r.model.State == nil {
		return nil
	}
	return r.model.State.Slices()
}

// Kernels returns the instruction-set level of the kernels in use.
func (r *Replica) Kernels() string { return r.kernels.Name() }

// Close ends the replica's threads and exchange and releases the memory of gradients and
// parameters, which are then zeros if shared.
func (r *Replica) Close() {
	if r.tape != nil {
		r.tape.Close()
	}
	if r.Opt != nil {
		_ = r.Opt.Close() // Step returned an error of the exchange
	}
	r.params.close()
	r.Params.Release(r.job.Free)
}
