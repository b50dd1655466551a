// Package shmwait lets ranks that share memory wait for each other: on a counter in a separate
// cache line, by spinning for about a microsecond, then yielding, and finally sleeping.
//
// Waking a sleeper costs tens of microseconds, more than most waits: in a virtual machine a halted
// idle core takes about 30 us to resume, and a core kept busy by a yielding thread none.
package shmwait

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	_ "github.com/ringo-ml/ringo/internal/bytesview" // rejects big-endian platforms
)

// FlagBytes is the size and the alignment of a Flag: a cache line.
const FlagBytes = 64

// InlineBytes is the number of bytes transferred in the cache line of a Flag, next to its counter.
const InlineBytes = 48

// Flag is a counter that a rank raises while other ranks wait. A Flag may be in memory shared by
// processes; zero memory is a Flag with counter 0.
type Flag struct {
	n        atomic.Uint64
	sleepers atomic.Uint32 // number of sleepers, including waiters about to sleep
	seat     Seat
	// Inline is for data written before Raise and read after the wait, without another cache line.
	Inline [InlineBytes]byte
}

// FlagAt returns the flag at an offset of shared memory. The memory must include the whole flag,
// and the address must be a multiple of FlagBytes.
func FlagAt(memory []byte, offset int) *Flag {
	f := (*Flag)(unsafe.Pointer(&memory[offset : offset+FlagBytes][0]))
	if uintptr(unsafe.Pointer(f))%FlagBytes != 0 {
		panic(fmt.Sprintf("waiting: a flag at offset %d does not begin a cache line", offset))
	}
	return f
}

// Seat returns the seat in f's cache line, for the rank that raises f.
func (f *Flag) Seat() *Seat { return &f.seat }

// Load returns the counter. All earlier writes of the raiser are visible.
func (f *Flag) Load() uint64 { return f.n.Load() }

// Spin reads the counter up to count times, at intervals of 15 to 50 ns, and reports whether it is
// at least n. The processor pauses between reads: without pauses the many outstanding reads delay
// the detection of the change by a fifth of a microsecond, and slow the threads on the same core.
func (f *Flag) Spin(n uint64, count int) bool {
	for ; count > 0; count -= atOnce {
		if looks(f, n, min(count, atOnce)) {
			return true
		}
	}
	return false
}

// atOnce is the number of reads without preemption, some microseconds: longer reads would delay the
// garbage collector, and with it all threads.
const atOnce = 64

// Raise sets the counter to n, not below the current value, and wakes sleepers. A flag has a single
// raiser at a time. Without sleepers the cost is an atomic store and a load.
func (f *Flag) Raise(n uint64) {
	f.n.Store(n)
	if f.sleepers.Load() != 0 { // both accesses are sequentially consistent: no sleeper is missed
		f.wake()
	}
}
