package train

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// The last step of an epoch has the samples that are left. Ranks have unequal numbers of them, so each batch counts by its share of the
// step: the update is always made with the mean over the samples of the step.

// openTraining opens the training batches. They are set only if that succeeds.
func (r *run) openTraining(loader data.LoaderConfig, sampler data.SamplerConfig) error {
	if r.cfg.Stream {
		s, err := r.openStream()
		if err != nil {
			return err
		}
		r.order = s
		return nil
	}
	r.samples = r.shares.train
	loader.Source, sampler.N = r.set.Train, r.set.Train.Len()
	if r.parts = r.shares.parts; r.parts == nil {
		r.parts = make([]data.SamplerConfig, r.job.Size())
		partsOf(sampler, r.ranks(), r.parts)
	}
	for i := range r.parts {
		r.parts[i].Batch, r.parts[i].Streams, r.parts[i].Most = sampler.Batch, sampler.Streams, sampler.Most
	}
	l, err := newLoader(loader, sampler)
	if err != nil {
		return err
	}
	r.order = l
	return nil
}

// countSteps counts the steps of an epoch.
func (r *run) countSteps() error {
	k := r.accumulation()
	if r.steps = (r.order.Steps() + k - 1) / k; r.least(k+1) < k*r.cfg.Batch {
		n, np := r.samples, r.job.Size()
		return fmt.Errorf("%s on %s: %d per rank, less than the %d of one step: use fewer ranks or a smaller batch",
			quantity.Count(n, "training sample"), quantity.Count(np, "rank"), n/np, r.cfg.Batch*r.accumulation())
	}
	if text := r.omits(); text != "" {
		r.shares.notes = append(r.shares.notes, text)
	}
	return nil
}

// partsOf are the parts of the ranks that share a set: each rank's own, by its configuration.
func partsOf(of data.SamplerConfig, ranks []int, parts []data.SamplerConfig) {
	of.Size = len(ranks)
	for of.Rank = range ranks {
		parts[ranks[of.Rank]] = of
	}
}

// batchOf is the number of samples in a rank's training batch of an epoch, counted from 0.
func (r *run) batchOf(rank, batch int) int {
	if s, ok := r.order.(*streamed); ok {
		return int(min(max(s.each[rank]-int64(batch)*int64(r.cfg.Batch), 0), int64(r.cfg.Batch)))
	}
	return r.parts[rank].Samples(batch)
}

// span returns the batches [lo, hi) of a step of an epoch.
func (r *run) span(step int) (lo, hi int) {
	k := r.accumulation()
	return step * k, min((step+1)*k, r.order.Steps())
}

// stepSamples is the number of samples of ranks in a step of an epoch.
func (r *run) stepSamples(step int, ranks ...int) (n int) {
	lo, hi := r.span(step)
	if hi < r.order.Steps()-1 { // all are full
		return (hi - lo) * r.cfg.Batch * len(ranks)
	}
	for _, rank := range ranks {
		for batch := lo; batch < hi; batch++ {
			n += r.batchOf(rank, batch)
		}
	}
	return n
}

// least is the fewest samples that a rank has in the first n batches of an epoch.
func (r *run) least(n int) int {
	least := n * r.cfg.Batch
	for _, rank := range r.ranks() {
		own := 0
		for batch := range min(n, r.order.Steps()) {
			own += r.batchOf(rank, batch)
		}
		least = min(least, own)
	}
	return least
}

// spared is the number of batches by which the last step of an epoch is shorter than others.
func (r *run) spared() uint64 {
	if r.order == nil { // a Loop has no epochs
		return 0
	}
	return uint64(r.steps*r.accumulation() - r.order.Steps())
}

// shareOf is the factor of the loss of a batch of n samples in a step: 1 where all batches of the step are full, or where ranks push
// gradients independently, each the mean over its own batch.
func (r *run) shareOf(step, n int) float32 {
	if !r.together() {
		return 1
	}
	return float32(float64(n*r.accumulation()*r.job.Size()) / float64(r.stepSamples(step, r.ranks()...)))
}

// together reports whether an update is the mean over all ranks.
func (r *run) together() bool { return slices.Contains([]string{"", "bsp"}, r.cfg.Servers.Consistency) }

// ranks are all ranks of the job.
func (r *run) ranks() []int {
	if len(r.all) == 0 {
		for rank := range r.job.Size() {
			r.all = append(r.all, rank)
		}
	}
	return r.all
}

// omitted is the number of training samples of all ranks that an epoch has no step for.
func (r *run) omitted() int {
	n := r.samples
	for step := range r.steps {
		n -= r.stepSamples(step, r.ranks()...)
	}
	return n
}

// omits is the line about them; "" where an epoch has all.
func (r *run) omits() string {
	n := r.omitted()
	if n == 0 {
		return ""
	}
	why := "all ranks make as many steps as the rank with the fewest samples"
	switch {
	case r.replica.model.State != nil && r.set.Streams:
		why = fmt.Sprintf("%d streams of equal length, which carry the model's state from step to step", r.cfg.Batch*r.job.Size())
	case r.cfg.Batch == 1 && r.order.Steps() == r.samples/r.job.Size():
		why = "with a batch of 1 the ranks share them equally"
	}
	return fmt.Sprintf("each epoch omits %d of %d training samples: %s", n, r.samples, why)
}
