// Package timeslice sets a thread's time slice on a shared core.
//
// Communication threads compute little and sleep often. If a message wakes such a thread on the
// core of a computing thread, Linux's EEVDF finishes the slice first, which delays the message by
// 0.7 to 3 ms. Threads with slices of 100 us preempt sooner. The share of a core does not depend on
// the slice.
package timeslice

import (
	"fmt"
	"time"
)

// Short is the minimum slice of Linux.
const Short = 100 * time.Microsecond

// Longest is the maximum slice of Linux.
const Longest = 100 * time.Millisecond

// Check returns an error for slices that [Set] rejects.
func Check(slice time.Duration) error {
	if slice < Short || slice > Longest {
		return fmt.Errorf("time slice %v: want %v to %v", slice, Short, Longest)
	}
	return nil
}
