package distopt

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/optim"
)

// Update selects the ranks that update the parameters.
type Update string

// Values of Config.Update.
const (
	// UpdateWhole: every rank updates all parameters.
	UpdateWhole Update = "whole"
	// UpdateSharded: each rank updates a part of the parameters and writes it to all ranks. Both
	// arenas must be in memory that the ranks share. It applies to FP32; other strategies use
	// UpdateWhole.
	UpdateSharded Update = "sharded"
)

// SetSharding enables updates that the ranks divide (the initial state), or disables them for the
// following steps. All ranks call it between steps with the same value. A tune.Tuner also calls it.
func (o *Optimizer) SetSharding(on bool) error {
	if err := o.between("call SetSharding"); err != nil {
		return err
	}
	if o.shards.off == !on {
		return nil
	}
	o.shards.off = !on
	return o.arrangeShards()
}

// CanShard reports whether ranks shard updates under FP32 if SetSharding allows it.
func (o *Optimizer) CanShard() bool { return o.shards.can }

// shards assigns each bucket's parameters to the ranks that update them.
//
// Without ClipNorm, a bucket is summed and updated in one pass as soon as all ranks have its
// gradients. Backward still runs, but no longer uses the bucket's parameters. With ClipNorm, each
// rank sums its parts first, and updates them when the norm is known.
type shards struct {
	can   bool // all ranks can, and none has UpdateWhole
	off   bool // disabled by SetSharding
	on    bool // can, not off, and the strategy shards
	split bool // each rank has optimizer state for its own parts only,
	whole int  // except rank whole, which has all state; -1: no rank

	list  []shard
	begun bool // BeginStep was called
}

// shard is a bucket's division over the ranks.
type shard struct {
	at      int   // beginning of the bucket in the arena
	lo, hi  int   // this rank's part in the arena
	counts  []int // the lengths of the ranks' parts
	summing collective.Sharded
	update  collective.Sharded // second pass with ClipNorm
	work    *collective.Work   // nil: not in flight
	first   int                // first piece of this rank's part
	piece   int                // next piece to measure
	bad     int                // arena index of a sum that is not finite; -1: none
	value   float32            // value at bad
}

// cannotShard returns the reason why this rank cannot shard updates, or nil.
func (o *Optimizer) cannotShard() error {
	if o.cfg.Reducer != nil {
		return errors.New("gradients are summed by a reducer of the caller's")
	}
	if o.cfg.Workers != nil {
		return errors.New("gradients of virtual workers are summed in the order of their tree")
	}
	if err := collective.CanShard(o.group, o.grads); err != nil {
		return fmt.Errorf("gradients: %w", err)
	}
	if err := collective.CanShard(o.group, o.params); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	return nil
}

// agreeShards determines whether all ranks can divide the update and none has UpdateWhole. All
// ranks call it. With UpdateSharded it returns an error if a rank cannot.
func (o *Optimizer) agreeShards() error {
	why := o.cannotShard()
	can := []uint8{1}
	if why != nil || o.cfg.Update == UpdateWhole { // a single rank suffices
		can[0] = 0
	}
	if err := collective.AllReduce(o.group, can, collective.Min); err != nil {
		return fmt.Errorf("agreeing on who updates: %w", err)
	}
	o.shards.can = can[0] == 1
	if o.cfg.Update == UpdateSharded && !o.shards.can {
		if why == nil {
			why = errors.New("another rank cannot: see its error")
		}
		return fmt.Errorf("update %q: %w: use update %q, or leave it out", UpdateSharded, why, UpdateWhole)
	}
	return nil
}

// Sharded reports whether ranks shard the next step's update.
func (o *Optimizer) Sharded() bool { return o.shards.on }

// arrangeShards divides the plan's buckets between the ranks. All ranks call it after a change of
// the plan or the strategy; the new strategy may have no sharded updates.
func (o *Optimizer) arrangeShards() error {
	if err := o.bringState(everyone); err != nil {
		return err
	}
	s := &o.shards
	if s.on = s.can && !s.off && o.cfg.Strategy == FP32 && o.codec.local == nil && o.codec.code == nil; s.on {
		if why := o.summedElsewhere(); why != nil {
			if s.on = false; o.cfg.Update == UpdateSharded {
				return fmt.Errorf("distopt: update %q: %w", UpdateSharded, why)
			}
		}
	}
	if !s.on {
		s.list = nil
		return nil
	}
	sumsFirst := o.cfg.ClipNorm > 0 || o.cfg.skips()
	if sumsFirst {
		o.pieces.grow()
	}
	s.list = make([]shard, len(o.plan))
	for b, k := range o.plan {
		h := &s.list[b]
		h.bad = -1
		h.at, h.counts = k.Lo, o.pieces.cut(k.Lo, k.Hi, o.group.Size())
		h.lo, h.hi = h.part(o.group.Rank())
		h.first = o.pieces.first(h.lo)
		h.summing = collective.Sharded{Grads: o.grads[k.Lo:k.Hi], Counts: h.counts}
		if sumsFirst {
			h.summing.Apply = func(_, hi int, _ []float32) { o.measurePieces(h, k.Lo+hi) }
			h.update = collective.Sharded{Params: o.params[k.Lo:k.Hi], Counts: h.counts, Apply: func(lo, hi int, _ []float32) {
				o.opt.Update(k.Lo+lo, o.params[k.Lo+lo:k.Lo+hi], o.grads[k.Lo+lo:k.Lo+hi], o.factor)
			}}
			continue
		}
		h.summing.Params = o.params[k.Lo:k.Hi]
		h.summing.Apply = func(lo, hi int, sum []float32) {
			if s := o.kernels.SumSquares(sum); s-s != 0 {
				h.bad, h.value = notFinite(sum)
				h.bad += k.Lo + lo
				return
			}
			o.opt.Update(k.Lo+lo, o.params[k.Lo+lo:k.Lo+hi], sum, o.scale())
		}
	}
	return nil
}

