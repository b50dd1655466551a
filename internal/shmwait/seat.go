package shmwait

import (
	"slices"
	"sync/atomic"
)

// Seat is where a rank was last seen: the number of its processor, plus one, in memory that the ranks share. 0 is
// nowhere. It is a hint: what is written there decides how ranks wait and for how long they yield to each other,
// never whether a wait ends.
//
// A wait that yields loses its core to whoever is there, a stranger too, for as long as the system likes: milliseconds.
// It is worth it only where another rank needs the core, which the counter that is waited for does not tell, nor how long
// the call took.
type Seat struct{ n atomic.Uint32 }

// Sit notes on which processor this rank runs, and reports whether that is known. It costs a system call, a tenth of a
// microsecond: for now and then.
func (w *Waiter) Sit() bool {
	if w.seats == nil {
		return false
	}
	number, ok := processor()
	if ok && w.seats[w.me].n.Load() != number+1 { // the others read the line all the time
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

// OtherCore reports whether rank i was last seen on another core than this one.
func (w *Waiter) OtherCore(i int) bool {
	if w.seats == nil {
		return false
	}
	theirs, mine := w.seats[i].n.Load(), w.seats[w.me].n.Load()
	return theirs != 0 && mine != 0 && theirs != mine
}

// Order appends the ranks but me, each once, of so many, in the order in which to wait for all of them: those that may need this
// core to get there come first, so that who comes to the ones that are apart finds nobody to give it to. Each is looked at once, as
// seats may change meanwhile.
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

// sitDown is Sit and InCompany.
func (w *Waiter) sitDown() bool {
	w.Sit()
	return w.InCompany()
}
