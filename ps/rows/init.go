package rows

import "math"

// Init writes a row's initial weights. They must follow from stream alone, a
// number that follows from the table's seed and name and the row's key: then a row
// begins with the same values on whatever server, in whatever order and by however
// many threads rows are made. It is called by many goroutines at once, often while
// they hold locks.
type Init func(dst []float32, stream uint64)

// Constant begins all weights with v.
func Constant(v float32) Init {
	return func(dst []float32, _ uint64) {
		for i := range dst {
			dst[i] = v
		}
	}
}

// Uniform draws weights from [-limit, limit), in 2^24 steps, by SplitMix64 (Steele,
// Lea and Flood 2014), a generator that needs nothing but a counter.
func Uniform(limit float32) Init {
	return func(dst []float32, stream uint64) {
		for i := range dst {
			stream += golden
			u := float32(mix(stream)>>40) * (1.0 / (1 << 23)) // exact, in [0, 2)
			dst[i] = (u - 1) * limit
		}
	}
}

// golden is 2^64 divided by the golden ratio, odd.
const golden = 0x9e3779b97f4a7c15

// mix is the finaliser of SplitMix64 (Stafford's variant 13): one-to-one, and every
// bit of the result depends on every bit of x.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// tableStream is the part of streams that the table gives.
func tableStream(seed uint64, name string) uint64 {
	h := mix(seed + golden)
	for _, c := range []byte(name) {
		h = mix(h ^ uint64(c) + golden)
	}
	return h
}

// rowStream is the stream of a key of a table.
func rowStream(table, key uint64) uint64 { return mix(table ^ mix(key+golden)) }

// Figures say how much a row is used. They are for what admits, evicts and shrinks.
type Figures struct {
	// Last is the epoch (see SetEpoch) of the row's last Pull, or of the Push that
	// made it.
	Last uint16
	// Touches counts the Pulls of the row, up to 65535. Keys that a batch holds
	// more than once count more than once.
	Touches uint16
}

// Age is how many epochs ago the row was touched, if that is less than 65536.
func (f Figures) Age(now uint16) int { return int(now - f.Last) }

func (f Figures) pack() uint32 { return uint32(f.Last)<<16 | uint32(f.Touches) }

func unpackFigures(x uint32) Figures { return Figures{Last: uint16(x >> 16), Touches: uint16(x)} }

// touched is packed figures x after a touch in epoch now.
func touched(x, now uint32) uint32 {
	count := x & math.MaxUint16
	if count < math.MaxUint16 {
		count++
	}
	return now<<16 | count
}
