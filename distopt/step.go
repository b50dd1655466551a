package distopt

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// GradReady marks the gradient of a layer as final. If the layer completes a bucket, GradReady
// compresses the bucket and starts its exchange in the background. Until Step returns, callers must
// not touch gradients of ready layers, nor their parameters, which may be updated already. Step
// returns any error.
func (o *Optimizer) GradReady(param int) {
	if o.fault != nil {
		return
	}
	if err := o.queue.Mark(param); err != nil {
		name := "unknown"
		if param >= 0 && param < len(o.layers) {
			name = o.layers[param].Name
		}
		o.failStep("layer "+name, err)
		return
	}
	since := o.watch.ready(param)
	if o.gated() {
		return
	}
	for b, ok := o.queue.Next(); ok && o.fault == nil; b, ok = o.queue.Next() {
		o.send(b)
	}
	if o.cfg.Strategy == PartialUpdate {
		return
	}
	// If computation uses every core, the goroutines of exchanges run here, between two layers,
	// when the caches hold no data that is still needed.
	runtime.Gosched()
	o.watch.compressDone(since)
}

// send compresses a complete bucket and starts its exchange.
func (o *Optimizer) send(b int) {
	if o.shards.on {
		o.startShard(b)
		return
	}
	op, coded := &o.requests[b], o.codec.local != nil || o.codec.code != nil
	last := o.worker == o.workers-1
	var start time.Time
	if coded {
		start = time.Now()
	}
	if o.codec.local != nil {
		op.Sparse = o.codec.entries(b)
		if err := o.codec.encode(b, op.X); err != nil {
			o.failBucket(b, "compressing the gradients", err)
			return
		}
	}
	if o.opt == nil && !o.sound(b) {
		return
	}
	if o.cfg.Strategy != PartialUpdate {
		o.watch.started(b)
		o.inFlight[b] = last
		o.reducer.Start(op)
	}
	if coded {
		o.watch.compressed(b, start, time.Now())
	}
	if b == len(o.plan)-1 && !last {
		o.nextWorker()
	}
}

// Step ends the step of backward: it waits for the remaining sums and updates the parameters. After
// an error, which names the step and the bucket, the parameters are not usable on this rank and
// every later Step returns the same error. Selected entries of buckets without a sum return to the
// residual: State then has the gradients of the step plus the old residuals. After a gradient that
// is not finite, residuals and velocities can have such values too, and the run cannot continue
// from them. With Config.NonFinite "skip", residuals and velocities do not change.
//
// If the error is local, such as a layer or rows of the wrong size, or a gradient without a code,
// Step breaks the group: other ranks would wait for this rank. Their steps fail immediately with an
// error that names this rank and contains the text.
func (o *Optimizer) Step() error {
	o.watch.begin()
	o.completeRejected()
	if l, waiting := o.queue.Waiting(); waiting && o.fault == nil {
		o.failStep("", fmt.Errorf("Step was called before the gradient of layer %d (%s) was ready", l, o.layers[l].Name))
	}
	if name := o.tables.waiting(); name != "" && o.fault == nil {
		o.failStep("", fmt.Errorf("Step was called before the gradient of table %s was ready", name))
	}
	if o.fault == nil {
		o.apply()
	}
	o.drain()
	skipped := o.skipped()
	if o.fault == nil && !skipped {
		anew, reuses := o.codec.exactCount()
		o.watch.now.Reuses, o.watch.now.ExactShare = reuses, float64(anew)/float64(max(1, len(o.grads)))
		o.fault = o.watch.end(valuesOf(o.layers))
	}
	if o.fault != nil {
		o.watch.drop()
		return o.breakGroup()
	}
	o.queue.Reset()
	o.tables.reset()
	o.shards.begun, o.skip.cause, o.skip.last, o.worker = false, nil, nil, 0
	o.step++
	o.rotate()
	if !skipped && o.codec.endStep() {
		o.fault = o.arrangeShards() // without residuals, the chain is dropped
	}
	return o.breakGroup()
}

func (o *Optimizer) apply() {
	if o.cfg.skips() {
		o.guardedStep()
		return
	}
	if !o.shards.begun && o.opt != nil {
		o.opt.BeginStep()
	}
	o.tables.begin()
	switch {
	case o.cfg.Strategy == PartialUpdate:
		o.partialStep()
	case o.shards.on:
		o.shardedStep()
	default:
		o.averageStep()
	}
}

// averageStep waits for each bucket's sum and updates its parameters. Without ClipNorm, a bucket is
// updated while later buckets and table rows are still in transit; with ClipNorm the norm is only
// known after the last bucket.
func (o *Optimizer) averageStep() {
	for b := range o.plan {
		if !o.wait(b) {
			return
		}
		if o.cfg.ClipNorm == 0 {
			if !o.sound(b) {
				o.alike = o.cfg.Reducer == nil
				return
			}
			o.update(o.watch.names[b], o.plan[b].Lo, o.plan[b].Hi, o.scale())
		}
	}
	if !o.gatherTables() {
		return
	}
	factor, ok := o.clipFactor(true, true)
	if !ok {
		return
	}
	if o.cfg.ClipNorm > 0 {
		o.update(o.watch.words.whole, 0, len(o.params), o.scale()*factor)
	}
	o.updateTables(factor)
}

func (o *Optimizer) gatherTables() bool {
	if len(o.tables.list) == 0 {
		return true
	}
	since := time.Now()
	end, err := o.tables.finish(o.cfg.ClipNorm > 0)
	if err != nil {
		o.failStep("", err)
		return false
	}
	o.watch.gathered(since, end)
	if !end.IsZero() {
		o.watch.rec.Span(record.Exchange, o.watch.words.tables, o.watch.rec.At(o.watch.start), o.watch.rec.At(end))
	}
	return true
}

// wait waits for the sum of a bucket and reports whether it arrived.
func (o *Optimizer) wait(b int) bool {
	op := &o.requests[b]
	end, err := o.reducer.Wait(op)
	o.inFlight[b] = false
	if err != nil {
		o.codec.restoreUnsent(op)
		o.failBucket(b, "averaging the gradients", o.named(err))
		return false
	}
	o.codec.restoreExcluded(op)
	o.codec.clean(op.Lo, op.X)
	o.watch.agreed(end)
	o.watch.sent(b, end, op.Sent)
	return true
}

// named adds the parameter's name to an error that has only an index in the arena. A NaN cannot be
// sent in any code.
func (o *Optimizer) named(err error) error {
	var value *exchange.ValueError
	switch {
	case !errors.As(err, &value) || value.At < 0 || value.At >= len(o.grads):
		return err
	case value.Value != value.Value:
		return o.diverged(value.At, value.Value)
	}
	return fmt.Errorf("the gradient of parameter %q: %w", o.layerAt(value.At), err)
}

// drain waits for all operations in flight after an error, so that none writes to the arenas after
// Step returns. These buckets update no parameter; their entries return to the residual.
func (o *Optimizer) drain() {
	o.drainShards()
	for b, flying := range o.inFlight {
		if flying {
			_, _ = o.reducer.Wait(&o.requests[b]) // the first error is stored already
			o.inFlight[b] = false
			o.codec.restoreUnsent(&o.requests[b])
		}
	}
	o.tables.drain()
}
