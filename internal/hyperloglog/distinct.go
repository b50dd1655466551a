// Package hyperloglog estimates the number of different keys in 16 KiB: a HyperLogLog (Flajolet et
// al. 2007) of 2^14 registers with the estimator of Ertl (2017), with a standard error of 0.8 % for
// every number.
package hyperloglog

import (
	"fmt"
	"math"
	"math/bits"
)

const (
	indexBits = 14
	registers = 1 << indexBits
	most      = 64 - indexBits // leading zeros behind the index
)

// Counter counts different keys. The zero value is empty. A Counter is for one goroutine.
type Counter struct {
	nonEmpty bool
	rank     [registers]uint8 // by register: 1 + the most leading zeros of a hash; 0: no hash
}

// Add adds keys, possibly repeated, in 1 to 2 ns each.
func (c *Counter) Add(keys []uint64) {
	c.nonEmpty = c.nonEmpty || len(keys) > 0
	for _, key := range keys {
		z := (key ^ key>>30) * 0xbf58476d1ce4e5b9 // SplitMix64's finalizer
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		at := &c.rank[z>>most]
		if r := uint8(min(bits.LeadingZeros64(z<<indexBits), most) + 1); r > *at {
			*at = r
		}
	}
}

// Bytes is the input of Merge, nil without keys. The bytes belong to the counter.
func (c *Counter) Bytes() []byte {
	if !c.nonEmpty {
		return nil
	}
	return c.rank[:]
}

// Merge adds all keys of a counter with the Bytes b.
func (c *Counter) Merge(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if len(b) != registers {
		return fmt.Errorf("distinct: a counter of %d bytes: want %d", len(b), registers)
	}
	c.nonEmpty = true
	for i, r := range b {
		c.rank[i] = max(c.rank[i], r)
	}
	return nil
}

// Estimate is the approximate number of different keys.
func (c *Counter) Estimate() float64 {
	var counts [most + 2]float64 // registers by rank
	for _, r := range c.rank {
		counts[min(int(r), most+1)]++
	}
	const m = float64(registers)
	z := m * tau(1-counts[most+1]/m)
	for k := most; k >= 1; k-- {
		z = 0.5 * (z + counts[k])
	}
	return m * m / (2 * math.Ln2 * (z + m*sigma(counts[0]/m)))
}

// sigma and tau are from Ertl, "New cardinality estimation algorithms for HyperLogLog sketches".
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for before := -1.0; z != before; y += y {
		x *= x
		before = z
		z += x * y
	}
	return z
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for before := -1.0; z != before; {
		x = math.Sqrt(x)
		before = z
		y *= 0.5
		z -= (1 - x) * (1 - x) * y
	}
	return z / 3
}
