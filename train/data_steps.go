package train

import (
	"fmt"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// The last step of an epoch has the remaining samples, in unequal numbers per rank. Each batch
// therefore counts by its share of the step: an update always uses the mean over the samples of the
// step.

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
		d.parts = make([]data.SamplerConfig, d.job.Size())
		partsOf(sampler, d.ranks(), d.parts)
	}
	for i := range d.parts {
		d.parts[i].Batch, d.parts[i].Streams, d.parts[i].Most = sampler.Batch, sampler.Streams, sampler.Most
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
		n, np := d.samples, d.job.Size()
		return fmt.Errorf("%s on %s: %d per rank, less than the %d of one step: use fewer ranks or a smaller batch",
			quantity.Count(n, "training sample"), quantity.Count(np, "rank"), n/np, d.cfg.Batch*d.accumulation())
	}
	if text := d.omits(); text != "" {
		d.shares.notes = append(d.shares.notes, text)
	}
	return nil
}

// partsOf fills in the parts of ranks that share a set.
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

// spared returns the number of batches that the last step of an epoch lacks.
func (d *runData) spared() uint64 {
	if d.order == nil { // a Loop has no epochs
		return 0
	}
	return uint64(d.steps*d.accumulation() - d.order.Steps())
}

// shareOf returns the factor of the loss of a batch of n samples. It is 1 if all batches of the
// step are full, or if ranks push gradients independently, each the mean over its batch.
func (d *runData) shareOf(step, n int) float32 {
	if !d.together() {
		return 1
	}
	return float32(float64(n*d.accumulation()*d.job.Size()) / float64(d.stepSamples(step, d.ranks()...)))
}

// omitted returns the number of training samples of all ranks without a step in an epoch.
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
		why = fmt.Sprintf("%d streams of equal length, which carry the model's state from step to step", d.cfg.Batch*d.job.Size())
	case d.cfg.Batch == 1 && d.order.Steps() == d.samples/d.job.Size():
		why = "with a batch of 1 the ranks share them equally"
	}
	return fmt.Sprintf("each epoch omits %d of %d training samples: %s", n, d.samples, why)
}
