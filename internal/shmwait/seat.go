package shmwait

import (
	"slices"
	"sync/atomic"
)

// Seat is the last known processor of a rank: its number plus one, in shared memory, or 0 for
// unknown. A Seat is a hint: seats affect the way and the duration of waits, never their end.
//
// A wait that yields loses its core to any waiting thread, including other jobs', for a time chosen
// by the scheduler: milliseconds. Yielding is worthwhile only if another rank needs the core.
// Neither the awaited counter nor the duration of the yield shows that, but the seats of the ranks
// do.
type Seat struct{ n atomic.Uint32 }

// Sit records this rank's processor, and reports whether the processor is known. Cost: a system
// call, 0.1 us, so Sit should be rare.
func (w *Waiter) Sit() bool {
	if w.seats == nil {
		return false
	}
	number, ok := processor()
	if ok && w.seats[w.me].n.Load() != number+1 { // other ranks read this cache line all the time
		w.seats[w.me].n.Store(number + 1)
	}
	return ok
}

// InCompany reports whether another rank may need this rank's core.
func (w *Waiter) InCompany() bool {
	if w.seats == nil {
		return w.crowded
	}
	mine := w.seats[w.me].n.Load()
	for i, s := range w.seats {
		if theirs := s.n.Load(); i != w.me && (theirs == mine || theirs == 0 && w.crowded) {
			return true
		}
	}
	return false
}

// OtherCore reports whether rank i was last on another core.
func (w *Waiter) OtherCore(i int) bool {
	if w.seats == nil {
		return false
	}
	theirs, mine := w.seats[i].n.Load(), w.seats[w.me].n.Load()
	return theirs != 0 && mine != 0 && theirs != mine
}

// Order appends all of the given number of ranks except me, in the order for waiting on all of
// them: first the ranks that may need this core, so that the later waits need not yield. Each seat
// is read once, because seats may change.
func (w *Waiter) Order(to []int, ranks, me int) []int {
	beside := len(to)
	for i := range ranks {
		switch {
		case i == me:
		case w.OtherCore(i):
			to = append(to, i)
		default:
			to = slices.Insert(to, beside, i)
			beside++
		}
	}
	return to
}

func (w *Waiter) sitDown() bool {
	w.Sit()
	return w.InCompany()
}
