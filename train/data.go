package train

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/model"
)

// runData is the part of a run with the samples: training batches, the evaluation set, and their
// division among ranks.
type runData struct {
	*runEnv
	set      *data.Dataset
	opened   *data.Dataset // set, if this run opened it and closes it
	openedAs keptSet

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
		return fmt.Errorf("model %s needs a sequence of keys, and samples of data set %s have none: use other data or another model", d.spec.Name, d.set.Name)
	}
	if hasSequence(own) && d.spec.Slots[0].Sequence {
		return fmt.Errorf("model %s weighs a sequence of keys by the slot before the sequence, but %q is the first slot of data set %s: put a slot before it, as in the layout movielens", d.spec.Name, d.spec.Slots[0].Name, d.set.Name)
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

// agreeData returns an error if ranks have different data.
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
	group := d.shares.amongSharers(collective.Ranks(d.virtual()))
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

// partitionEval divides the evaluation set among those ranks in `there` that have this rank's set,
// and opens this rank's part.
func (d *runData) partitionEval(there []int) error {
	ranks := d.shares.amongSharers(there)
	if slices.Equal(ranks, d.evalRanks) {
		return nil
	}
	if d.cfg.Workers > 0 { // evaluate opens the parts
		d.evalRanks = ranks
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

// shaped returns m with the shape of a set's samples, if m has no shape or accepts any.
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

// The last step of an epoch has the remaining samples, which can differ in number between ranks.
// The loss of a batch is multiplied by the batch's share of the step, so that an update always uses
// the mean over the samples of the step.

// openTraining opens the training batches. On an error it sets none.
func (d *runData) openTraining(loader data.LoaderConfig, sampler data.SamplerConfig) error {
	if d.cfg.Stream {
		s, err := d.openStream()
		if err != nil {
			return err
		}
		d.order = s
		return nil
	}
	d.samples = d.shares.train
	loader.Source, sampler.N = d.set.Train, d.set.Train.Len()
	if d.parts = d.shares.parts; d.parts == nil {
		d.parts = make([]data.SamplerConfig, d.virtual())
		partsOf(sampler, d.ranks(), d.parts)
	}
	for i := range d.parts {
		d.parts[i].Batch, d.parts[i].Streams, d.parts[i].Most = sampler.Batch, sampler.Streams, sampler.Most
	}
	if d.cfg.Workers > 0 {
		order, err := d.openWorkers(loader, sampler)
		if err == nil {
			d.order = order
		}
		return err
	}
	l, err := newLoader(loader, sampler)
	if err != nil {
		return err
	}
	d.order = l
	return nil
}

func (d *runData) countSteps() error {
	k := d.accumulation()
	if d.steps = (d.order.Steps() + k - 1) / k; d.least(k+1) < k*d.cfg.Batch {
		n, np, each := d.samples, d.virtual(), "rank"
		if d.cfg.Workers > 0 {
			each = "virtual worker"
		}
		return fmt.Errorf("%s on %s: %d per %s, less than the %d of one step: use fewer %ss or a smaller batch",
			quantity.Count(n, "training sample"), quantity.Count(np, each), n/np, each, d.cfg.Batch*d.accumulation(), each)
	}
	if text := d.omits(); text != "" {
		d.shares.notes = append(d.shares.notes, text)
	}
	return nil
}

// partsOf sets in parts the configuration of each of ranks, given that these divide one set.
func partsOf(of data.SamplerConfig, ranks []int, parts []data.SamplerConfig) {
	of.Size = len(ranks)
	for of.Rank = range ranks {
		parts[ranks[of.Rank]] = of
	}
}

// lr returns the learning rate of a step, from 0, of an epoch, from 1.
func (d *runData) lr(epoch, step int) float64 {
	return d.cfg.schedule().At((epoch-1)*d.steps+step, d.steps, d.cfg.Epochs)
}

// batchOf returns the number of samples in a rank's training batch of an epoch, counted from 0.
func (d *runData) batchOf(rank, batch int) int {
	if s, ok := d.order.(*streamed); ok {
		return int(min(max(s.each[rank]-int64(batch)*int64(d.cfg.Batch), 0), int64(d.cfg.Batch)))
	}
	return d.parts[rank].Samples(batch)
}

// span returns the batches [lo, hi) of a step of an epoch.
func (d *runData) span(step int) (lo, hi int) {
	k := d.accumulation()
	return step * k, min((step+1)*k, d.order.Steps())
}

// stepSamples returns the number of samples of ranks in a step of an epoch.
func (d *runData) stepSamples(step int, ranks ...int) (n int) {
	lo, hi := d.span(step)
	if hi < d.order.Steps()-1 { // all are full
		return (hi - lo) * d.cfg.Batch * len(ranks)
	}
	for _, rank := range ranks {
		for batch := lo; batch < hi; batch++ {
			n += d.batchOf(rank, batch)
		}
	}
	return n
}

// least returns the lowest number of samples of a rank in the first n batches of an epoch.
func (d *runData) least(n int) int {
	least := n * d.cfg.Batch
	for _, rank := range d.ranks() {
		own := 0
		for batch := range min(n, d.order.Steps()) {
			own += d.batchOf(rank, batch)
		}
		least = min(least, own)
	}
	return least
}

// spared returns the number of batches by which an epoch's last step is shorter than its first.
func (d *runData) spared() uint64 {
	if d.order == nil { // a Loop has no epochs
		return 0
	}
	return uint64(d.steps*d.accumulation() - d.order.Steps())
}

// shareOf returns the factor of the loss of a batch of n samples. It is 1 if all batches of the
// step are full, or if each rank pushes the mean of its batches independently.
func (d *runData) shareOf(step, n int) float32 {
	if !d.together() {
		lo, hi := d.span(step)
		return float32(d.accumulation()) / float32(hi-lo)
	}
	return float32(float64(n*d.accumulation()*d.virtual()) / float64(d.stepSamples(step, d.ranks()...)))
}

// omitted returns the number of training samples, of all ranks, that are in no step of an epoch.
func (d *runData) omitted() int {
	n := d.samples
	for step := range d.steps {
		n -= d.stepSamples(step, d.ranks()...)
	}
	return n
}

// omits returns a line about omitted samples; "" without any.
func (d *runData) omits() string {
	n := d.omitted()
	if n == 0 {
		return ""
	}
	why := "all ranks make as many steps as the rank with the fewest samples"
	switch {
	case d.replica.model.State != nil && d.set.Streams:
		why = fmt.Sprintf("%d streams of equal length, which carry the model's state from step to step", d.cfg.Batch*d.virtual())
	case d.cfg.Batch == 1 && d.order.Steps() == d.samples/d.virtual():
		why = "with a batch of 1 the ranks share them equally"
	}
	return fmt.Sprintf("each epoch omits %d of %d training samples: %s", n, d.samples, why)
}
