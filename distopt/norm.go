package distopt

import (
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/simd"
)

// pieceValues is the number of values of a layer with a separate sum of squares.
const pieceValues = 4096

// pieces divides a gradient for its sum of squares: first within each piece, then over the pieces
// in order. The norm therefore has the same bits under any plan and any division of work.
type pieces struct {
	starts  []int // ascending; the last is the end of the arena
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

// first returns the piece that begins at an index of the arena.
func (p *pieces) first(at int) int {
	i, _ := slices.BinarySearch(p.starts, at)
	return i
}

// cut returns each rank's number of values of [lo, hi): whole pieces, in parts as equal as pieces
// allow.
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
