package steptrace

import (
	"container/heap"
	"slices"
)

// piece is a period with a single activity of a rank, determined by the set of open spans alone.
type piece struct {
	start, end int64
	// span is the piece's index among the rank's spans, -1 while idle: for computation, the span
	// that began last, nested in the rest; for exchanges, the first to end, awaited by the rank.
	span int
	kind spanKind
}

// hidden is the time with exchanges in progress, and the time of computation within.
type hidden struct{ exchange, computing int64 }

// queue is the open spans of a kind, by priority; ended spans stay until they reach the front.
type queue struct {
	spans  []Span
	open   []int
	before func(a, b int) bool
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (q *queue) Len() int           { return len(q.open) }
func (q *queue) Less(i, j int) bool { return q.before(q.open[i], q.open[j]) }
func (q *queue) Swap(i, j int)      { q.open[i], q.open[j] = q.open[j], q.open[i] }
func (q *queue) Push(x any)         { q.open = append(q.open, x.(int)) }
func (q *queue) Pop() any {
	last := q.open[len(q.open)-1]
	q.open = q.open[:len(q.open)-1]
	return last
}

// at returns the span with priority at a time, or -1.
func (q *queue) at(t int64) int {
	for len(q.open) > 0 && q.spans[q.open[0]].End <= t {
		heap.Pop(q)
	}
	if len(q.open) == 0 {
		return -1
	}
	return q.open[0]
}

func queues(spans []Span) (all [kindIdle]queue) {
	for k := range all {
		all[k] = queue{spans: spans, before: func(a, b int) bool { return a > b }} // spans are sorted by start
	}
	all[kindExchange].before = func(a, b int) bool {
		return spans[a].End < spans[b].End || spans[a].End == spans[b].End && a < b
	}
	return all
}

// pieces divides a rank's time from lo to hi into pieces without gaps. Cost: that of sorting.
func (r *Rank) pieces(lo, hi int64) (out []piece, h hidden) {
	// A sweep over all begins and ends. Ended spans stay in their queue until they reach the front,
	// so each span is pushed and popped once.
	open := queues(r.Spans)
	next := 0 // index of the next span to begin
	times := cuts(r.Spans, lo, hi)
	for i, now := range times[:len(times)-1] {
		for ; next < len(r.Spans) && r.Spans[next].Start <= now; next++ {
			heap.Push(&open[kindOf(r.Spans[next].Track)], next)
		}
		p := piece{start: now, end: times[i+1], kind: kindIdle, span: -1}
		exchanging := open[kindExchange].at(now) >= 0
		for k := range open {
			if at := open[k].at(now); at >= 0 {
				p.kind, p.span = spanKind(k), at
				break
			}
		}
		if exchanging {
			h.exchange += p.end - p.start
			if p.kind == kindCompute {
				h.computing += p.end - p.start
			}
		}
		if n := len(out); n > 0 && out[n-1].kind == p.kind && out[n-1].span == p.span {
			out[n-1].end = p.end
			continue
		}
		out = append(out, p)
	}
	return out, h
}

// cuts returns the times from lo to hi at which the set of open spans changes.
func cuts(spans []Span, lo, hi int64) []int64 {
	times := []int64{lo, hi}
	for _, s := range spans {
		for _, t := range [...]int64{s.Start, s.End} {
			if lo < t && t < hi {
				times = append(times, t)
			}
		}
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// window returns the time recorded by all ranks: until the last span's end or, if spans were
// dropped, until the first end of an incomplete rank's spans.
func (t *Timeline) window() (lo, hi int64) {
	// After its last recorded span an incomplete rank would look idle.
	first, cut := true, int64(-1)
	for _, r := range t.Ranks {
		last := int64(0)
		for _, s := range r.Spans {
			if first || s.Start < lo {
				lo, first = s.Start, false
			}
			last = max(last, s.End)
		}
		if hi = max(hi, last); r.LeftOut > 0 && (cut < 0 || last < cut) {
			cut = last
		}
	}
	if cut >= 0 {
		hi = min(hi, cut)
	}
	return lo, max(lo, hi)
}
