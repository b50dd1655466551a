//go:build race

package tcp

import (
	"runtime"
	"unsafe"
)

// order stands, by its address, for the order of what is sent and what is received after it. The answer to a message
// may be received into the memory that was sent while the sender has not come to run again: an order that
// only the peer knows, and no race. Calls of [unix] tell the race detector of what is sent afterwards, and of what is
// received before, so that these here are made without them.
var order byte

// sends comes before a message is given to the system, after it was read.
func sends() { runtime.RaceReleaseMerge(unsafe.Pointer(&order)) }

// received comes after a message has come from the system, before it is written anywhere.
func received() { runtime.RaceAcquire(unsafe.Pointer(&order)) }

func reads(p *byte, n int) { runtime.RaceReadRange(unsafe.Pointer(p), n) }

func writes(p *byte, n int) { runtime.RaceWriteRange(unsafe.Pointer(p), n) }
