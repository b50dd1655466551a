//go:build !linux

package shmwait

import (
	"runtime"
	"time"
)

// Other systems have no documented sleep on shared memory: a long wait polls at intervals.

func (f *Flag) sleep(_ uint64, d time.Duration) {
	if d > 0 {
		time.Sleep(min(d, 200*time.Microsecond))
	}
}

func (f *Flag) wake() {}

func yieldCore() { runtime.Gosched() }

func processor() (number uint32, ok bool) { return 0, false }
