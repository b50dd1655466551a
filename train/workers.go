package train

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
)

// A run with Config.Workers has that many virtual workers, each with separate samples, random
// numbers, running statistics, state between batches and counters. Each rank carries consecutive
// workers: in a step, it runs the batches of its first worker, then those of the next. Gradients
// are summed in the order of a tree over the workers (internal/exchange), all other sums in the
// order of the workers. The number of ranks therefore has no effect on the result. Checkpoints have
// an entry per worker instead of per rank.

const settingWorkers setting.Path = "job.workers"

// validateWorkers reports settings that virtual workers do not support.
func (c Config) validateWorkers(f *setting.Faults) {
	if c.Workers == 0 {
		return
	}
	f.Add(c.Workers < 0 || c.Workers > maxRanks, settingWorkers, "%d: want 1 to %d, or 0 for one per rank", c.Workers, maxRanks)
	no := func(bad bool, p setting.Path, value any, why string) {
		f.Add(bad, p, "%v with %v %d: %s", value, settingWorkers, c.Workers, why)
	}
	no(c.Servers.Consistency != "", "sync", c.Servers.Consistency, "the order of sums is that of the workers only if ranks sum the gradients: use allreduce")
	no(c.Heter.Count > 0, "heter.count", c.Heter.Count, "heter-trainers add the gradients of their layers in the order of the ranks: use none")
	x := c.Exchange.Resolved()
	info, err := distopt.Lookup(x.Strategy)
	known := err == nil && (info.Name == distopt.FP32 || info.Selects())
	no(!known, "exchange.strategy", x.Strategy, "its sums are in the order of the ranks: use fp32, or a strategy that selects values, such as topk")
	no(known && c.tuning().Chooses(), "exchange.plan", x.Plan, "measured plans depend on the number of ranks: use one, per-layer or fixed")
	no(c.Tuning.Measure, "tuning.tune", true, "measurements depend on the number of ranks: leave it out")
	no(c.Precision == auto, settingPrecision, auto, "each start measures anew, and may choose otherwise: use fp32 or bf16")
	no(x.LimitSum, "exchange.limit-sum", true, "the limit is for sums of ranks: leave it out")
	no(c.Exchange.NonFinite == "skip", "training.non-finite", "skip", "a skipped step would have to restore the state of all workers: use end")
	no(c.Partition != PartitionShuffled, settingPartition, c.Partition, "a worker has no files of its own: use "+PartitionShuffled)
	no(c.Stream, "data.stream", c.Stream, "streams are divided among ranks: leave it out")
	no(c.Model.Task == model.Click || c.Model.Rows > 0, "model", c.Model.Name, "rows of tables are summed in the order of the ranks: use a model without tables")
}

// checkWorkers returns an error if the ranks of the job cannot carry the virtual workers.
func (r *run) checkWorkers() error {
	n := r.cfg.Workers
	switch {
	case n == 0:
		return nil
	case r.ownLoop:
		return setting.Errorf(settingWorkers, "%d: a custom loop has no batches of virtual workers: leave it out", n)
	case r.job.Servers() > 0:
		return setting.Errorf(settingWorkers, "%d with %s, which sum in the order of the ranks: use none", n, quantity.Count(r.job.Servers(), "aggregation server"))
	case n < r.job.Size():
		return setting.Errorf(settingWorkers, "%d for %s: want at least one worker per rank", n, quantity.Count(r.job.Size(), "rank"))
	}
	return nil
}

// virtual returns the number of virtual workers; without Config.Workers each rank is one.
func (e *runEnv) virtual() int { return e.cfg.virtual(e.job.Size()) }

func (c Config) virtual(ranks int) int {
	if c.Workers > 0 {
		return c.Workers
	}
	return ranks
}

// carried returns the virtual workers [lo, hi) of a rank.
func (e *runEnv) carried(rank int) (lo, hi int) {
	return exchange.WorkersOf(e.virtual(), e.job.Size(), rank)
}

// carrier returns the rank of a virtual worker.
func (e *runEnv) carrier(worker int) (rank int) {
	for {
		if _, hi := e.carried(rank); worker < hi {
			return rank
		}
		rank++
	}
}

// exchangeOf returns the configuration of a replica's exchange. Two ranks with one worker each need
// no fixed order of summation, because their sums have one addition.
func (c Config) exchangeOf(job *ringo.Job) distopt.Config {
	out := c.tuning().Base()
	if c.Workers > 0 && (c.Workers != job.Size() || job.Size() > 2 || out.Strategy != distopt.FP32) {
		out.Workers, out.Update = &exchange.Workers{Count: c.Workers, Alloc: job.Alloc, Free: job.Free}, distopt.UpdateWhole
	}
	return out
}

// carry makes the replica carry virtual workers first to first+n-1, all with its present state.
func (r *Replica) carry(first, n int) {
	r.stream, r.current, r.aside = uint64(first), 0, make([][][]float32, n)
	for i := range r.aside {
		r.aside[i] = copies(nil, r.moved())
	}
}

// carries returns the number of virtual workers of the replica.
func (r *Replica) carries() int { return max(1, len(r.aside)) }

// become makes worker i of this rank the current one: it exchanges the state of both.
func (r *Replica) become(i int) {
	if i == r.current {
		return
	}
	r.aside[r.current] = copies(r.aside[r.current], r.moved())
	putBack(r.moved(), r.aside[i])
	r.stream += uint64(i) - uint64(r.current)
	r.current = i
}

// movedOf returns the running statistics and the carried state of worker i of this rank.
func (r *Replica) movedOf(i int) [][]float32 {
	if i == r.current {
		return r.moved()
	}
	return r.aside[i]
}

// resetStates sets the state between batches of all workers to its initial value.
func (r *Replica) resetStates() {
	for i := range r.carries() {
		r.become(i)
		r.ResetState()
	}
}

