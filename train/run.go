// Package train is the loop: epochs over a data set, evaluation, and what is
// told about them.
package train

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
)

// run is one rank's side of a run.
type run struct {
	job   *ringo.Job
	cfg   Config
	obs   Observer
	spec  model.Spec
	set   *data.Dataset
	peers communicator
	// opened is the set that this run has opened; nil: it was given.
	opened *data.Dataset
	// workers are at least one, and replica is that of the first.
	workers []*trainerThread
	replica *Replica

	// order are this rank's batches of training.
	order batches
	// shard is this rank's part of the evaluation set, and sharers are the ranks that have one each.
	shard     *data.Loader
	evalRanks []int
	// samples is how many samples of training all ranks have, and steps how many steps each has in an epoch.
	samples, steps int
	// parts are the ranks' parts of the training set, where it is not streamed, and all are the
	// ranks of the job.
	parts       []data.SamplerConfig
	all         []int
	fingerprint [sha256.Size]byte
	shares      dataPartition
	// description is JSON of what the data are, which the model was built for.
	description string
	past        runHistory
	// first is the loss of this rank's first step, recent that of its last; blown says that a
	// person was told that losses blow up.
	first, recent      float64
	divergenceReported bool
	skipTold           bool
	room               diskState
	// finishing is the checkpoint that comes to the disk meanwhile; nil: none.
	finishing *pendingCheckpoint
	// scores are the last ones of a click model; nil: it has none.
	scores *lastScores
	// found is the checkpoint that the run goes on from, and resumed its file; "": there is none.
	found   checkpointInfo
	resumed string
	// hold is that of the folder of checkpoints, on rank 0.
	hold    *checkpoint.Hold
	started time.Time
	// payload0 and wire0 are the traffic that was counted.
	payload0, wire0 int64
	// stepS are the seconds of each step of the epoch.
	stepS []float64
	// residual is when the norm of what compression keeps was last told.
	residual time.Time
	// position is where the run is, for errors.
	position StepError
	// layers are those of the epoch's last step, if they are asked for.
	layers []Layer
	stops  *ringo.Stopper
	// initial is what rank 0 tells of the values that parameters began with.
	initial []string
	// loop says that the loop is a Loop's, and the data are nobody's business.
	loop bool
	// ctx is Run's, whose end ends the run.
	ctx context.Context
	// ended is why the run ends before its last epoch, the same on all ranks; "": it does not. cut says that it does in the middle of an
	// epoch, and wantsStop that a callback of this rank has asked for it.
	ended          string
	cut, wantsStop bool
	// saved is where in the run the last checkpoint was taken.
	saved epochStep
}

// Run trains a model on every rank of the job and returns the summary, equal
// on all of them. It is a collective call: every rank makes it with the same
// configuration, which is checked, and the same data.
//
// The model is one of the zoo or one's own; its Spec may leave out the shape of the samples, which
// is then the data's. The set is one's own, such as &data.Dataset{Train: …, Eval: …}; nil: the one
// that cfg.Data and its neighbours name. The end of ctx ends the run between two steps, with an
// error.
//
// The ranks' parameters are compared at the end; if they differ that is an error, because replicas
// that drift apart train nothing. In a heter-trainer (ringo.Job.HeterTrainer) it computes the
// model's part, needs no set, and returns ringo.ErrHeterTrainerDone when all ranks have left.
func Run(ctx context.Context, job *ringo.Job, m model.Spec, set *data.Dataset, cfg Config) (Summary, error) {
	if job.HeterTrainer() != nil {
		return Summary{}, runHeterTrainer(ctx, job, m, cfg)
	}
	cfg, err := cfg.of(job, m, set)
	if err != nil {
		return Summary{}, err
	}
	return runOn(ctx, job, cfg, set)
}

// of is the configuration of a run of a model on a set that may be given.
func (c Config) of(job *ringo.Job, m model.Spec, set *data.Dataset) (Config, error) {
	if c.Model = m; set != nil {
		if set.Train == nil && len(set.Files) == 0 || set.Eval == nil {
			return c, errors.New("train: the data set needs samples to train on and to evaluate: data.Split makes two of one")
		}
		c.given, c.Model = true, shaped(m, set.Eval.Shape())
	}
	return c.on(job), nil
}

