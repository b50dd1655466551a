//go:build !linux

package timeslice

import "time"

// Set only checks: this system has no configurable slices.
func Set(slice time.Duration) error { return Check(slice) }

// Of returns the calling thread's slice; 0 if unsupported.
func Of() (time.Duration, error) { return 0, nil }
