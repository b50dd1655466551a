package distopt

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// scale is the factor that makes a mean of a sum over backward passes and over virtual workers, or
// over ranks if they exchange gradients. The update multiplies by scale in the same pass.
func (o *Optimizer) scale() float32 {
	n := o.cfg.Accumulation
	switch {
	case o.cfg.Workers != nil:
		n *= o.cfg.Workers.Count
	case o.cfg.Strategy != PartialUpdate:
		n *= o.group.Size()
	}
	return 1 / float32(n)
}

// tableScale is scale for tables: ranks exchange their gradients in every strategy.
func (o *Optimizer) tableScale() float32 {
	return 1 / float32(o.cfg.Accumulation*o.group.Size())
}

// update applies the optimizer to values [lo, hi) of the arenas. name is the label in a timeline.
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

// clipFactor returns the factor that limits the joint norm of dense and table gradients, if
// selected by the arguments, to ClipNorm (Pascanu et al. 2013); 1 without ClipNorm. The norm has
// the same bits on every rank if the gradients have. ok is false for a norm that is not finite.
func (o *Optimizer) clipFactor(dense, rows bool) (factor float32, ok bool) {
	if o.cfg.ClipNorm == 0 {
		return 1, true
	}
	sum := 0.0
	if dense {
		if !o.shards.on { // otherwise measured already
			o.pieces.measure(o.kernels, o.grads)
		}
		sum += squared(o.scale()) * o.pieces.sum()
	}
	if rows {
		sum += squared(o.tableScale()) * o.tables.sumSquares(o.kernels)
	}
	norm := math.Sqrt(sum)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		o.alike = !dense || o.cfg.Strategy != PartialUpdate // otherwise the gradient is this rank's
		o.failStep("", fmt.Errorf("the norm of the gradient is %s, first in %s: %s", quantity.Exact(norm), o.firstNotFinite(), whyNotFinite))
		return 0, false
	}
	if norm > o.cfg.ClipNorm {
		return float32(o.cfg.ClipNorm / norm), true
	}
	return 1, true
}

func squared(x float32) float64 { return float64(x) * float64(x) }

// firstNotFinite names the first layer or table with a NaN or an infinity in its gradient.
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

// notFinite returns the index and value of the first NaN or infinity in x, or -1.
func notFinite(x []float32) (int, float32) {
	for i, v := range x {
		if v-v != 0 {
			return i, v
		}
	}
	return -1, 0
}

// sound reports whether a bucket's gradient is finite, at the cost of a pass. If not, it fails the
// step before the bucket updates a parameter or is sent to servers.
func (o *Optimizer) sound(b int) bool {
	if err := o.unsound(b); err != nil {
		o.failBucket(b, "", err)
		return false
	}
	return true
}

func (o *Optimizer) soundAll() bool {
	for b := range o.plan {
		if !o.sound(b) {
			return false
		}
	}
	return true
}

func (o *Optimizer) unsound(b int) error {
	k := o.plan[b]
	if s := o.kernels.SumSquares(o.grads[k.Lo:k.Hi]); s-s == 0 {
		return nil
	}
	at, v := notFinite(o.grads[k.Lo:k.Hi])
	return o.diverged(k.Lo+at, v)
}

func (o *Optimizer) unsoundRows() error {
	for _, t := range o.tables.list {
		if s := o.kernels.SumSquares(t.sumRows) + o.kernels.SumSquares(t.restRows); s-s != 0 {
			return t.diverged()
		}
	}
	return nil
}

const whyNotFinite = "lower the learning rate, or check the data and the model"

// diverged returns the error of a gradient value that is not finite at an index of the arena.
func (o *Optimizer) diverged(at int, v float32) error {
	return fmt.Errorf("the gradient of layer %s is %s: %s", o.layerAt(at), quantity.Exact(v), whyNotFinite)
}

// diverged returns the error of a table gradient that is not finite.
func (t *table) diverged() error {
	return fmt.Errorf("the gradient of table %s is not finite: %s", t.Name, whyNotFinite)
}

func (o *Optimizer) layerAt(at int) string {
	return o.layers[sort.Search(len(o.layers), func(l int) bool { return o.layers[l].Offset > at })-1].Name
}

// pieceValues is the maximum length, in values, of one of pieces.
const pieceValues = 4096

// pieces divides a gradient for its sum of squares: first over the values of each piece, then over
// the pieces in order. The norm therefore has the same bits under any plan and any number of ranks.
type pieces struct {
	starts  []int // ascending; the last is the end of the arena
	squares []float64
}

// piecesOf cuts the layers into pieces of at most pieceValues values.
func piecesOf(layers []bucket.Param) pieces {
	var p pieces
	at := 0
	for _, l := range layers {
		for at < l.Offset+l.Len {
			p.starts = append(p.starts, at)
			at = min(at+pieceValues, l.Offset+l.Len)
		}
	}
	p.starts = append(p.starts, at)
	return p
}

// first returns the piece that begins at an index of the arena.
func (p *pieces) first(at int) int {
	i, _ := slices.BinarySearch(p.starts, at)
	return i
}

// cut divides the pieces of [lo, hi) between the ranks as equally as possible and returns each
// rank's number of values.
func (p *pieces) cut(lo, hi, ranks int) []int {
	counts, at := make([]int, ranks), lo
	for r := range ranks - 1 {
		want := lo + int(int64(hi-lo)*int64(r+1)/int64(ranks))
		i := p.first(want)
		if i > 0 && want-p.starts[i-1] < p.starts[i]-want {
			i--
		}
		end := max(lo, min(hi, p.starts[i]))
		counts[r], at = end-at, end
	}
	counts[ranks-1] = hi - at
	return counts
}

// measure sets the sum of squares of each piece.
func (p *pieces) measure(k *simd.Kernels, grads []float32) {
	p.grow()
	for i := range p.squares {
		p.squares[i] = k.SumSquares(grads[p.starts[i]:p.starts[i+1]])
	}
}

func (p *pieces) grow() {
	if p.squares == nil {
		p.squares = make([]float64, len(p.starts)-1)
	}
}

// share exchanges the sums of all ranks' pieces.
func (p *pieces) share(g *collective.Group) error {
	return collective.AllReduce(g, p.squares, collective.Sum) // exact, because other ranks add zeros
}

func (p *pieces) sum() (sum float64) {
	for _, s := range p.squares {
		sum += s
	}
	return sum
}

// measurePieces sums the squares of a bucket's pieces that end at or before end in the arena.
func (o *Optimizer) measurePieces(h *shard, end int) {
	p := &o.pieces
	for ; p.starts[h.piece] < h.hi && p.starts[h.piece+1] <= end; h.piece++ {
		p.squares[h.piece] = o.kernels.SumSquares(o.grads[p.starts[h.piece]:p.starts[h.piece+1]])
	}
}
