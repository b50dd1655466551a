// Package train trains a model on every rank of a job: epochs over a data set, evaluations,
// checkpoints and reports. [Run] does all of it, [NewLoop] leaves the loop to the caller,
// [Evaluate] and [NewPredictor] use a checkpoint.
//
// The type run has one part per group of files:
//
//   - run_*.go: entry points, the environment that parts share, agreement of the ranks
//   - data*.go: samples, and how ranks divide them
//   - loop*.go: epochs, steps on the threads of a rank, callbacks
//   - save*.go, resume*.go: checkpoints
//   - report*.go: losses, metrics, times, the JSON of events
//   - params*.go: the interface paramPlacement: parameters on ranks, on servers, or saved ones
//   - heter*.go: a part of the model on heter-trainers, a decorator of paramPlacement
//   - init*.go: initial values
//   - config*.go: settings
package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/model"
)

// run is one rank of a run: a shared environment and parts. A part uses only the parts above it.
type run struct {
	*runEnv
	data       *runData    // samples: batches to train on, the evaluation set
	reports    *reports    // losses, metrics and times
	resumption *resumption // the checkpoint that the run begins with
	saver      *saver      // checkpoints that the run writes
	loop       *epochLoop  // epochs, steps, evaluations
}

// newRun returns a run that prepare has not prepared. set may be nil.
func newRun(ctx context.Context, job *ringo.Job, cfg Config, set *data.Dataset) *run {
	return compose(&runEnv{ctx: ctx, job: job, cfg: cfg, obs: cfg.Observer, spec: cfg.Model, peers: peersOf(job), started: time.Now()}, set)
}

func compose(env *runEnv, set *data.Dataset) *run {
	r := &run{runEnv: env, data: &runData{runEnv: env, set: set}}
	r.reports = &reports{runEnv: env, data: r.data}
	r.resumption = &resumption{runEnv: env, data: r.data, reports: r.reports}
	r.saver = &saver{runEnv: env, data: r.data, reports: r.reports, resumption: r.resumption}
	r.loop = &epochLoop{runEnv: env, data: r.data, reports: r.reports, resumption: r.resumption, saver: r.saver, tableWords: epochTableWords}
	return r
}

// Run trains a model on every rank of the job and returns the summary, equal on all ranks. All
// ranks call it with the same configuration, which Run checks, and the same data.
//
// The model is from the zoo or custom; its Spec may omit the shape of the samples, which the data
// then set. The set is custom, such as &data.Dataset{Train: …, Eval: …}, or nil for the set of
// cfg.Data. The end of ctx ends the run between two steps, with an error.
//
// Run compares the ranks' parameters at the end; a difference is an error, because the training is
// then invalid. In a heter-trainer (ringo.Job.HeterTrainer) Run computes the model's part, needs no
// set, and returns ringo.ErrHeterTrainerDone when all ranks have left.
func Run(ctx context.Context, job *ringo.Job, m model.Spec, set *data.Dataset, cfg Config) (Summary, error) {
	if job.HeterTrainer() != nil {
		return Summary{}, runHeterTrainer(ctx, job, m, cfg)
	}
	cfg, err := cfg.forSet(job, m, set)
	if err != nil {
		return Summary{}, err
	}
	return runOn(ctx, job, cfg, set)
}

// forSet returns the configuration of a run of m, on a set or on nil.
func (c Config) forSet(job *ringo.Job, m model.Spec, set *data.Dataset) (Config, error) {
	if c.Model = m; set != nil {
		if set.Train == nil && len(set.Files) == 0 || set.Eval == nil {
			return c, errors.New("train: the data set needs samples to train on and to evaluate: data.Split makes two of one")
		}
		c.hasSet, c.Model = true, shaped(m, set.Eval.Shape())
	}
	return c.on(job), nil
}

// runOn runs a settled configuration on a set that is open, or nil.
func runOn(ctx context.Context, job *ringo.Job, cfg Config, set *data.Dataset) (sum Summary, err error) {
	if err := cfg.Validate(); err != nil {
		return Summary{}, err
	}
	r := newRun(ctx, job, cfg, set)
	defer func() {
		r.keepSet(err)
		r.close()
	}()
	defer func() { err = r.located(err) }()
	r.setPosition("preparing", 0, 0)
	if err := r.prepare(); err != nil {
		return Summary{}, err
	}
	at, err := r.resumption.resume()
	if err != nil {
		return Summary{}, err
	}
	r.loop.stoppable(at)
	if err := r.saver.beginSnapshots(at); err != nil {
		return Summary{}, err
	}
	r.obs.Start(r.info())
	now := r.job.Traffic() // traffic of earlier work, such as another seed's run
	r.reports.payload0, r.reports.wire0 = now.PayloadSent, now.WireSent
	r.ended = r.loop.exhausted(at.epoch - 1)
	for at.epoch <= cfg.Epochs && r.ended == "" {
		if err := r.loop.epoch(&at); stopped(err) {
			return Summary{}, errors.Join(err, r.replica.params.leave())
		} else if err != nil {
			return Summary{}, err
		}
	}
	if err := r.replica.Tuner.End(); err != nil {
		return Summary{}, err
	}
	r.setPosition("comparing the replicas", cfg.Epochs, r.data.steps)
	if sum, err = r.summary(); err != nil {
		return Summary{}, err
	}
	sum.Stages = r.replica.split.total()
	if p, ok := r.replica.params.(interface{ rowCache() *RowCache }); ok && cfg.Servers.CacheBytes > 0 {
		sum.RowCache = p.rowCache()
	}
	r.setPosition("leaving the servers", cfg.Epochs, r.data.steps)
	err = r.replica.params.leave()
	r.setPosition("judging the losses", cfg.Epochs, r.data.steps)
	if why := divergedBy(r.reports.past.Start, r.reports.past.Last.TrainLoss, r.reports.past.Last.EvalLoss); err == nil && why != "" {
		err = fmt.Errorf("training has diverged: %s: %s", why, r.reports.lowerRate())
	}
	return sum, err
}

