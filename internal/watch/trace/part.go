package trace

import "math"

// part is the spans of a rank.
type part struct {
	rank    int
	offset  int64 // last correction of the times, ns
	bound   int64 // maximum error of the times, ns
	dropped int64
	spans   []span // times of rank 0's clock, none before base
}

// part returns the recorded spans, with times relative to base, in nanoseconds of rank 0's clock.
func (r *Timeline) part(rank int, base int64) part {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := newClock(r.clocks)
	p := part{rank: rank, offset: c.last.offset, bound: c.bound(), dropped: r.dropped, spans: make([]span, len(r.spans))}
	for i, s := range r.spans {
		s.start += c.offset(s.start) - base
		p.spans[i] = s
	}
	return p
}

// earliest returns the first span's begin in rank 0's clock, or the largest number.
func (r *Timeline) earliest() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := newClock(r.clocks)
	first := int64(math.MaxInt64)
	for _, s := range r.spans {
		first = min(first, s.start+c.offset(s.start))
	}
	return first
}