// shaped is a model with the shape of a set's samples, if it has none of its own or takes any.
func shaped(m model.Spec, s data.Shape) model.Spec {
	if m.AnyShape || m.Input == nil && m.IDs == 0 && m.Labels == 0 && m.Targets == 0 {
		if m.AnyShape && s.Targets > 0 {
			m.Task = model.Regress
		}
		m.Input, m.IDs, m.Labels, m.Targets = s.Values, s.IDs, s.Labels, s.Targets
	}
	if m.AnySlots && len(s.Slots) > 0 {
		m.Input, m.Slots, m.IDs = s.Values, slotsOf(s.Slots), 0
	}
	if v := s.Values; m.AnySize && len(v) == 3 && v[2] == m.Input[2] {
		m.Input = v
	}
	return m
}

// slotsOf are a set's slots as a model knows them.
func slotsOf(slots []data.Slot) (out []model.Slot) {
	for _, s := range slots {
		out = append(out, model.Slot(s))
	}
	return out
}

func hasSequence(slots []model.Slot) bool {
	return slices.ContainsFunc(slots, func(s model.Slot) bool { return s.Sequence })
}

// runOn is Run of a settled configuration, on a set that was opened before, or nil.
func runOn(ctx context.Context, job *ringo.Job, cfg Config, set *data.Dataset) (sum Summary, err error) {
	if err := cfg.Validate(); err != nil {
		return Summary{}, err
	}
	r := &run{ctx: ctx, job: job, cfg: cfg, obs: cfg.Observer, set: set, started: time.Now()}
	defer r.close()
	defer func() { err = r.located(err) }()
	r.setPosition("preparing", 0, 0)
	if err := r.prepare(); err != nil {
		return Summary{}, err
	}
	at := position{epoch: 1, tally: r.newTally()}
	if cfg.Checkpoint.Resume {
		var err error
		if at, err = r.resume(); err != nil {
			return Summary{}, err
		}
	}
	r.stoppable(at)
	r.obs.Start(r.info())
	now := r.job.Traffic() // of what came before, such as another seed's run
	r.payload0, r.wire0 = now.PayloadSent, now.WireSent
	r.ended = r.exhausted(at.epoch - 1)
	for at.epoch <= cfg.Epochs && r.ended == "" {
		if err := r.epoch(&at); stopped(err) {
			return Summary{}, r.leaveStopped(err)
		} else if err != nil {
			return Summary{}, err
		}
	}
	if err := r.replica.Tuner.End(); err != nil {
		return Summary{}, err
	}
	r.setPosition("comparing the replicas", cfg.Epochs, r.steps)
	if sum, err = r.summary(); err != nil {
		return Summary{}, err
	}
	sum.Stages, sum.RowCache = r.replica.split.total(), r.rowCache()
	r.setPosition("leaving the servers", cfg.Epochs, r.steps)
	err = r.replica.params.leave()
	r.setPosition("judging the losses", cfg.Epochs, r.steps)
	if why := divergedBy(r.past.Start, r.past.Last.TrainLoss, r.past.Last.EvalLoss); err == nil && why != "" {
		err = fmt.Errorf("training has diverged: %s: %s", why, r.lowerRate())
	}
	return sum, err
}

// prepare does everything before the first step.
func (r *run) prepare() (err error) {
	r.spec = r.cfg.Model
	r.peers = peersOf(r.job)
	if err := errors.Join(r.peers.validate(r.cfg), r.cfg.canSave()); err != nil {
		return err
	}
	if err := r.peers.whenConnected(r.agreeConfig); err != nil {
		return err
	}
	if err := r.takeFolder(); err != nil {
		return err
	}
	if r.set == nil {
		if err := r.cfg.follow(r.job); err != nil {
			return err
		}
	}
	if err := r.openData(true); err != nil {
		return err
	}
	r.prepares("building the model")
	opts, place := r.options(), r.cfg.placement(r.peers)
	if err := r.add(r.cfg, opts, place); err != nil {
		return err
	}
	if err := errors.Join(r.checkBest(), r.beginScores()); err != nil {
		return err
	}
	if err := r.openLoaders(); err != nil {
		return err
	}
	if err := r.find(); err != nil {
		return fmt.Errorf("resuming: %w", err)
	}
	return r.begin(opts, place)
}

