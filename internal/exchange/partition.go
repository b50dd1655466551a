package exchange

import (
	"math/bits"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
)

// partition divides a bucket among its owners: part i is from border i to border i+1. The sum has
// the same bits for any borders.
type partition struct {
	borders []int // ranks+1 borders; empty: none yet
	old     []int // previous borders
	used    int   // exchanges since the last check
}

const (
	cellsPerPart = 8 // histogram cells of a part
	maxRounds    = 4 // rounds of moving borders
)

// partition checks the borders before the first exchange of a bucket, from even parts, and after
// every Config.Rebalance exchanges.
//
// Each rank counts its entries in a histogram of 8 cells per part, and an allreduce of 32 N bytes
// adds all histograms. If a part has more than 5/4 of the mean, all ranks move the borders so that
// equal numbers of entries are between them. The next round has smaller cells in regions with many
// entries; there are at most 4 rounds. The histogram has integers and is equal on all ranks;
// therefore the borders are too. Ok-Topk averages borders that each rank computes alone, which
// fails if ranks differ.
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

// rebalance does one round of partition; it reports whether borders moved.
func (e *GroupReducer) rebalance(p *partition, s *compress.Sparse) (moved bool, err error) {
	e.cells = bytesview.Sized(e.cells, cellsPerPart*e.size)
	countCells(e.cells, p.borders, s.Index)
	if shift := max(0, bits.Len64(uint64(s.Len))+bits.Len(uint(e.size))-31); shift > 0 {
		for i := range e.cells { // so that the sum does not overflow
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

// move moves the inner borders so that equal numbers of entries are between them, if a part exceeds
// the mean by too much. It assumes an even distribution within a cell.
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
