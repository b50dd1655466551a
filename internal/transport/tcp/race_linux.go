//go:build race

package tcp

import (
	"runtime"
	"unsafe"
)

// order represents, by its address, the order between sent data and data received afterwards. The
// reply to a message may be received into the sent memory before the sending goroutine runs again:
// the order exists only through the peer, and is not a race. Calls of [unix] would inform the race
// detector after sending and before receiving, so this package avoids them.
var order byte

// sends must run before a message is passed to the system, after the message was read.
func sends() { runtime.RaceReleaseMerge(unsafe.Pointer(&order)) }

// received must run after a message came from the system, before the message is written to memory.
func received() { runtime.RaceAcquire(unsafe.Pointer(&order)) }

func reads(p *byte, n int) { runtime.RaceReadRange(unsafe.Pointer(p), n) }

func writes(p *byte, n int) { runtime.RaceWriteRange(unsafe.Pointer(p), n) }
