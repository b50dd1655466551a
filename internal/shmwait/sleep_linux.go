package shmwait

import (
	"encoding/binary"
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The futex operations without FUTEX_PRIVATE_FLAG: sleepers may be in other
// processes.
const (
	futexWait = 0
	futexWake = 1
)

// low is the half of the counter that changes with every raise, on which the
// kernel's waits work.
func (f *Flag) low() unsafe.Pointer {
	if littleEndian {
		return unsafe.Pointer(&f.n)
	}
	return unsafe.Add(unsafe.Pointer(&f.n), 4)
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// sleep blocks while the counter is below n, for at most d. It may return early.
func (f *Flag) sleep(n uint64, d time.Duration) {
	if d <= 0 {
		return
	}
	f.sleepers.Add(1)
	if seen := f.n.Load(); seen < n {
		limit := unix.NsecToTimespec(int64(d))
		// The runtime is told of this call, so that it can take the thread's
		// place for other goroutines.
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(f.low()), futexWait, uintptr(uint32(seen)),
			uintptr(unsafe.Pointer(&limit)), 0, 0) // whatever it returns for, the caller looks again
	}
	f.sleepers.Add(^uint32(0))
}

func (f *Flag) wake() {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(f.low()), futexWake, math.MaxInt32, 0, 0, 0)
}

// yieldCore lets another thread that waits for this core run.
func yieldCore() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// processor is the number of the one that this thread runs on; ok is false where that is not known.
func processor() (number uint32, ok bool) {
	_, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&number)), 0, 0)
	return number, errno == 0
}
