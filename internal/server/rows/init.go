package rows

import "math"

// Usage is a row's usage, for admission, eviction and shrinking.
type Usage struct {
	// Last is the epoch (see SetEpoch) of the row's last Pull or Push.
	Last uint16
	// Touches counts the Pulls of the row, up to 16383, once for each occurrence in a batch.
	Touches uint16
	// Changed is set by a Push, or by an Import without a Usage, until the owner clears it. A new
	// row is not Changed: its values follow from its key.
	Changed bool
	// Stored is a flag for the owner's store; the table never changes it.
	Stored bool
}

// Age returns the number of epochs since the row was touched, modulo 65536.
func (f Usage) Age(now uint16) int { return int(now - f.Last) }

// Packed layout: Last, then the flags, then Touches.
const (
	changedBit  = 1 << 15
	storedBit   = 1 << 14
	mostTouches = storedBit - 1
)

func (f Usage) pack() uint32 {
	return uint32(f.Last)<<16 | bit(f.Changed)*changedBit | bit(f.Stored)*storedBit | min(uint32(f.Touches), mostTouches)
}

func unpackUsage(x uint32) Usage {
	return Usage{Last: uint16(x >> 16), Touches: uint16(x & mostTouches), Changed: x&changedBit != 0, Stored: x&storedBit != 0}
}

// touched returns the packed usage x after a Pull in epoch now.
func touched(x, now uint32) uint32 {
	if x&mostTouches < mostTouches {
		x++
	}
	return now<<16 | x&math.MaxUint16
}

// changed returns the packed usage x after a Push in epoch now.
func changed(x, now uint32) uint32 { return now<<16 | x&math.MaxUint16 | changedBit }
