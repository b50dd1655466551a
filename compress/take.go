package compress

import (
	"github.com/ringo-ml/ringo/internal/simd"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// takeChunk is the number of values processed together, so that a second pass finds them in the
// nearest cache. takePass is the number of values of a pass after which the number of entries is
// compared with the limit.
const (
	takeChunk = 4 << 10
	takePass  = 16 << 10
)

// take is a pass over residual and grad that moves the entries of magnitude least or more to a
// Sparse, on all threads of the pool.
type take struct {
	residual, grad []float32 // nil: none
	base           int
	least          uint32 // bits of the magnitude
	limit          int    // maximum count, above which the pass stops
	expected       int    // approximate count
}

// segment is one thread's part of a pass.
type segment struct {
	lo, done, hi int
	count        int
	index        []int32
	value        []float32
}

// minSegment is the shortest part of a pass, in values, that is worth a thread.
const minSegment = 1 << 16

// over runs the pass w.take over all values, appends the selected entries to s and returns their
// number. If the number exceeds the limit, s does not change, and over only adds grad to residual.
func (w *Workspace) over(s *Sparse) int {
	n := len(w.take.residual)
	if w.take.limit > n {
		w.take.limit = n
	}
	threads := 1
	if w.pool != nil {
		threads = max(1, min(w.pool.Threads(), n/minSegment))
	}
	if threads == 1 {
		return w.alone(s)
	}
	w.segments = bytesview.Sized(w.segments, max(threads, len(w.segments)))
	for i := range threads {
		g := &w.segments[i]
		g.lo, g.hi = n/threads*i, n/threads*(i+1)
		if i == threads-1 {
			g.hi = n
		}
		room := min(w.take.limit+takePass, g.hi-g.lo)
		g.index, g.value = bytesview.Sized(g.index, room), bytesview.Sized(g.value, room)
	}
	w.kernel() // sets w.kernels before threads read it
	if w.part == nil {
		w.part = func(i int) { w.segment(&w.segments[i]) }
	}
	w.pool.Run(threads, w.part)
	return w.join(s, w.segments[:threads])
}

// alone is over on the caller's thread, without separate memory per thread.
func (w *Workspace) alone(s *Sparse) int {
	n, start := len(w.take.residual), len(s.Index)
	room := min(w.take.limit+takePass, n)
	s.Reserve(room)
	g := segment{hi: n, index: s.Index[start : start+room], value: s.Value[start : start+room]}
	w.segment(&g)
	if g.count > w.take.limit {
		w.undo(&g)
	} else {
		s.Index, s.Value = s.Index[:start+g.count], s.Value[:start+g.count]
	}
	return g.count
}

// join appends the entries of all threads, in order.
func (w *Workspace) join(s *Sparse, parts []segment) int {
	count := 0
	for i := range parts {
		count += parts[i].count
	}
	if count > w.take.limit {
		for i := range parts {
			w.undo(&parts[i])
		}
		return count
	}
	s.Reserve(count)
	for i := range parts {
		g := &parts[i]
		s.Index = append(s.Index, g.index[:g.count]...)
		s.Value = append(s.Value, g.value[:g.count]...)
	}
	return count
}

// segment does a part of the pass, until the count exceeds the limit.
func (w *Workspace) segment(g *segment) {
	t, k := &w.take, w.kernel()
	g.done, g.count = g.lo, 0
	often := simd.OftenOf(t.expected, len(t.residual))
	for g.done < g.hi && g.count <= t.limit {
		to, took := min(g.done+takePass, g.hi), 0
		index, value, base := g.index[g.count:], g.value[g.count:], int32(t.base+g.done)
		if t.grad == nil {
			took = k.Take(index, value, t.residual[g.done:to], t.least, base, often)
		} else {
			took = k.TakeAdded(index, value, t.residual[g.done:to], t.grad[g.done:to], t.least, base, often)
		}
		often = simd.OftenOf(took, to-g.done)
		g.count, g.done = g.count+took, to
	}
}

// undo moves a segment's entries back to the residual and adds the rest of grad.
func (w *Workspace) undo(g *segment) {
	t := &w.take
	putBack(t.residual, t.base, g.index[:g.count], g.value[:g.count])
	if t.grad != nil {
		w.kernel().Add(t.residual[g.done:g.hi], t.grad[g.done:g.hi])
	}
}

func putBack(residual []float32, base int, index []int32, value []float32) {
	for i, at := range index {
		residual[int(at)-base] = value[i]
	}
}

// giveBack returns the entries from start on to the residual.
func (s *Sparse) giveBack(start int, residual []float32, base int) {
	putBack(residual, base, s.Index[start:], s.Value[start:])
	s.Index, s.Value = s.Index[:start], s.Value[:start]
}
