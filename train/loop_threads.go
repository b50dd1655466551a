package train

import (
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/hyperloglog"
	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/model"
)

// A rank trains on one or, if its parameters allow several, more threads. Each thread has a replica
// and takes the rank's batches in order.

// trainerThread is one thread of a rank.
type trainerThread struct {
	replica    *Replica
	tally      epochCounters
	keys       hyperloglog.Counter // keys that it has trained on
	evaluation evaluation          // thread's part of the current evaluation

	watch StepTimer
	stepS []float64
	at    int // step of the epoch, for errors

	next       workItem // item after the current one, if it was prefetched
	prefetched bool
	// copies are the batches of this thread's current item and of the next; turns counts items.
	copies [2]data.Batch
	turns  int
}

type workItem struct {
	// batch is nil if there is none for this thread.
	batch *data.Batch
	step  int // step of the epoch
	// more reports that the batch belongs to the same step as the one before.
	more bool
	// over marks the end of the phase.
	over bool
}

// threadPool is shared by the threads of a rank while they train or evaluate.
type threadPool struct {
	*epochLoop
	epoch int
	phase string
	from  batches
	total int // number of batches, or of training steps, of the phase on this rank
	// The phase trains steps [first, until) of the epoch.
	first, until int
	begun        int // steps handed out
	// training lists the ranks that train; only their samples count.
	training []int

	mu sync.Mutex
	// remaining is the number of batches that no thread has taken; done is the number of finished
	// batches of total.
	remaining, done int
	err             error
	stopped         error // reason to stop before until, after rounds rounds of each thread
	rounds          int
}

// advance does the steps of the epoch up to the next checkpoint or snapshot. It returns a
// *ringo.StoppedError if all ranks stop at the position at.
func (l *epochLoop) advance(at *position) error {
	until := at.step + 1
	for until < l.data.steps && !l.saver.pauses((at.epoch-1)*l.data.steps+until) {
		until++
	}
	first, _ := l.data.span(at.step)
	_, last := l.data.span(until - 1)
	c := &threadPool{
		epochLoop: l, epoch: at.epoch, phase: "train", from: l.data.order, total: l.data.steps, first: at.step, until: until,
		remaining: (last - first) * l.replica.carries(), done: at.step, training: l.peers.liveRanks(),
	}
	if l.cfg.Workers > 0 {
		c.training = l.ranks()
	}
	for i, w := range l.workers {
		if w.tally = at.tally; i > 0 { // the first one adds up in the order of steps
			w.tally = l.replica.newTally()
		}
	}
	if err := c.all((*trainerThread).train); err != nil {
		return err
	}
	at.tally = l.workers[0].tally
	for i, w := range l.workers {
		if i > 0 {
			at.tally.add(&w.tally)
		}
		l.reports.stepS = append(l.reports.stepS, w.stepS...)
	}
	if c.cut {
		until = l.workers[0].at + 1
	}
	if c.stopped != nil {
		until = min(until, at.step+c.rounds*len(l.workers))
	}
	at.step = until
	return c.stopped
}

// evaluate runs the model over this rank's part of the evaluation set. Each sample is evaluated
// once over all ranks.
func (l *epochLoop) evaluate(epoch int) (evaluation, error) {
	if l.cfg.Workers > 0 {
		return l.evaluateWorkers(epoch)
	}
	return l.evaluatePart(epoch)
}

// evaluatePart runs the model over the open part of the evaluation set.
func (l *epochLoop) evaluatePart(epoch int) (sum evaluation, err error) {
	defer l.during(record.Evaluation)()
	l.replica.params.swapAverage()
	defer l.replica.params.swapAverage()
	l.data.shard.Start(epoch)
	l.replica.ResetState()
	plan := l.tablePlan()
	for _, w := range l.workers {
		w.evaluation = l.replica.newEvaluation(plan)
	}
	c := &threadPool{epochLoop: l, epoch: epoch, phase: "evaluate", from: l.data.shard, total: l.data.shard.Steps(), remaining: l.data.shard.Steps()}
	if err := c.all((*trainerThread).evaluate); err != nil {
		return sum, err
	}
	sum = l.workers[0].evaluation
	for _, w := range l.workers[1:] {
		sum.add(&w.evaluation)
	}
	return sum, nil
}

// all runs work on all threads, the first one on this goroutine.
func (c *threadPool) all(work func(*trainerThread, *threadPool) error) error {
	var others sync.WaitGroup
	for i, w := range c.workers {
		if w.prefetched = false; i > 0 {
			others.Go(func() { c.fail(panics.Do(func() error { return work(w, c) })) })
		}
	}
	c.fail(panics.Do(func() error { return work(c.workers[0], c) }))
	others.Wait()
	return c.err
}

