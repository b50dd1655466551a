package trace

import (
	"fmt"

	"github.com/ringo-ml/ringo/collective"
)

// Each rank's clock counts from its recorder's start. The offset from rank 0's clock is estimated
// as in NTP (Cristian 1989): by a round trip with rank 0's reading halfway. The error is at most
// half the round trip, so the shortest of several round trips is used. Two readings at different
// times also give the drift of the clock.

// pings is the number of round trips of an alignment.
const pings = 32

// reading is a comparison of this rank's clock with rank 0's, in nanoseconds.
type reading struct {
	at     int64 // time of this rank's clock
	offset int64 // offset of rank 0's clock
	bound  int64 // maximum error of offset
}

// trip is a round trip: sent and received times of this rank's clock, and rank 0's time in between.
type trip struct{ left, there, came int64 }

// shortest returns the reading of the shortest trip. trips must not be empty.
func shortest(trips []trip) reading {
	best := trips[0]
	for _, t := range trips[1:] {
		if t.came-t.left < best.came-best.left {
			best = t
		}
	}
	half := (best.came - best.left) / 2
	return reading{at: best.left + half, offset: best.there - (best.left + half), bound: half + 1}
}

// clock converts this rank's times to rank 0's.
type clock struct{ first, last reading }

// newClock returns the clock for readings, earliest first; without readings times stay unchanged.
func newClock(readings []reading) clock {
	if len(readings) == 0 {
		return clock{}
	}
	return clock{readings[0], readings[len(readings)-1]}
}

// offset returns the correction at a time, linear between the readings, because clocks drift.
func (c clock) offset(at int64) int64 {
	switch {
	case at <= c.first.at:
		return c.first.offset
	case at >= c.last.at:
		return c.last.offset
	}
	share := float64(at-c.first.at) / float64(c.last.at-c.first.at)
	return c.first.offset + int64(share*float64(c.last.offset-c.first.offset))
}

// bound returns the maximum error of the clock offset at any time between the first and the last
// comparison of the clocks, if the clocks drift linearly.
func (c clock) bound() int64 { return max(c.first.bound, c.last.bound) }

// Align compares this rank's clock with rank 0's. Align is a collective call before the first
// step. Write aligns again and removes the drift. Cost: 32 round trips per rank but 0,
// sequentially.
func (r *Timeline) Align(g *collective.Group) error {
	if r == nil {
		return nil
	}
	if err := r.align(g); err != nil {
		return fmt.Errorf("trace: aligning the clock of rank %d: %w", g.Rank(), err)
	}
	return nil
}

func (r *Timeline) align(g *collective.Group) error {
	// The barrier detects a rank without a timeline: it would never answer.
	if err := collective.Barrier(g); err != nil {
		return err
	}
	if g.Rank() == 0 {
		for rank := 1; rank < g.Size(); rank++ {
			if err := r.answer(g, rank); err != nil {
				return err
			}
		}
		return nil
	}
	trips := make([]trip, pings)
	for i := range trips {
		if err := r.ask(g, &trips[i]); err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.clocks = append(r.clocks, shortest(trips))
	r.mu.Unlock()
	return nil
}

// answer sends rank 0's time to a rank for each of its requests.
func (r *Timeline) answer(g *collective.Group, rank int) error {
	one := make([]int64, 1)
	for range pings {
		if err := collective.Receive(g, one, rank); err != nil {
			return err
		}
		one[0] = r.rec.Now()
		if err := collective.Send(g, one, rank); err != nil {
			return err
		}
	}
	return nil
}

// ask requests rank 0's time.
func (r *Timeline) ask(g *collective.Group, t *trip) error {
	one := make([]int64, 1)
	t.left = r.rec.Now()
	if err := collective.Send(g, one, 0); err != nil {
		return err
	}
	if err := collective.Receive(g, one, 0); err != nil {
		return err
	}
	t.there, t.came = one[0], r.rec.Now()
	return nil
}
