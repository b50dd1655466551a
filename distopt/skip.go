package distopt

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// With Config.NonFinite "skip", a step is applied on all ranks or on none: ranks agree before any
// rank changes a parameter, a row, optimizer state or a residual. If compression has no state, a
// gradient that is not finite makes the sum not finite on all ranks: exchanges run during backward,
// and updates afterwards. Compression with residuals changes them when it encodes, and
// PartialUpdate has no sum of gradients: there ranks first agree after backward, and then exchange.

// causeBytes limits the text of the reason to skip a step, which one rank sends to all.
const causeBytes = 512

// skips counts and explains steps that were not applied.
type skips struct {
	count int64
	cause error // this rank's reason to skip the step, from Reject
	last  error // all ranks' reason to skip; nil: the step is applied
}

// Reject sets this rank's reason not to apply the step, such as a loss that is not finite. Call it
// instead of backward, or between backwards, before Step; the last reason counts. With
// Config.NonFinite "skip" no rank applies the step, and layers and tables need no gradient.
// Otherwise Step fails with the reason.
func (o *Optimizer) Reject(cause error) {
	if !o.cfg.skips() {
		o.failStep("", cause)
		return
	}
	o.skip.cause = cause
}

// checkSkip returns an error for "skip" if this rank sends gradients to servers that update the
// parameters: sent gradients cannot be taken back.
func (c Config) checkSkip(updates bool) error {
	if c.skips() && !updates {
		return errors.New("distopt: training.non-finite skip has no effect with servers that update the parameters: sent gradients cannot be withdrawn")
	}
	return nil
}

// gated reports whether ranks must agree to apply the step before they exchange.
func (o *Optimizer) gated() bool {
	return o.cfg.skips() && (o.codec.local != nil || o.cfg.Strategy == PartialUpdate)
}

// completeRejected marks all layers and tables ready if the program called Reject instead of
// backward: other ranks wait for their exchange.
func (o *Optimizer) completeRejected() {
	if o.skip.cause == nil {
		return
	}
	for l, waiting := o.queue.Waiting(); waiting && o.fault == nil; l, waiting = o.queue.Waiting() {
		o.GradReady(l)
	}
	for _, t := range o.tables.list {
		t.ready = true
	}
}

// guardedStep applies the step if all ranks have finite gradients.
func (o *Optimizer) guardedStep() {
	if o.gated() {
		o.gatedStep()
		return
	}
	o.tables.begin()
	cause := o.skip.cause
	for b := range o.plan {
		err := o.waitSum(b)
		if o.fault != nil {
			return
		}
		if cause == nil {
			cause = err
		}
	}
	if !o.gatherTables() {
		return
	}
	if cause == nil {
		cause = o.unsoundRows()
	}
	if o.agreeToApply(cause) {
		o.applySums()
	}
}

// waitSum waits for a bucket's sum and returns an error if it is not finite.
func (o *Optimizer) waitSum(b int) error {
	if o.shards.on {
		h := &o.shards.list[b]
		if !o.waitShard(b) {
			return nil
		}
		for i := h.first; i < h.piece; i++ {
			if s := o.pieces.squares[i]; s-s != 0 {
				at, v := notFinite(o.grads[o.pieces.starts[i]:o.pieces.starts[i+1]])
				return o.diverged(o.pieces.starts[i]+at, v)
			}
		}
		return nil
	}
	op := &o.requests[b]
	end, err := o.reducer.Wait(op)
	o.inFlight[b] = false
	var value *exchange.ValueError
	if err != nil && !errors.As(err, &value) {
		o.failBucket(b, "averaging the gradients", err)
		return nil
	}
	o.watch.agreed(end)
	o.watch.sent(b, end, op.Sent)
	if err != nil {
		return o.named(value)
	}
	return o.unsound(b)
}

// applySums updates with the sums, which are finite.
func (o *Optimizer) applySums() {
	o.opt.BeginStep()
	if o.shards.on && o.cfg.ClipNorm > 0 {
		if err := o.pieces.share(o.group); err != nil {
			o.failStep("adding up the norm of the gradient", err)
			return
		}
	}
	factor, ok := o.clipFactor(true, true)
	if !ok {
		return
	}
	if o.shards.on {
		o.updateShards(factor)
	} else {
		o.update(o.watch.words.whole, 0, len(o.params), o.scale()*factor)
	}
	o.updateTables(factor)
}

// gatedStep exchanges after all ranks have agreed to apply the step.
func (o *Optimizer) gatedStep() {
	cause := o.skip.cause
	for b := 0; b < len(o.plan) && cause == nil; b++ {
		cause = o.unsound(b)
	}
	for _, t := range o.tables.list {
		if s := o.kernels.SumSquares(t.rows); cause == nil && s-s != 0 {
			cause = t.diverged()
		}
	}
	if !o.agreeToApply(cause) {
		return
	}
	o.opt.BeginStep()
	o.tables.begin()
	for b := 0; b < len(o.plan) && o.fault == nil; b++ {
		o.send(b)
	}
	o.watch.now.Compress = 0 // because backward has ended, Exposed includes it
	switch {
	case o.fault != nil:
	case o.cfg.Strategy == PartialUpdate:
		o.partialStep()
	default:
		o.averageStep()
	}
}

// agreeToApply reports whether no rank has a cause to skip the step. Otherwise one rank's cause,
// preferably from Reject, becomes the cause of all. Cost: an allreduce of 4 bytes, and a broadcast
// of causeBytes for a skipped step.
func (o *Optimizer) agreeToApply(cause error) bool {
	n := int32(o.group.Size())
	vote := []int32{2 * n}
	switch rank := int32(o.group.Rank()); {
	case o.skip.cause != nil:
		vote[0] = rank
	case cause != nil:
		vote[0] = n + rank
	}
	if err := collective.AllReduce(o.group, vote, collective.Min); err != nil {
		o.failStep("agreeing on whether to apply the step", err)
		return false
	}
	if vote[0] == 2*n {
		return true
	}
	text := make([]byte, causeBytes)
	if root := int(vote[0] % n); root == o.group.Rank() {
		where := ""
		if n > 1 && (vote[0] < n || o.gated()) { // otherwise the cause is a sum, equal on all ranks
			where = fmt.Sprintf("rank %d: ", root)
		}
		copy(text, where+cause.Error())
	}
	if err := collective.Broadcast(o.group, text, int(vote[0]%n)); err != nil {
		o.failStep("sharing why the step is skipped", err)
		return false
	}
	o.skip.last = errors.New(string(bytes.TrimRight(text, "\x00")))
	return false
}

// skipped reports whether the step was not applied, and ends such a step.
func (o *Optimizer) skipped() bool {
	why := o.skip.last
	if o.fault != nil || why == nil {
		return false
	}
	o.watch.drop()
	o.watch.last = StepTimes{Skipped: why}
	o.skip.count++
	return true
}