// fail stores the first error and ends the waits of the other threads.
func (c *threadPool) fail(err error) {
	c.mu.Lock()
	first := err != nil && c.err == nil
	if first {
		c.err = err
	}
	c.mu.Unlock()
	if first && len(c.workers) > 1 {
		c.replica.params.abort()
	}
}

// turn returns the thread's next item from take. If the parameters fetch rows in advance, it also
// takes the item after it.
func (w *trainerThread) turn(take func() (workItem, error)) (now workItem, err error) {
	if now = w.next; !w.prefetched {
		if now, err = take(); err != nil {
			return now, err
		}
	}
	if w.prefetched = w.replica.params.prefetches() && !now.over; w.prefetched {
		if w.next, err = take(); err == nil && w.next.batch != nil {
			w.replica.params.setNextBatch(w.next.batch, w.next.more)
		}
	}
	return now, err
}

// take returns the next batch; nil after the last one or after an error.
func (c *threadPool) take(w *trainerThread) (*data.Batch, error) {
	start := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.remaining > 0 && c.err == nil {
		b, err := next(c.from)
		if err != nil {
			return nil, err
		}
		if c.remaining--; b.N == 0 { // another rank's part is one sample longer
			c.done++
			continue
		}
		end := time.Now()
		w.watch.Waited(end.Sub(start))
		if c.phase == "train" {
			w.replica.rec.Span(record.Data, 0, w.replica.rec.At(start), w.replica.rec.At(end))
		}
		if !w.replica.params.prefetches() {
			return b, nil // valid until the next batch
		}
		own := &w.copies[w.turns%2]
		w.turns++
		own.CopyFrom(b)
		return own, nil
	}
	return nil, nil
}

// progress reports a batch of an evaluation, or a step, with n samples on all ranks. c.mu is held.
func (c *threadPool) progress(n int, loss float64) {
	c.done++
	c.obs.Progress(Progress{Phase: c.phase, Epoch: c.epoch, Epochs: c.cfg.Epochs, Done: c.done, Total: c.total,
		Samples: n, Loss: loss, Progressive: c.reports.scores.latest()})
}

func (w *trainerThread) train(c *threadPool) error {
	if err := panics.Do(func() error { return w.steps(c) }); err != nil {
		return &StepError{Epoch: c.epoch, Step: w.at + 1, Err: err}
	}
	return nil
}

// steps does the thread's steps. It also does steps without a batch, because in ssp other ranks
// wait until this rank has done as many steps.
func (w *trainerThread) steps(c *threadPool) error {
	n := len(c.workers)
	rounds := (c.until - c.first + n - 1) / n // rounds of each thread, the last one without a batch for some
	round, left := 0, 0                       // left is the number of further batches of the step that was begun last
	take := func() (workItem, error) {
		if left > 0 {
			left--
			b, err := c.take(w)
			return workItem{batch: b, more: true}, err
		}
		now, err := c.begin(w, round, rounds)
		if now.batch != nil {
			lo, hi := c.data.span(now.step)
			left = (hi-lo)*w.replica.carries() - 1
		}
		round++
		return now, err
	}
	w.stepS, w.at = slices.Grow(w.stepS[:0], rounds), c.first
	w.watch.Begin(time.Now())
	w.replica.Tuner.Begin()
	w.replica.params.takeWaitTime() // discard earlier waits
	for i := range rounds {
		w.at = c.first + i*n
		w.replica.rec.BeginStep(w.replica.Opt.Steps())
		now, err := w.turn(take)
		if err == nil && !now.over {
			err = w.step(c, now, take)
		}
		if err != nil || now.over || c.cut {
			return err
		}
	}
	return nil
}

// begin returns a thread's item for a round of steps, or an error if all threads stop before.
func (c *threadPool) begin(w *trainerThread, round, rounds int) (workItem, error) {
	if round == rounds {
		return workItem{over: true}, nil
	}
	if err := c.alive(); err != nil {
		return workItem{over: true}, err
	}
	n := len(c.workers)
	at := c.first + round*n
	if why := c.checkStop(c.epoch, at, min(n, c.until-at)); why != nil {
		return workItem{over: true}, c.stop(why, round)
	}
	c.mu.Lock()
	step := c.first + c.begun
	c.begun++
	c.mu.Unlock()
	if step >= c.until {
		return workItem{}, nil
	}
	b, err := c.take(w)
	return workItem{batch: b, step: step}, err
}

