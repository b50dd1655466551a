package collective

import (
	"errors"
	"fmt"
	"time"
)

// The algorithms of AllReduce.
const (
	Ring  = "ring"  // bandwidth-optimal, see RingSchedule
	Naive = "naive" // everything to rank 0 and back, the straw man
)

// Config says how a group works. All ranks must give the same values, except
// for SlowAfter.
type Config struct {
	// Algorithm of AllReduce: Ring or Naive. Empty: Ring.
	Algorithm string
	// Timeout bounds every single wait for a peer; an operation that makes
	// progress may take longer. 0: 10 minutes.
	Timeout time.Duration
	// SegmentBytes is the largest message: chunks are cut into segments so
	// that sending, receiving and adding overlap. 64 bytes to 1 GiB.
	// 0: 512 KiB.
	SegmentBytes int
	// InFlight is how many operations make progress at the same time, at most
	// 64. Together they hold at most InFlight x SegmentBytes; a larger one
	// runs alone. 0: 4.
	InFlight int
	// SlowAfter is how long a wait must have lasted before Group.Waiting
	// reports it. 0: at once.
	SlowAfter time.Duration
	// ID tells apart groups over one mesh, which must all have different ones.
	ID uint32
}

const (
	defaultTimeout  = 10 * time.Minute
	defaultSegment  = 512 << 10
	defaultInFlight = 4
	minSegment      = 64
	maxSegment      = 1 << 30
	maxInFlight     = 64
)

// Validate reports all faults of the configuration together.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch c.Algorithm {
	case "", Ring, Naive:
	default:
		fault("algorithm %q is unknown, known are %s and %s", c.Algorithm, Ring, Naive)
	}
	if c.Timeout < 0 {
		fault("timeout %v is negative", c.Timeout)
	}
	if c.SegmentBytes != 0 && (c.SegmentBytes < minSegment || c.SegmentBytes > maxSegment) {
		fault("segment bytes %d: want %d to %d, or 0 for %d", c.SegmentBytes, minSegment, maxSegment, defaultSegment)
	}
	if c.InFlight < 0 || c.InFlight > maxInFlight {
		fault("in flight %d: want 1 to %d operations, or 0 for %d", c.InFlight, maxInFlight, defaultInFlight)
	}
	if c.SlowAfter < 0 {
		fault("slow after %v is negative", c.SlowAfter)
	}
	return errors.Join(faults...)
}

// filled returns c with zero values replaced by what they stand for.
func (c Config) filled() Config {
	if c.Algorithm == "" {
		c.Algorithm = Ring
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = defaultSegment
	}
	if c.InFlight == 0 {
		c.InFlight = defaultInFlight
	}
	return c
}
