// Package shmwait is how ranks that share memory wait for each other: a counter
// in a cache line of its own, and a wait on it that spins for about a
// microsecond, then gives way to others, and sleeps in the kernel when it takes
// long.
//
// Waking a sleeper costs tens of microseconds, more than most waits last: in a
// virtual machine an idle core that has halted takes about 30 us to come back,
// and a core that a yielding thread keeps awake takes none.
package shmwait

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// FlagBytes is the size and the alignment of a Flag: a cache line.
const FlagBytes = 64

// InlineBytes is how much travels in the line of a Flag beside its counter.
const InlineBytes = 48

// Flag is a counter that one rank raises and others wait for. It may lie in
// memory that processes share; zeros are a Flag whose counter is 0.
type Flag struct {
	n        atomic.Uint64
	sleepers atomic.Uint32 // how many sleep, or are about to
	seat     Seat
	// Inline is for whoever raises the counter: what is written here before
	// Raise can be read after the wait for it, without touching another line.
	Inline [InlineBytes]byte
}

// FlagAt returns the flag at an offset of shared memory. The offset must leave
// room for it and the address must be a multiple of FlagBytes.
func FlagAt(memory []byte, offset int) *Flag {
	f := (*Flag)(unsafe.Pointer(&memory[offset : offset+FlagBytes][0]))
	if uintptr(unsafe.Pointer(f))%FlagBytes != 0 {
		panic(fmt.Sprintf("waiting: a flag at offset %d does not begin a cache line", offset))
	}
	return f
}

// Seat is a word in the line of f, for the rank that raises f.
func (f *Flag) Seat() *Seat { return &f.seat }

// Load returns the counter. All that its raiser wrote before is visible.
func (f *Flag) Load() uint64 { return f.n.Load() }

// Spin looks at the counter up to so many times, 15 to 50 ns apart, and reports whether it is at least n. Between two
// looks the processor pauses: a loop of reads alone has so many of them under way that it stumbles when the counter
// changes at last, for a fifth of a microsecond in all, and slows who shares its core.
func (f *Flag) Spin(n uint64, count int) bool {
	for ; count > 0; count -= atOnce {
		if looks(f, n, min(count, atOnce)) {
			return true
		}
	}
	return false
}

// atOnce is how many looks are made where nothing else can stop the thread, such as the collector, which all wait for: some
// microseconds.
const atOnce = 64

// Raise sets the counter to n, which must not be below what it is, and wakes
// those who sleep. A flag has one raiser at a time. Without sleepers it costs
// one atomic store and a load.
func (f *Flag) Raise(n uint64) {
	f.n.Store(n)
	if f.sleepers.Load() != 0 { // both are sequentially consistent: no sleeper is missed
		f.wake()
	}
}
