package rows

import (
	"math"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// Init writes a row's initial weights. They must follow from stream alone, a
// number that follows from the table's seed and name and the row's key: then a row
// begins with the same values on whatever server, in whatever order and by however
// many threads rows are made. It is called by many goroutines at once, often while
// they hold locks.
type Init = rowinit.Init

// Constant begins all weights with v.
func Constant(v float32) Init { return rowinit.Constant(v) }

func mix(x uint64) uint64                         { return rowinit.Mix(x) }
func tableStream(seed uint64, name string) uint64 { return rowinit.Table(seed, name) }
func rowStream(table, key uint64) uint64          { return rowinit.Row(table, key) }

// Usage is how much a row is used, for what admits, evicts and shrinks.
type Usage struct {
	// Last is the epoch (see SetEpoch) of the row's last Pull or Push.
	Last uint16
	// Touches counts the Pulls of the row, up to 16383. Keys that a batch holds
	// more than once count more than once.
	Touches uint16
	// Changed says that a Push, or an Import that said nothing else, has changed
	// the row since somebody last took the mark away. A row that was only made has
	// none: its values follow from its key.
	Changed bool
	// Stored is a mark for whoever keeps rows elsewhere; the table never changes it.
	Stored bool
}

// Age is how many epochs ago the row was touched, if that is less than 65536.
func (f Usage) Age(now uint16) int { return int(now - f.Last) }

// How it is packed: Last above, then the marks, then Touches.
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

// touched is packed usage x after a Pull in epoch now.
func touched(x, now uint32) uint32 {
	if x&mostTouches < mostTouches {
		x++
	}
	return now<<16 | x&math.MaxUint16
}

// changed is packed usage x after a Push in epoch now.
func changed(x, now uint32) uint32 { return now<<16 | x&math.MaxUint16 | changedBit }