// options are what the model takes from the data.
func (r *run) options() model.Options {
	return optionsOf(r.spec, r.set.Classes, r.set.Vocabulary, r.set.Rows)
}

// openData opens the data set to train and evaluate on, or to evaluate on only. It is the same on
// all ranks.
func (r *run) openData(train bool) (err error) {
	if r.set == nil {
		r.prepares("loading the data")
		cfg := r.cfg
		if cfg.Partition == PartitionFixed && !r.job.ServersOnly() {
			cfg.gather = r.peers.gather
		}
		if r.set, err = openSet(cfg); err != nil {
			return err
		}
		r.opened = r.set
	}
	own := r.cfg.Model.Slots
	r.cfg.Model = shaped(r.cfg.Model, r.set.Eval.Shape())
	r.spec = r.cfg.Model
	if hasSequence(own) && !hasSequence(r.spec.Slots) {
		return fmt.Errorf("model %s attends to a sequence of keys, and samples of data set %s have none: use data with one, or another model", r.spec.Name, r.set.Name)
	}
	if hasSequence(own) && r.spec.Slots[0].Sequence {
		return fmt.Errorf("model %s weighs a sequence of keys by the slot before it, and none is before %q of data set %s: put one there, as the layout movielens does", r.spec.Name, r.spec.Slots[0].Name, r.set.Name)
	}
	if err := errors.Join(r.checkShapes(), r.verifyData(train)); err != nil {
		return err
	}
	if err := r.describe(); err != nil {
		return err
	}
	r.fingerprint, r.shares = r.set.Fingerprint(), dataPartition{train: lengthOf(r.set.Train), eval: r.set.Eval.Len(), left: r.set.LeftOut()}
	if r.cfg.Partition == PartitionFixed && !r.job.ServersOnly() {
		return r.agreeShares()
	}
	return r.peers.whenConnected(r.agreeData)
}

// add builds the replica of one worker more.
func (r *run) add(cfg Config, opts model.Options, place func(*Replica) paramPlacement) error {
	m, err := build(r.job, cfg, opts, place, len(r.workers))
	if err != nil {
		return err
	}
	r.workers = append(r.workers, &trainerThread{replica: m})
	r.replica = r.workers[0].replica
	return nil
}

