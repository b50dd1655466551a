package distopt

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/optim"
)

// partialStep updates all parameters locally, then averages one partition. Tables are updated as
// under FP32, so that they are equal on all ranks and untouched rows do not change. The norm of
// table gradients, over all ranks, therefore limits them alone; dense gradients are limited by this
// rank's norm.
func (o *Optimizer) partialStep() {
	factor, ok := o.clipFactor(true, false)
	if !ok || o.cfg.ClipNorm == 0 && !o.soundAll() {
		return
	}
	o.update(o.watch.words.whole, 0, len(o.params), o.scale()*factor)
	start := time.Now()
	if !o.gatherTables() {
		return
	}
	if factor, ok = o.clipFactor(false, true); !ok {
		return
	}
	o.updateTables(factor)
	o.averagePartition()
	o.watch.now.Exposed = time.Since(start)
}

// averagePartition averages, over the ranks, the part of the parameters that this step selects.
func (o *Optimizer) averagePartition() {
	parts, op := o.cfg.partitions(), &o.partial
	k := int((o.step - o.skip.count) % int64(parts))
	lo, hi := partition(len(o.params), parts, k)
	op.X, op.Lo = o.params[lo:hi:hi], lo
	begun := o.watch.rec.Now()
	o.reducer.Start(op)
	end, err := o.reducer.Wait(op)
	if err != nil {
		o.fail(&Error{Step: o.step, Bucket: k, Buckets: parts, Doing: "averaging a partition of the parameters", Err: err})
		return
	}
	if n := o.group.Size(); n > 1 {
		o.kernels.Scale(op.X, 1/float32(n))
	}
	o.watch.count(op.Sent)
	o.watch.exchanged(-1, o.watch.words.partition, op.Sent, begun, end)
}

// partition returns part i of k about equal parts of n values. Parts start at
// multiples of 16 values, a cache line.
func partition(n, k, i int) (lo, hi int) {
	const line = 16
	lines := (n + line - 1) / line
	return min(n, lines*i/k*line), min(n, lines*(i+1)/k*line)
}

// fitsRule returns an error if the optimizer computes parameters from accumulated sums: under
// PartialUpdate its next step would undo the average.
func (o *Optimizer) fitsRule(s Strategy) error {
	if s == PartialUpdate && o.opt == nil {
		return fmt.Errorf("distopt: strategy %s without an optimizer: it averages parameters that this rank has updated", s)
	}
	if _, dual := o.opt.(*optim.FTRL); dual && s == PartialUpdate {
		return fmt.Errorf("distopt: strategy %s averages parameters, but optimizer %q recomputes them from its own sums in each step, which discards the averages: use another strategy or optimizer", s, o.opt.Name())
	}
	return nil
}

// Sync averages the parameters if the ranks' copies can differ under the strategy. Tables never
// differ. All ranks must call it before they evaluate, hash or save. Under other strategies Sync
// exchanges no data.
func (o *Optimizer) Sync() error {
	if o.cfg.Strategy != PartialUpdate {
		return nil
	}
	if err := o.between("call Sync"); err != nil {
		return err
	}
	if err := collective.AllReduce(o.group, o.params, collective.Mean); err != nil {
		return &Error{Step: o.step, Doing: "averaging the parameters", Err: err}
	}
	return nil
}
