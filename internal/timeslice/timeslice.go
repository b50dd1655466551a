// Package timeslice says for how long the system's scheduler lets a thread run while
// others wait for its core.
//
// A thread that communicates computes little and sleeps often. When a message wakes
// it on a core where another thread computes, a system with Linux's EEVDF lets that
// one end its slice first, 0.7 to 3 ms, in which the message could have been passed
// on. Threads with slices of 100 us are interrupted sooner. What a thread gets of a
// core in all does not depend on it.
package timeslice

import (
	"fmt"
	"time"
)

// Short is the least that Linux gives.
const Short = 100 * time.Microsecond

// Longest is the most that Linux gives.
const Longest = 100 * time.Millisecond

// Check refuses slices that [Set] would not take.
func Check(slice time.Duration) error {
	if slice < Short || slice > Longest {
		return fmt.Errorf("time slice %v: want %v to %v", slice, Short, Longest)
	}
	return nil
}
