package distopt

import (
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/simd"
)

// pieceValues is how many values of a layer have a sum of squares of their own.
const pieceValues = 4096

// pieces are what the squares of a gradient are summed by: each of a layer's pieces, then
// the pieces in their order. So the norm has the same bits whoever sums which of them, and
// whatever the plan.
type pieces struct {
	starts  []int // ascending; after the last, where the arena ends
	squares []float64
}

// piecesOf cuts layers.
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

// first is the piece that begins at a place.
func (p *pieces) first(at int) int {
	i, _ := slices.BinarySearch(p.starts, at)
	return i
}

// cut returns how many values of [lo, hi) each of so many ranks has: whole pieces, as near
// to equal parts as these allow.
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

// measure sums the squares of all pieces.
func (p *pieces) measure(k *simd.Kernels, grads []float32) {
	p.grow()
	for i := range p.squares {
		p.squares[i] = k.SumSquares(grads[p.starts[i]:p.starts[i+1]])
	}
}

// grow makes p.squares, once.
func (p *pieces) grow() {
	if p.squares == nil {
		p.squares = make([]float64, len(p.starts)-1)
	}
}

// share gives all ranks the sums that each rank has made of its own pieces.
func (p *pieces) share(g *collective.Group) error {
	return collective.AllReduce(g, p.squares, collective.Sum) // to zeros: exact
}

// sum adds the pieces.
func (p *pieces) sum() (sum float64) {
	for _, s := range p.squares {
		sum += s
	}
	return sum
}

// measurePieces sums the squares of those of a bucket's pieces that end at a place of the
// arena or before.
func (o *Optimizer) measurePieces(h *shard, end int) {
	p := &o.pieces
	for ; p.starts[h.piece] < h.hi && p.starts[h.piece+1] <= end; h.piece++ {
		p.squares[h.piece] = o.kernels.SumSquares(o.grads[p.starts[h.piece]:p.starts[h.piece+1]])
	}
}
