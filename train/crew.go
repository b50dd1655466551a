package train

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/trace"
)

// Where parameters lie on servers a rank trains with one thread or several at once, each of which
// has a replica, a lane to the servers, and every so manyth of the rank's batches, as they come. Each
// knows its next batch while it computes, so that what it needs travels meanwhile.

// worker is one of the threads.
type worker struct {
	replica *Replica
	batches [2]data.Batch // one is used, the other comes next
	tally   tally
	watch   Watch
	stepS   []float64
}

// crew is what the threads of a rank have in common during an epoch.
type crew struct {
	*run
	epoch int
	per   int // steps of each thread, the last without a batch for some of them

	mu   sync.Mutex
	left int // batches to hand out
	done int // steps
	err  error
}

// trainCrew does an epoch's steps.
func (r *run) trainCrew(at *position) error {
	n := len(r.workers)
	c := &crew{run: r, epoch: at.epoch, per: (r.steps + n - 1) / n, left: r.steps}
	var all sync.WaitGroup
	for _, w := range r.workers {
		all.Go(func() {
			if err := w.train(c); err != nil {
				c.fail(err)
			}
		})
	}
	all.Wait()
	if c.err != nil {
		return c.err
	}
	for _, w := range r.workers {
		at.tally.add(&w.tally)
		r.stepS = append(r.stepS, w.stepS...)
	}
	at.step = r.steps
	return nil
}

// fail keeps the first fault and ends the waits of the other threads.
func (c *crew) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
	}
	c.mu.Unlock()
	if first && len(c.workers) > 1 {
		c.replica.remote.Abandon()
	}
}

// take copies the next batch, if there is one and nothing has failed.
func (c *crew) take(w *worker, b *data.Batch) (ok bool, err error) {
	start := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 || c.err != nil {
		return false, nil
	}
	from, err := next(c.order)
	if err != nil {
		return false, err
	}
	c.left--
	b.CopyFrom(from)
	end := time.Now()
	w.watch.Waited(end.Sub(start))
	w.replica.trace.Span(trace.Data, "data", start, end)
	return true, nil
}

// progress tells of a step.
func (c *crew) progress(loss float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.obs.Progress(Progress{Phase: "train", Epoch: c.epoch, Epochs: c.cfg.Epochs, Done: c.done, Total: c.steps,
		Samples: c.cfg.Batch * c.job.Size(), Loss: loss})
}

// train does the thread's steps of an epoch. Without a batch it passes: in ssp others wait until it has
// done as many steps as they.
func (w *worker) train(c *crew) error {
	w.tally, w.stepS = tally{}, w.stepS[:0]
	w.watch.Begin(time.Now())
	w.replica.remote.Waited()
	now, ahead := &w.batches[0], &w.batches[1]
	have, err := c.take(w, now)
	for step := 0; step < c.per && err == nil; step++ {
		more := false
		if have && step+1 < c.per {
			if more, err = c.take(w, ahead); err != nil {
				break
			}
		}
		at, after := step*len(c.workers), min((step+1)*len(c.workers), c.steps)
		w.replica.SetLR(c.lr(c.epoch, at), c.lr(c.epoch, after))
		if !have {
			err = w.replica.pass()
			continue
		}
		if more {
			w.replica.expect(ahead)
		}
		err = w.step(c, step, now)
		now, ahead, have = ahead, now, more
	}
	return err
}

// step is a step on a batch.
func (w *worker) step(c *crew, step int, b *data.Batch) error {
	w.replica.trace.BeginStep(w.replica.Opt.Steps())
	res, err := w.replica.Backward(w.replica.Batch(b), true)
	if err != nil {
		return err
	}
	w.tally.train(res, b.N)
	if !finite(res.Loss) {
		return fmt.Errorf("step %d: the loss is %v: training has diverged; lower the learning rate (now %v)", step, res.Loss, w.replica.rule.CurrentLR())
	}
	w.watch.Ready(time.Now())
	if err := w.replica.Step(); err != nil {
		return err
	}
	w.watch.Pulled(w.replica.remote.Waited())
	spent := w.watch.End(time.Now(), w.replica.Opt.Times())
	w.stepS = append(w.stepS, spent.Whole.Seconds())
	w.tally.spent.add(spent)
	c.progress(res.Loss)
	return nil
}
