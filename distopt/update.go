package distopt

import (
	"fmt"
	"math"
	"sort"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// scale turns the sum over accumulated backwards, and over the ranks where they
// exchange gradients, into the mean: in the update's own pass over the values.
func (o *Optimizer) scale() float32 {
	n := o.cfg.Accumulation
	if o.cfg.Strategy != PartialUpdate {
		n *= o.group.Size()
	}
	return 1 / float32(n)
}

// tableScale is scale for tables, which the ranks exchange in every strategy.
func (o *Optimizer) tableScale() float32 {
	return 1 / float32(o.cfg.Accumulation*o.group.Size())
}

// update applies the rule to a part of the arenas, which a timeline shows under
// that name.
func (o *Optimizer) update(name record.Name, lo, hi int, scale float32) {
	if o.opt == nil {
		return
	}
	begun := o.watch.rec.Now()
	o.opt.Update(lo, o.params[lo:hi], o.grads[lo:hi], scale)
	o.watch.updated(name, begun)
}

func (o *Optimizer) updateTables(factor float32) {
	if len(o.tables.list) == 0 {
		return
	}
	if err := o.unsoundRows(); err != nil {
		o.alike = true
		o.failStep("", err)
		return
	}
	begun := o.watch.rec.Now()
	o.tables.update(o.tableScale() * factor)
	o.watch.updated(o.watch.words.tables, begun)
}

// clipFactor is what the gradients of the arena, of the tables or of both are
// to be multiplied by so that their norm together is at most ClipNorm (Pascanu
// et al. 2013); 1 where clipping is off. The norm has the same bits on every
// rank where the gradients have. ok is false when there is none.
func (o *Optimizer) clipFactor(dense, rows bool) (factor float32, ok bool) {
	if o.cfg.ClipNorm == 0 {
		return 1, true
	}
	sum := 0.0
	if dense {
		if !o.shards.on { // else it is measured
			o.pieces.measure(o.kernels, o.grads)
		}
		sum += squared(o.scale()) * o.pieces.sum()
	}
	if rows {
		sum += squared(o.tableScale()) * o.tables.sumSquares(o.kernels)
	}
	norm := math.Sqrt(sum)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		o.alike = !dense || o.cfg.Strategy != PartialUpdate // else the gradient is this rank's own
		o.failStep("", fmt.Errorf("the norm of the gradient is %s, first in %s: %s", quantity.Exact(norm), o.firstNotFinite(), whyNotFinite))
		return 0, false
	}
	if norm > o.cfg.ClipNorm {
		return float32(o.cfg.ClipNorm / norm), true
	}
	return 1, true
}

func squared(x float32) float64 { return float64(x) * float64(x) }

// firstNotFinite names the first layer or table whose gradient holds a NaN or
// an infinity.
func (o *Optimizer) firstNotFinite() string {
	for i, s := range o.pieces.squares { // the square of a float32 is finite
		if s-s != 0 {
			return "layer " + o.layerAt(o.pieces.starts[i])
		}
	}
	for _, t := range o.tables.list {
		if !finite(t.sumRows) {
			return "table " + t.Name
		}
	}
	return "none (the sum of squares overflows)"
}

func finite(x []float32) bool {
	i, _ := notFinite(x)
	return i < 0
}

// notFinite returns the place of the first NaN or infinity in x, and its value; -1 without one.
func notFinite(x []float32) (int, float32) {
	for i, v := range x {
		if v-v != 0 {
			return i, v
		}
	}
	return -1, 0
}

// sound reports whether a bucket's gradient is finite, which costs a pass over it. Else the step
// fails before the bucket updates anything, or is sent to servers that would.
func (o *Optimizer) sound(b int) bool {
	if err := o.unsound(b); err != nil {
		o.failBucket(b, "", err)
		return false
	}
	return true
}

// soundAll is sound of all buckets.
func (o *Optimizer) soundAll() bool {
	for b := range o.plan {
		if !o.sound(b) {
			return false
		}
	}
	return true
}

// unsound returns why a bucket's gradient is not finite; nil if it is.
func (o *Optimizer) unsound(b int) error {
	k := o.plan[b]
	if s := o.kernels.SumSquares(o.grads[k.Lo:k.Hi]); s-s == 0 {
		return nil
	}
	at, v := notFinite(o.grads[k.Lo:k.Hi])
	return o.diverged(k.Lo+at, v)
}

// unsoundRows returns why the agreed sums of tables are not finite; nil if they are.
func (o *Optimizer) unsoundRows() error {
	for _, t := range o.tables.list {
		if s := o.kernels.SumSquares(t.sumRows) + o.kernels.SumSquares(t.restRows); s-s != 0 {
			return t.diverged()
		}
	}
	return nil
}

const whyNotFinite = "lower the learning rate, or look for a fault in the data or the model"

// diverged is the error of a gradient that is not finite at a place of the arena.
func (o *Optimizer) diverged(at int, v float32) error {
	return fmt.Errorf("the gradient of layer %s is %s: %s", o.layerAt(at), quantity.Exact(v), whyNotFinite)
}

// diverged is the error of rows of a gradient that are not finite.
func (t *table) diverged() error {
	return fmt.Errorf("the gradient of table %s is not finite: %s", t.Name, whyNotFinite)
}

// layerAt names the layer at a place of the arena.
func (o *Optimizer) layerAt(at int) string {
	return o.layers[sort.Search(len(o.layers), func(l int) bool { return o.layers[l].Offset > at })-1].Name
}
