package trace

import (
	"fmt"

	"github.com/ringo-ml/ringo/collective"
)

// Ranks have clocks of their own, each counting from its recorder's start. How far
// another rank's is from rank 0's is estimated as NTP does (Cristian 1989): a
// message there and back, on the half of whose way rank 0 looked at its clock.
// That is wrong by at most half the round trip, so the shortest of several
// counts. Two readings far apart also show at what rate the clocks drift.

// pings is how many round trips an alignment takes.
const pings = 32

// reading is a comparison of this rank's clock with rank 0's, in nanoseconds.
type reading struct {
	at     int64 // by this rank's clock
	offset int64 // to be added to it
	bound  int64 // by which offset may be wrong
}

// trip is a message there and back: when it left and came, by this rank's clock,
// and rank 0's time in between.
type trip struct{ left, there, came int64 }

// shortest is what the shortest trip says. There is at least one.
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

// clock turns this rank's times into rank 0's.
type clock struct{ first, last reading }

// newClock is the clock of one or more readings, earliest first; of none it
// leaves times as they are.
func newClock(readings []reading) clock {
	if len(readings) == 0 {
		return clock{}
	}
	return clock{readings[0], readings[len(readings)-1]}
}

// offset is what to add at a time: between the readings it goes from the first's
// to the last's evenly, because clocks of different hosts drift apart.
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

// bound is by how much an offset between the readings may be wrong, if the
// clocks drift evenly.
func (c clock) bound() int64 { return max(c.first.bound, c.last.bound) }

// Align compares this rank's clock with rank 0's. It is a collective call: before
// the first step, since Write does it once more, so that a drift between the two
// is taken out. It takes 32 round trips for each rank but 0, one rank after the
// other.
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
	// A rank that records nothing, and would never answer, is found here.
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

// answer tells a rank the time as often as it asks.
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

// ask asks rank 0 for the time.
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
