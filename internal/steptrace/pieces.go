package steptrace

import (
	"container/heap"
	"slices"
)

// piece is a time in which a rank does one thing: what it does while several spans are open is a function of these alone.
type piece struct {
	start, end int64
	// span is which of the rank's it belongs to, -1 while it is idle: of what is computed the one that began last, which lies within the
	// others; of exchanges the one that ends first, for which the rank waits.
	span int
	kind spanKind
}

// hidden is how long a rank had exchanges under way, and how long it computed meanwhile.
type hidden struct{ exchange, computing int64 }

// queue are open spans of one kind, the one that counts first; others whose end has passed may be among them.
type queue struct {
	spans  []Span
	open   []int
	before func(a, b int) bool
}

// Len, Less, Swap, Push and Pop are heap.Interface's.
func (q *queue) Len() int           { return len(q.open) }
func (q *queue) Less(i, j int) bool { return q.before(q.open[i], q.open[j]) }
func (q *queue) Swap(i, j int)      { q.open[i], q.open[j] = q.open[j], q.open[i] }
func (q *queue) Push(x any)         { q.open = append(q.open, x.(int)) }
func (q *queue) Pop() any {
	last := q.open[len(q.open)-1]
	q.open = q.open[:len(q.open)-1]
	return last
}

// at is the span that counts at a time, -1 without any.
func (q *queue) at(t int64) int {
	for len(q.open) > 0 && q.spans[q.open[0]].End <= t {
		heap.Pop(q)
	}
	if len(q.open) == 0 {
		return -1
	}
	return q.open[0]
}

// queues are one for each kind but kindIdle.
func queues(spans []Span) (all [kindIdle]queue) {
	for k := range all {
		all[k] = queue{spans: spans, before: func(a, b int) bool { return a > b }} // spans are by their start
	}
	all[kindExchange].before = func(a, b int) bool {
		return spans[a].End < spans[b].End || spans[a].End == spans[b].End && a < b
	}
	return all
}

// pieces cuts what a rank did from lo until hi into pieces that follow each other without a gap. The cost is that of sorting.
func (r *Rank) pieces(lo, hi int64) (out []piece, h hidden) {
	// A sweep over the places at which something begins or ends. What has ended stays in its queue until it comes to the front, so that
	// each span is pushed and popped once.
	open := queues(r.Spans)
	next := 0 // span to begin
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

// cuts are the times from lo to hi between which the same spans are open.
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

// window is the time that all ranks have recorded: to the last span's end or, where spans were left out, to where the first rank's
// spans end that had more.
func (t *Timeline) window() (lo, hi int64) {
	// Behind where a rank's spans were cut it would seem idle.
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
