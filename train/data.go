package train

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
)

// runData is the part of a run with the samples: training batches, the evaluation set, and their
// division among ranks.
type runData struct {
	*runEnv
	set    *data.Dataset
	opened *data.Dataset // set, if this run opened it and closes it

	order          batches      // batches of this rank to train on
	shard          *data.Loader // this rank's part of the evaluation set
	evalRanks      []int        // ranks with one part each
	samples, steps int          // training samples of all ranks; steps of an epoch on each rank
	// parts are the ranks' parts of the training set, unless the set is streamed.
	parts       []data.SamplerConfig
	fingerprint [sha256.Size]byte
	shares      dataPartition
	notes       []string // lines about the loss
	description string   // JSON of data.Description, for checkpoints
	digest      string   // JSON of data.Digest, for checkpoints; "" without

	earlier     earlierData // of the checkpoint to resume from
	grown       []string    // lines about data that differ from the checkpoint's
	evalChanged bool        // the evaluation samples differ from the checkpoint's
}

func (d *runData) options() model.Options {
	return optionsOf(d.spec, d.set.Classes, d.set.Vocabulary, d.set.Rows)
}

// openData opens the data set to train and evaluate on, or only to evaluate on. All ranks get the
// same set.
func (d *runData) openData(train bool) (err error) {
	if d.set == nil {
		d.prepares("loading the data")
		cfg := d.cfg
		if cfg.Partition == PartitionFixed && !d.job.ServersOnly() {
			cfg.gather = d.peers.gather
		}
		if d.set, err = d.openContinued(cfg); err != nil {
			return err
		}
		d.opened = d.set
	}
	own := d.cfg.Model.Slots
	d.cfg.Model = shaped(d.cfg.Model, d.set.Eval.Shape())
	d.spec = d.cfg.Model
	if hasSequence(own) && !hasSequence(d.spec.Slots) {
		return fmt.Errorf("model %s attends to a sequence of keys, and samples of data set %s have none: use data with one, or another model", d.spec.Name, d.set.Name)
	}
	if hasSequence(own) && d.spec.Slots[0].Sequence {
		return fmt.Errorf("model %s weighs a sequence of keys by the slot before it, and none is before %q of data set %s: put one there, as the layout movielens does", d.spec.Name, d.spec.Slots[0].Name, d.set.Name)
	}
	if err := errors.Join(d.checkShapes(), d.verifyData(train)); err != nil {
		return err
	}
	if err := d.describe(); err != nil {
		return err
	}
	d.fingerprint, d.shares = d.set.Fingerprint(), dataPartition{train: lengthOf(d.set.Train), eval: d.set.Eval.Len(), excluded: d.set.LeftOut()}
	if d.cfg.Partition == PartitionFixed && !d.job.ServersOnly() {
		return d.agreeShares()
	}
	return d.peers.whenConnected(d.agreeData)
}

// agreeData reports ranks with other data.
func (d *runData) agreeData() error {
	return d.sameOnAll(d.fingerprint[:], "data set", "give all hosts the same files")
}

func (d *runData) checkShapes() error {
	want := data.Shape{Values: d.spec.Input, IDs: d.spec.IDs, Labels: d.spec.LabelsEach(), Targets: d.spec.Targets}
	for _, src := range []data.Source{d.set.Train, d.set.Eval} {
		if src == nil {
			continue // a stream has the shape of the evaluation set
		}
		if s := src.Shape(); s.Size() != want.Size() || s.IDs != want.IDs || s.Labels != want.Labels || s.Targets != want.Targets || !slices.Equal(slotsOf(s.Slots), d.spec.Slots) {
			return fmt.Errorf("samples of data set %s have %v values, %d ids, %d slots, %d labels and %d targets, but model %s takes %v, %d, %d, %d and %d",
				d.set.Name, s.Values, s.IDs, len(s.Slots), s.Labels, s.Targets, d.spec.Name, want.Values, want.IDs, len(d.spec.Slots), want.Labels, want.Targets)
		}
	}
	return nil
}

// loaders returns the configuration that all loaders of a rank share.
func (d *runData) loaders(rank, size int) (data.LoaderConfig, data.SamplerConfig) {
	stateful := d.replica.model.State != nil
	return data.LoaderConfig{Seed: d.cfg.Seed, Workers: d.cfg.Threads},
		data.SamplerConfig{Batch: d.cfg.Batch, Rank: rank, Size: size, Seed: d.cfg.Seed, Streams: stateful && d.set.Streams, Fixed: d.cfg.Partition == PartitionFixed}
}

func (d *runData) openLoaders() error {
	if d.replica.model.State != nil && d.cfg.Servers.threads() > 1 {
		return fmt.Errorf("model %s carries state from batch to batch: it cannot train on %d threads at once", d.spec.Name, d.cfg.Servers.threads())
	}
	group := d.shares.amongSharers(collective.Ranks(d.job.Size()))
	loader, sampler := d.loaders(slices.Index(group, d.job.Rank()), len(group))
	loader.Augment, sampler.Most = true, d.shares.steps
	if err := d.openTraining(loader, sampler); err != nil {
		return fmt.Errorf("training set: %w", err)
	}
	if err := d.partitionEval(d.peers.liveRanks()); err != nil {
		return err
	}
	if s, ok := d.order.(*streamed); ok {
		return d.peers.whenConnected(func() error { return d.agreeSteps(s) })
	}
	return d.countSteps()
}

// partitionEval divides the evaluation set among the live ranks that have the set, and opens this
// rank's part.
func (d *runData) partitionEval(there []int) error {
	ranks := d.shares.amongSharers(there)
	if slices.Equal(ranks, d.evalRanks) {
		return nil
	}
	if err := d.openPart(slices.Index(ranks, d.job.Rank()), len(ranks)); err != nil {
		return err
	}
	d.evalRanks = ranks
	return nil
}

func (d *runData) openPart(part, parts int) (err error) {
	if d.shard != nil {
		d.shard.Close()
	}
	loader, sampler := d.loaders(part, parts)
	loader.Source, sampler.N, sampler.Evaluate = d.set.Eval, d.set.Eval.Len(), true
	if d.shard, err = newLoader(loader, sampler); err != nil {
		d.shard = nil
		return fmt.Errorf("evaluation set: %w", err)
	}
	return nil
}

func newLoader(cfg data.LoaderConfig, sampler data.SamplerConfig) (l *data.Loader, err error) {
	if cfg.Sampler, err = data.NewSampler(sampler); err != nil {
		return nil, err
	}
	return data.NewLoader(cfg)
}

func openSet(cfg Config) (*data.Dataset, error) {
	return data.Open(cfg.setName(), cfg.dataOf())
}

// shaped gives a model without a shape, or with any shape, the shape of a set's samples.
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

func slotsOf(slots []data.Slot) (out []model.Slot) {
	for _, s := range slots {
		out = append(out, model.Slot(s))
	}
	return out
}

func hasSequence(slots []model.Slot) bool {
	return slices.ContainsFunc(slots, func(s model.Slot) bool { return s.Sequence })
}
