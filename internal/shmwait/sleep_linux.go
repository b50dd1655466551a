package shmwait

import (
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Futex operations without FUTEX_PRIVATE_FLAG: sleepers may be in other processes.
const (
	futexWait = 0
	futexWake = 1
)

// low returns the low half of the counter, which changes with every raise, for the kernel's waits.
func (f *Flag) low() unsafe.Pointer { return unsafe.Pointer(&f.n) } // little-endian

// sleep blocks while the counter is below n, for at most d, possibly for less.
func (f *Flag) sleep(n uint64, d time.Duration) {
	if d <= 0 {
		return
	}
	f.sleepers.Add(1)
	if seen := f.n.Load(); seen < n {
		limit := unix.NsecToTimespec(int64(d))
		// A regular system call: the runtime can run other goroutines on the processor.
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(f.low()), futexWait, uintptr(uint32(seen)),
			uintptr(unsafe.Pointer(&limit)), 0, 0) // the caller checks the counter after any result
	}
	f.sleepers.Add(^uint32(0))
}

func (f *Flag) wake() {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(f.low()), futexWake, math.MaxInt32, 0, 0, 0)
}

func yieldCore() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// processor returns the number of this thread's processor; ok is false if unknown.
func processor() (number uint32, ok bool) {
	_, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&number)), 0, 0)
	return number, errno == 0
}