// begin makes the replicas of all workers ready to train.
func (r *run) begin(opts model.Options, place func(*Replica) paramPlacement) error {
	cfg, done := r.cfg, r.found.Epoch*r.steps+r.found.Done
	at := beginning{step: r.found.Step, rate: cfg.schedule().At(done, max(1, r.steps), cfg.Epochs)}
	if cfg.Checkpoint.Dir != "" {
		at.job = JobName(cfg.Servers.Start, at.step)
	}
	if r.found.File == "" {
		var err error
		if r.initial, err = r.replica.initParams(cfg); err != nil {
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
		if err := r.workers[i].replica.begin(cfg, at); err != nil {
			return err
		}
	}
	r.copyUntrained()
	return nil
}

// openSet opens the data set of a model.
func openSet(cfg Config) (*data.Dataset, error) {
	return data.Open(cfg.setName(), cfg.dataOf())
}

// checkShapes reports a data set that is not for the model.
func (r *run) checkShapes() error {
	want := data.Shape{Values: r.spec.Input, IDs: r.spec.IDs, Labels: r.spec.LabelsEach(), Targets: r.spec.Targets}
	for _, src := range []data.Source{r.set.Train, r.set.Eval} {
		if src == nil {
			continue // it is streamed, in the shape of the other
		}
		if s := src.Shape(); s.Size() != want.Size() || s.IDs != want.IDs || s.Labels != want.Labels || s.Targets != want.Targets || !slices.Equal(slotsOf(s.Slots), r.spec.Slots) {
			return fmt.Errorf("samples of data set %s have %v values, %d ids, %d slots, %d labels and %d targets, but model %s takes %v, %d, %d, %d and %d",
				r.set.Name, s.Values, s.IDs, len(s.Slots), s.Labels, s.Targets, r.spec.Name, want.Values, want.IDs, len(r.spec.Slots), want.Labels, want.Targets)
		}
	}
	return nil
}

// loaders is what the loaders of a rank of so many have in common.
func (r *run) loaders(rank, size int) (data.LoaderConfig, data.SamplerConfig) {
	stateful := r.replica.model.State != nil
	return data.LoaderConfig{Seed: r.cfg.Seed, Workers: r.cfg.Threads},
		data.SamplerConfig{Batch: r.cfg.Batch, Rank: rank, Size: size, Seed: r.cfg.Seed, Streams: stateful && r.set.Streams, Fixed: r.cfg.Partition == PartitionFixed}
}

// openLoaders finds this rank's shards.
func (r *run) openLoaders() error {
	if r.replica.model.State != nil && r.cfg.Servers.threads() > 1 {
		return fmt.Errorf("model %s carries state from batch to batch: it cannot train on %d threads at once", r.spec.Name, r.cfg.Servers.threads())
	}
	group := r.shares.among(collective.Ranks(r.job.Size()))
	loader, sampler := r.loaders(slices.Index(group, r.job.Rank()), len(group))
	loader.Augment, sampler.Most = true, r.shares.steps
	if err := r.openTraining(loader, sampler); err != nil {
		return fmt.Errorf("training set: %w", err)
	}
	if err := r.partitionEval(r.peers.liveRanks()); err != nil {
		return err
	}
	if s, ok := r.order.(*streamed); ok {
		return r.peers.whenConnected(func() error { return r.agreeSteps(s) })
	}
	return r.countSteps()
}

// partitionEval makes this rank's part of the evaluation set the one that it has among those of
// some ranks that have the set.
func (r *run) partitionEval(there []int) error {
	ranks := r.shares.among(there)
	if slices.Equal(ranks, r.evalRanks) {
		return nil
	}
	if err := r.openPart(slices.Index(ranks, r.job.Rank()), len(ranks)); err != nil {
		return err
	}
	r.evalRanks = ranks
	return nil
}

func newLoader(cfg data.LoaderConfig, sampler data.SamplerConfig) (l *data.Loader, err error) {
	if cfg.Sampler, err = data.NewSampler(sampler); err != nil {
		return nil, err
	}
	return data.NewLoader(cfg)
}

func (r *run) close() {
	if r.order != nil {
		r.order.Close()
	}
	if r.shard != nil {
		r.shard.Close()
	}
	if r.opened != nil {
		_ = r.opened.Close() // it was only read
	}
	for _, w := range slices.Backward(r.workers) {
		w.replica.Close()
	}
	if r.found.file != nil {
		_ = r.found.file.Close() // it was only read
	}
	if r.finishing != nil {
		<-r.finishing.done // a run that has ended well has saved once more since
	}
	_ = r.hold.Release() // it ends with the process in any case
}

// agreeData reports ranks that read other data.
func (r *run) agreeData() error {
	return r.sameOnAll(r.fingerprint[:], "data set", "give all hosts the same files")
}

// sameOnAll compares a hash over the ranks.
func (r *run) sameOnAll(own []byte, what, hint string) error {
	all, err := r.peers.gather(own)
	if err != nil {
		return fmt.Errorf("comparing the ranks' %s: %w", what, err)
	}
	for rank, theirs := range all {
		if theirs != nil && !slices.Equal(theirs, all[0]) {
			return fmt.Errorf("the %s of rank %d (sha256 %.4x…) differ from those of rank 0 (%.4x…): %s", what, rank, theirs, all[0], hint)
		}
	}
	return nil
}

// lost are the ranks that are not there any more.
func (r *run) lost() (out []int) {
	there := r.peers.liveRanks()
	for rank := range r.job.Size() {
		if !slices.Contains(there, rank) {
			out = append(out, rank)
		}
	}
	return out
}

func (r *run) accumulation() int { return max(1, r.cfg.Exchange.Accumulation) }
