package exchange

import (
	"math/bits"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
)

// partition is how a bucket is parted among its owners: part i is from border i to
// border i+1. The sum has the same bits whatever the borders are.
type partition struct {
	borders []int // one more than ranks; empty: none yet
	old     []int // where they were
	used    int   // exchanges since they were looked at
}

const (
	cellsPerPart = 8 // of the histogram
	maxRounds    = 4 // of moving borders
)

// partition sees to the borders: they are looked at before the first exchange of a
// bucket, in even parts, and after every Config.Rebalance.
//
// Each rank counts its entries in a histogram of 8 cells for each part, all add these,
// and where a part has more than 5/4 of the mean, all move the borders to where the
// sum says that equal numbers lie between them. Cells follow the borders, so that
// the next round sees the crowded places closer; at most 4 rounds. The histogram is
// of integers and the same on all ranks: so are the borders. A round is an allreduce
// of 32 N bytes. Ok-Topk takes the mean of borders that each rank finds for itself,
// which misses where ranks differ.
func (e *GroupReducer) partition(h *requestState) error {
	p, n := &h.part, len(h.op.X)
	if len(p.borders) == 0 || p.borders[e.size] != n {
		p.borders = bytesview.Sized(p.borders, e.size+1)
		for i := range p.borders {
			p.borders[i] = int(int64(n) * int64(i) / int64(e.size))
		}
		p.used = e.cfg.Rebalance
	}
	if p.used < e.cfg.Rebalance {
		p.used++
		return nil
	}
	p.used = 1
	for range maxRounds {
		moved, err := e.rebalance(p, h.op.Sparse)
		if err != nil || !moved {
			return err
		}
	}
	return nil
}

// rebalance is a round; it tells whether borders were moved.
func (e *GroupReducer) rebalance(p *partition, s *compress.Sparse) (moved bool, err error) {
	e.cells = bytesview.Sized(e.cells, cellsPerPart*e.size)
	countCells(e.cells, p.borders, s.Index)
	if shift := max(0, bits.Len64(uint64(s.Len))+bits.Len(uint(e.size))-31); shift > 0 {
		for i := range e.cells { // so that the sum fits
			e.cells[i] >>= shift
		}
	}
	if err := collective.AllReduce(e.dup, e.cells, collective.Sum); err != nil {
		return false, err
	}
	return p.move(e.cells), nil
}

// cellStart is where cell c of a part from lo to hi begins.
func cellStart(lo, hi, c int) int { return lo + int(int64(hi-lo)*int64(c)/cellsPerPart) }

// countCells counts the entries in each cell of all parts.
func countCells(cells []int32, borders []int, index []int32) {
	at := 0
	for p := range len(borders) - 1 {
		for c := range cellsPerPart {
			end, start := cellStart(borders[p], borders[p+1], c+1), at
			for at < len(index) && int(index[at]) < end {
				at++
			}
			cells[p*cellsPerPart+c] = int32(at - start)
		}
	}
}

// move moves the inner borders to where equal numbers of entries lie between
// them, if those of a part exceed the mean by too much. Inside a cell entries are
// taken to lie evenly.
func (p *partition) move(cells []int32) bool {
	parts := len(p.borders) - 1
	total, most := int64(0), int64(0)
	for i := range parts {
		part := int64(0)
		for _, n := range cells[i*cellsPerPart:][:cellsPerPart] {
			part += int64(n)
		}
		total, most = total+part, max(most, part)
	}
	if 4*most*int64(parts) <= 5*total || most <= 1 {
		return false
	}
	p.old = append(p.old[:0], p.borders...)
	next, before := 1, int64(0)
	for i, n := range cells {
		lo, hi := p.old[i/cellsPerPart], p.old[i/cellsPerPart+1]
		start, end := cellStart(lo, hi, i%cellsPerPart), cellStart(lo, hi, i%cellsPerPart+1)
		for ; next < parts && before+int64(n) >= total*int64(next)/int64(parts) && n > 0; next++ {
			want := total*int64(next)/int64(parts) - before
			p.borders[next] = start + int(int64(end-start)*want/int64(n))
		}
		before += int64(n)
	}
	return true
}
