package train

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/trace"
)

// Where parameters lie on servers a rank trains with one thread or several at once, each of which
// has a replica, a session to the servers, and every so manyth of the rank's batches, as they come. Each
// knows its next batch while it computes, so that what it needs travels meanwhile.

// worker is one of the threads.
type worker struct {
	replica *Replica
	batches [2]data.Batch // one is used, the other comes next
	tally   tally
	watch   Watch
	stepS   []float64
	at      int // the step of the epoch, for errors
}

// crew is what the threads of a rank have in common while they train or evaluate.
type crew struct {
	*run
	epoch int
	phase string
	from  batches

	first, until int // of training, which steps of the epoch to do

	mu   sync.Mutex
	left int // batches to hand out
	done int // those that are done
	err  error

	stopped error // why all stop before until
	rounds  int   // steps that each thread has done then
}

// trainCrew does the epoch's steps up to the next one after which the run is saved.
func (r *run) trainCrew(at *position) error {
	until := at.step + 1
	for until < r.steps && !r.due((at.epoch-1)*r.steps+until, false) {
		until++
	}
	c := &crew{run: r, epoch: at.epoch, phase: "train", from: r.order, first: at.step, until: until, left: until - at.step, done: at.step}
	if err := c.all((*worker).train, &at.tally); err != nil {
		return err
	}
	for _, w := range r.workers {
		r.stepS = append(r.stepS, w.stepS...)
	}
	if c.stopped != nil {
		until = min(until, at.step+c.rounds*len(r.workers))
	}
	at.step = until
	return c.stopped
}

// evaluateCrew evaluates this rank's part.
func (r *run) evaluateCrew(epoch int, t *tally) error {
	c := &crew{run: r, epoch: epoch, phase: "evaluate", from: r.shard, left: r.shard.Steps()}
	return c.all((*worker).evaluate, t)
}

// all lets all threads work, and adds up what they count.
func (c *crew) all(work func(*worker, *crew) error, t *tally) error {
	var all sync.WaitGroup
	for _, w := range c.workers {
		w.tally = tally{}
		all.Go(func() {
			if err := work(w, c); err != nil {
				c.fail(err)
			}
		})
	}
	all.Wait()
	if c.err != nil {
		return c.err
	}
	for _, w := range c.workers {
		t.add(&w.tally)
	}
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
	for b.N = 0; b.N == 0; { // another rank's part of the evaluation may be one sample longer
		if c.left == 0 || c.err != nil {
			return false, nil
		}
		from, err := next(c.from)
		if err != nil {
			return false, err
		}
		c.left--
		b.CopyFrom(from)
	}
	end := time.Now()
	w.watch.Waited(end.Sub(start))
	if c.phase == "train" {
		w.replica.trace.Span(trace.Data, "data", start, end)
	}
	return true, nil
}

// progress tells of a batch of n samples of all ranks. c.mu is held.
func (c *crew) progress(n, total int, loss float64) {
	c.done++
	c.obs.Progress(Progress{Phase: c.phase, Epoch: c.epoch, Epochs: c.cfg.Epochs, Done: c.done, Total: total,
		Samples: n, Loss: loss})
}

// train does the thread's steps, which are not those of the rank's other threads.
func (w *worker) train(c *crew) error {
	if err := w.steps(c); err != nil {
		return &StepError{Epoch: c.epoch, Step: w.at + 1, Err: err}
	}
	return nil
}

// steps does the thread's steps. Without a batch it passes: in ssp others wait until it has
// done as many steps as they.
func (w *worker) steps(c *crew) error {
	w.stepS, w.at = w.stepS[:0], c.first
	n := len(c.workers)
	per := (c.until - c.first + n - 1) / n // of each, the last without a batch for some of them
	w.watch.Begin(time.Now())
	w.replica.remote.Waited()
	now, ahead := &w.batches[0], &w.batches[1]
	have, stop, err := c.begin(w, now, 0, true)
	for step := 0; step < per && !stop && err == nil; step++ {
		more, last := false, false
		if step+1 < per { // it is begun with its batch, before this one is done
			if more, last, err = c.begin(w, ahead, step+1, have); err != nil {
				break
			}
		}
		stop = last
		w.at = c.first + step*n
		after := min(w.at+n, c.until)
		w.replica.SetLR(c.lr(c.epoch, w.at), c.lr(c.epoch, after))
		if !have {
			err = w.replica.pass()
			continue
		}
		if more {
			w.replica.expect(ahead)
		}
		err = w.step(c, now)
		now, ahead, have = ahead, now, more
	}
	return err
}

// begin takes the batch of a thread's next step, if it wants one and there is one, unless all stop before that step.
func (c *crew) begin(w *worker, b *data.Batch, step int, wants bool) (have, stop bool, err error) {
	n := len(c.workers)
	at := c.first + step*n
	if why := c.heed(c.epoch, at, min(n, c.until-at)); stopped(why) {
		c.mu.Lock()
		c.stopped, c.rounds = why, step
		c.mu.Unlock()
		return false, true, nil
	} else if why != nil {
		return false, false, why
	}
	if wants {
		have, err = c.take(w, b)
	}
	return have, false, err
}

// step is a step on a batch.
func (w *worker) step(c *crew, b *data.Batch) error {
	w.replica.trace.BeginStep(w.replica.Opt.Steps())
	res, err := w.replica.Backward(w.replica.Batch(b), true)
	if err != nil {
		return err
	}
	w.tally.train(res, b.N)
	if !finite(res.Loss) {
		return fmt.Errorf("the loss is %v: training has diverged; lower the learning rate (now %v)", res.Loss, w.replica.rule.CurrentLR())
	}
	w.watch.Ready(time.Now())
	if err := w.replica.Step(); err != nil {
		return err
	}
	w.watch.Pulled(w.replica.remote.Waited())
	spent := w.watch.End(time.Now(), w.replica.Opt.Times())
	w.stepS = append(w.stepS, spent.Whole.Seconds())
	w.tally.spent.add(spent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.firstLoss(res.Loss)
	c.progress(c.cfg.Batch*len(c.peers.there()), c.steps, res.Loss)
	return nil
}

// evaluate does the thread's batches of an evaluation.
func (w *worker) evaluate(c *crew) error {
	now, ahead := &w.batches[0], &w.batches[1]
	have, err := c.take(w, now)
	for have && err == nil {
		var more bool
		if more, err = c.take(w, ahead); err != nil {
			break
		}
		if more {
			w.replica.expect(ahead)
		}
		var res Result
		if res, err = w.replica.Evaluate(w.replica.Batch(now)); err != nil {
			break
		}
		w.tally.evaluate(res)
		c.evaluated(now, res)
		now, ahead, have = ahead, now, more
	}
	return err
}

// evaluated keeps the scores of a batch.
func (c *crew) evaluated(b *data.Batch, res Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addScores(b, res)
	c.progress(b.N*len(c.sharers), c.shard.Steps(), 0)
}