// enter returns an error if the configuration does not suit the job or differs from other ranks'.
func (r *run) enter() error {
	if err := errors.Join(r.peers.validate(r.cfg), r.cfg.canSave(), r.checkWorkers()); err != nil {
		return err
	}
	return r.peers.whenConnected(r.agreeConfig)
}

// prepare opens the data and builds the replicas, up to the first step.
func (r *run) prepare() error {
	if err := r.enter(); err != nil {
		return err
	}
	if err := r.saver.takeFolder(); err != nil {
		return err
	}
	if r.data.set == nil {
		if err := r.cfg.follow(r.job); err != nil {
			return err
		}
	}
	if err := r.readEarlier(); err != nil {
		return err
	}
	if err := r.data.openData(true); err != nil {
		return err
	}
	if err := errors.Join(r.data.setLoss(), r.data.makeDigest()); err != nil {
		return err
	}
	r.prepares("building the model")
	opts, place := r.data.options(), placement(r.cfg, r.peers)
	if err := r.add(r.cfg, opts, place); err != nil {
		return err
	}
	if err := errors.Join(r.reports.checkBest(), r.reports.beginScores()); err != nil {
		return err
	}
	if err := r.data.openLoaders(); err != nil {
		return err
	}
	if err := r.resumption.find(); err != nil {
		return err
	}
	return r.begin(opts, place)
}

// begin prepares the replicas of all threads for training.
func (r *run) begin(opts model.Options, place func(*Replica) paramPlacement) error {
	cfg, from := r.cfg, r.resumption.found
	at := beginning{step: from.Step, rate: cfg.schedule().At(from.Epoch*r.data.steps+from.Done, max(1, r.data.steps), cfg.Epochs)}
	if cfg.Checkpoint.Dir != "" {
		at.job = JobName(cfg.Servers.Start, at.step)
	}
	if from.File == "" {
		var err error
		if r.reports.initial, err = r.replica.initParams(cfg); err != nil {
			return err
		}
	}
	if err := r.replica.begin(cfg, at); err != nil {
		return err
	}
	if err := r.replica.shareUntrained(); err != nil {
		return err
	}
	for i := 1; i < cfg.Servers.threads(); i++ {
		if err := r.add(cfg, opts, place); err != nil {
			return err
		}
		w := r.workers[i].replica
		w.kernels, w.choice = r.replica.kernels, r.replica.choice
		if err := w.begin(cfg, at); err != nil {
			return err
		}
	}
	r.copyUntrained()
	if cfg.Workers > 0 {
		lo, hi := r.carried(r.job.Rank())
		r.replica.carry(lo, hi-lo)
	}
	r.remarkUnused()
	return nil
}

// remarkUnused reports parameters that no step changes, except by weight decay. It ignores the part
// of the model that heter-trainers compute, which this rank does not record.
func (r *run) remarkUnused() {
	names := r.replica.Params.Unused()
	if len(names) == 0 || r.replica.split != nil {
		return
	}
	shown := names[:min(len(names), 5)]
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	r.remark(0, "%s without a gradient, because the loss does not depend on them: %s: use them in Forward, or leave them out", quantity.Count(len(names), "parameter"), text)
}

func (r *run) close() {
	if r.data.order != nil {
		r.data.order.Close()
	}
	if r.data.shard != nil {
		r.data.shard.Close()
	}
	if r.data.opened != nil {
		_ = r.data.opened.Close() // read only
	}
	for _, w := range slices.Backward(r.workers) {
		w.replica.Close()
	}
	if r.resumption.found.file != nil {
		_ = r.resumption.found.file.Close() // read only
	}
	if r.saver.finishing != nil {
		<-r.saver.finishing.done // a later save has already succeeded, if the run has
	}
	_ = r.saver.hold.Release() // the process's end releases it as well
}
