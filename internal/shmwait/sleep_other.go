//go:build !linux

package shmwait

import (
	"runtime"
	"time"
)

// Elsewhere there is no documented sleep on a word of shared memory: a wait that
// takes long looks every so often.

func (f *Flag) sleep(_ uint64, d time.Duration) {
	if d > 0 {
		time.Sleep(min(d, 200*time.Microsecond))
	}
}

func (f *Flag) wake() {}

func yieldCore() { runtime.Gosched() }

func processor() (number uint32, ok bool) { return 0, false }