// stop stores the number of the round before which all threads stop, if why is a
// *ringo.StoppedError. It returns other errors.
func (c *threadPool) stop(why error, round int) error {
	if !stopped(why) {
		return why
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped, c.rounds = why, round
	return nil
}

// step does one step, on a batch or on several that accumulate.
func (w *trainerThread) step(c *threadPool, now workItem, take func() (workItem, error)) error {
	r := w.replica
	lr := c.data.lr(c.epoch, w.at)
	r.params.setRate(lr, c.data.lr(c.epoch, min(w.at+len(c.workers), c.until)))
	if now.batch == nil {
		return r.params.end()
	}
	before, figures := w.samples(), w.counted(c)
	b, pass, err := w.backwards(c, now, lr, take)
	if err != nil {
		return err
	}
	later := r.params.prefetches() // servers move parameters meanwhile; else the step waits for gradients in flight
	if !later {
		w.score(c, b, pass)
	}
	w.watch.Ready(time.Now())
	tuned, loss := r.Tuner.Spent(), lossOf(pass)
	if err := r.Step(); err != nil {
		return err
	}
	w.leaveOut(c, figures)
	tuned = r.Tuner.Spent() - tuned
	if later {
		w.score(c, b, pass)
	}
	w.watch.Pulled(r.params.takeWaitTime())
	spent := w.watch.End(time.Now().Add(-tuned), r.Opt.Times())
	if tuned > 0 { // tuning is part of no step
		w.tally.trainS -= tuned.Seconds()
		w.tally.tuneS += tuned.Seconds()
		w.watch.Begin(time.Now())
	}
	w.stepS = append(w.stepS, spent.Whole.Seconds())
	w.tally.spent.add(spent)
	c.count(w, spent, w.samples()-before, loss)
	if err := c.reports.skipped(c.epoch, w.at+1); err != nil {
		return err
	}
	if err := c.afterScores(); err != nil {
		return err
	}
	c.mu.Lock()
	c.progress(c.data.stepSamples(now.step, c.training...), loss)
	c.mu.Unlock()
	return c.afterStep(w, spent, loss, lr)
}

// backwards runs the step's batches forward and backward, one virtual worker after the other. It
// returns the last batch, with loss and metrics not counted yet.
func (w *trainerThread) backwards(c *threadPool, now workItem, lr float64, take func() (workItem, error)) (*data.Batch, model.Pass, error) {
	lo, hi := c.data.span(now.step)
	b, step, each, passes := now.batch, now.step, hi-lo, w.replica.passes
	for k := each * w.replica.carries(); ; k-- {
		if k%each == 0 {
			w.replica.become(w.replica.carries() - k/each)
			w.replica.passes = passes
		}
		batch := w.replica.Batch(b)
		batch.Share = c.data.shareOf(step, b.N)
		pass, err := w.replica.Backward(batch, (k-1)%each == 0)
		if err != nil {
			return b, pass, err
		}
		if loss := lossOf(pass); !finite(loss) {
			if !w.replica.skips {
				w.score(c, b, pass)
				return b, pass, notFinite(loss, lr, b)
			}
			w.replica.Opt.Reject(whyRejected(loss, lr, b))
		}
		if k == 1 {
			return b, pass, nil
		}
		w.score(c, b, pass)
		now, err := w.turn(take)
		if b = now.batch; err != nil {
			return b, pass, err
		}
	}
}

func lossOf(p model.Pass) float64 { return float64(p.Loss.Mean.Data[0]) }

// score counts the loss and metrics of a batch before the next batch is taken.
func (w *trainerThread) score(c *threadPool, b *data.Batch, pass model.Pass) {
	loss := lossOf(pass)
	if w.replica.skips && !finite(loss) {
		return
	}
	t := w.counters()
	w.replica.model.Count(&t.train, pass, true)
	t.samples += float64(b.N)
	w.keys.Add(b.Bags.Keys)
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.replica.current == 0 {
		c.reports.firstLoss(loss)
	}
	if t.first == 0 {
		t.first = loss
	}
	if finite(loss) {
		c.reports.scores.add(pass)
	}
}

func (w *trainerThread) evaluate(c *threadPool) error {
	take := func() (workItem, error) {
		b, err := c.take(w)
		return workItem{batch: b, over: b == nil}, err
	}
	for {
		now, err := w.turn(take)
		if err != nil || now.over {
			return err
		}
		pass, err := w.replica.Evaluate(w.replica.Batch(now.batch))
		if err != nil {
			return err
		}
		m := &w.replica.model
		m.Count(&w.evaluation.counts, pass, false)
		m.Samples(w.evaluation.words, pass)
		w.evaluation.tables.Add(tablePass(pass, now.batch.Index))
		c.mu.Lock()
		c.progress(now.batch.N*len(c.data.evalRanks), 0)
		c.mu.Unlock()
	}
}
