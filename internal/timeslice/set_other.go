//go:build !linux

package timeslice

import "time"

// Set does nothing: this system has no slices that a process may choose.
func Set(slice time.Duration) error { return Check(slice) }

// Of is the calling thread's slice; 0 where the system has none of threads.
func Of() (time.Duration, error) { return 0, nil }