// setBuffers sets the running statistics of all workers.
func (r *Replica) setBuffers(means []float32) {
	for i := range r.carries() {
		copy(r.movedOf(i)[0], means)
	}
}

// copies copies slices to dst, in its memory.
func copies(dst, src [][]float32) [][]float32 {
	for i, x := range src {
		if i == len(dst) {
			dst = append(dst, nil)
		}
		dst[i] = append(dst[i][:0], x...)
	}
	return dst
}

// putBack copies src to dst. Values that dst has in addition become zero, their value when src was
// copied.
func putBack(dst, src [][]float32) {
	for i, x := range dst {
		var old []float32
		if i < len(src) {
			old = src[i]
		}
		clear(x[copy(x, old):])
	}
}

// meanOfWorkers returns the means of the running statistics over the virtual workers, added in
// their order. All ranks call it.
func (e *runEnv) meanOfWorkers() ([]float32, error) {
	r := e.replica
	n := len(r.Params.Buffers())
	if n == 0 {
		return nil, nil
	}
	own := make([]float32, 0, n*r.carries())
	for i := range r.carries() {
		own = append(own, r.movedOf(i)[0]...)
	}
	all, err := e.peers.gather(bytesview.Bytes(own))
	if err != nil {
		return nil, fmt.Errorf("averaging the running statistics: %w", err)
	}
	means, at := make([]float32, n), 0
	sums := make([]float64, n)
	for _, b := range all {
		for len(b) >= 4 {
			sums[at%n] += float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
			at, b = at+1, b[4:]
		}
	}
	if at != n*e.virtual() {
		return nil, fmt.Errorf("averaging the running statistics: %d values of all ranks: want %d", at, n*e.virtual())
	}
	for i, v := range sums {
		means[i] = float32(v / float64(e.virtual()))
	}
	return means, nil
}

// gatherEach gathers lists of numbers of the same length, one for each virtual worker of a rank, in
// the order of the workers; nil for a lost rank's workers. All ranks call it.
func (e *runEnv) gatherEach(own [][]int64) (all [][]int64, err error) {
	var b []byte
	for _, list := range own {
		for _, v := range list {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
	}
	texts, err := e.peers.gather(b)
	if err != nil {
		return nil, err
	}
	n := len(own[0])
	for rank, text := range texts {
		lo, hi := e.carried(rank)
		if text == nil {
			all = append(all, make([][]int64, hi-lo)...)
			continue
		}
		if len(text) != 8*n*(hi-lo) {
			return nil, fmt.Errorf("rank %d has brought %d bytes for %d numbers", rank, len(text), n*(hi-lo))
		}
		for range hi - lo {
			list := make([]int64, n)
			for k := range list {
				list[k], text = int64(binary.LittleEndian.Uint64(text)), text[8:]
			}
			all = append(all, list)
		}
	}
	return all, nil
}

// workerBatches are the training batches of a rank's virtual workers: in each step those of the
// first worker, then those of the next.
type workerBatches struct {
	loaders []*data.Loader
	each    int // batches of a worker's step
	worker  int // next batch: its worker,
	at      int // its number in the epoch,
	first   int // and that of its step's first batch
}

// Steps returns the number of batches of each worker.
func (b *workerBatches) Steps() int { return b.loaders[0].Steps() }

func (b *workerBatches) Start(epoch int) {
	for _, l := range b.loaders {
		l.Start(epoch)
	}
	b.worker, b.at, b.first = 0, 0, 0
}

func (b *workerBatches) Seek(step int) {
	for _, l := range b.loaders {
		l.Seek(step)
	}
	b.worker, b.at, b.first = 0, step, step
}

func (b *workerBatches) Next() (*data.Batch, bool, error) {
	batch, ok, err := b.loaders[b.worker].Next()
	b.at++
	if end := min(b.first+b.each, b.Steps()); ok && b.at >= end {
		if b.worker++; b.worker == len(b.loaders) {
			b.worker, b.first = 0, end
		}
		b.at = b.first
	}
	return batch, ok, err
}

func (b *workerBatches) Close() {
	for _, l := range b.loaders {
		l.Close()
	}
}

// openWorkers opens the training batches of this rank's virtual workers.
func (d *runData) openWorkers(loader data.LoaderConfig, sampler data.SamplerConfig) (batches, error) {
	out := &workerBatches{each: d.accumulation()}
	lo, hi := d.carried(d.job.Rank())
	for sampler.Rank = lo; sampler.Rank < hi; sampler.Rank++ {
		l, err := newLoader(loader, sampler)
		if err != nil {
			out.Close()
			return nil, err
		}
		out.loaders = append(out.loaders, l)
	}
	return out, nil
}

// evaluateWorkers is evaluate with a part of the evaluation set for each virtual worker.
func (l *epochLoop) evaluateWorkers(epoch int) (all evaluation, err error) {
	lo, hi := l.carried(l.job.Rank())
	for i := lo; i < hi; i++ {
		if err := l.data.openPart(i, l.virtual()); err != nil {
			return all, err
		}
		one, err := l.evaluatePart(epoch)
		if err != nil {
			return all, err
		}
		if i == lo {
			all = one
		} else {
			all.others = append(all.others, one)
		}
	}
	return all, nil
}

// counters returns the counters of the current virtual worker.
func (w *trainerThread) counters() *epochCounters {
	if i := w.replica.current; i > 0 {
		return &w.tally.others[i-1]
	}
	return &w.tally
}

// samples returns the number of samples of all this rank's virtual workers.
func (w *trainerThread) samples() float64 {
	n := w.tally.samples
	for i := range w.tally.others {
		n += w.tally.others[i].samples
	}
	return n
}