// summedElsewhere returns an error if an allreduce of a bucket's length would not use shared memory
// on these ranks: then sharded sums may have other bits.
func (o *Optimizer) summedElsewhere() error {
	for b, k := range o.plan {
		if err := collective.CanShard(o.group, o.grads[k.Lo:k.Hi]); err != nil {
			return fmt.Errorf("bucket %d of %d: %w", b, len(o.plan), err)
		}
	}
	return nil
}

// part returns a rank's range in the arena.
func (h *shard) part(rank int) (lo, hi int) {
	lo = h.at
	for _, n := range h.counts[:rank] {
		lo += n
	}
	return lo, lo + h.counts[rank]
}

func (o *Optimizer) startShard(b int) {
	if !o.shards.begun {
		if !o.cfg.skips() {
			o.opt.BeginStep()
		}
		o.shards.begun, o.shards.split, o.shards.whole = true, true, nobody
		clear(o.pieces.squares)
	}
	h := &o.shards.list[b]
	h.piece = h.first
	o.watch.started(b)
	o.group.For(b, o.requests[b].Bucket.Label)
	h.work = collective.StartSharded(o.group, h.summing)
	o.group.For(-1, 0)
}

// shardedStep is averageStep with sharded updates.
func (o *Optimizer) shardedStep() {
	for b := range o.shards.list {
		if !o.waitShard(b) {
			return
		}
	}
	if !o.gatherTables() {
		return
	}
	if o.cfg.ClipNorm == 0 {
		o.updateTables(1)
		return
	}
	if err := o.pieces.share(o.group); err != nil {
		o.failStep("adding up the norm of the gradient", err)
		return
	}
	factor, ok := o.clipFactor(true, true)
	if !ok {
		return
	}
	o.updateShards(factor)
	o.updateTables(factor)
}

// waitShard waits for a bucket's sums and, without ClipNorm, its update.
func (o *Optimizer) waitShard(b int) bool {
	h := &o.shards.list[b]
	end, err := h.work.WaitEnd()
	h.work = nil
	if err != nil {
		o.failBucket(b, "averaging the gradients", err)
		return false
	}
	if h.bad >= 0 { // always -1 with ClipNorm: all ranks measure
		o.failBucket(b, "", o.diverged(h.bad, h.value))
		return false
	}
	o.watch.agreed(end)
	o.watch.sent(b, end, exchange.Result{Algorithm: collective.Direct, Entries: o.plan[b].Len(), Dense: true})
	return true
}

// updateShards updates with the mean gradients times factor.
func (o *Optimizer) updateShards(factor float32) {
	begun := o.watch.rec.Now()
	o.factor = o.scale() * factor
	for b := range o.shards.list {
		h := &o.shards.list[b]
		o.group.For(b, o.requests[b].Bucket.Label)
		h.work = collective.StartSharded(o.group, h.update)
	}
	o.group.For(-1, 0)
	for b := range o.shards.list {
		h := &o.shards.list[b]
		err := h.work.Wait()
		if h.work = nil; err != nil {
			o.failBucket(b, "updating the parameters", err)
			return
		}
	}
	o.watch.updated(o.watch.words.whole, begun)
}

// drainShards waits for operations in flight after an error.
func (o *Optimizer) drainShards() {
	for b := range o.shards.list {
		if h := &o.shards.list[b]; h.work != nil {
			_ = h.work.Wait() // the first error is stored already
			h.work = nil
		}
	}
}

// everyone is the root of bringState that stands for all ranks; nobody means that no rank has the
// whole state.
const everyone, nobody = -1, -1

// GatherState makes the wrapped optimizer's State whole on rank root. If ranks divide updates, each
// has current state of its own parts only. All ranks call GatherState between steps, before State
// is read, saved or overwritten. If root already has the whole state, no data are exchanged.
func (o *Optimizer) GatherState(root int) error {
	if err := o.between("call GatherState"); err != nil {
		return err
	}
	if root < 0 || root >= o.group.Size() {
		return fmt.Errorf("distopt: GatherState to rank %d of %d", root, o.group.Size())
	}
	return o.bringState(root)
}

// bringState is GatherState for a root, or for all ranks with everyone.
func (o *Optimizer) bringState(root int) error {
	if !o.shards.split || root != everyone && root == o.shards.whole {
		return nil
	}
	for _, s := range o.optState() {
		if len(s.Data) != len(o.params) { // such as the number of steps, equal on all ranks
			continue
		}
		for b := range o.shards.list {
			if err := o.bringPart(s, b, root); err != nil {
				return fmt.Errorf("distopt: gathering the optimizer state %q: %w", s.Name, err)
			}
		}
	}
	o.shards.split, o.shards.whole = root != everyone, root
	return nil
}

func (o *Optimizer) bringPart(s optim.State, b, root int) error {
	h, g := &o.shards.list[b], o.group
	part := func(rank int) []float32 {
		lo, hi := h.part(rank)
		return s.Data[lo:hi]
	}
	switch {
	case root == everyone:
		return collective.AllGatherV(g, s.Data[h.at:h.at+len(h.summing.Grads)], part(g.Rank()), h.counts)
	case root != g.Rank():
		return collective.Send(g, part(g.Rank()), root)
	}
	for r := range g.Size() {
		if r == root {
			continue
		}
		if err := collective.Receive(g, part(r), r); err != nil {
			return err
		}
	}
	return nil
}
