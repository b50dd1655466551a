package collective

import "time"

// Cost predicts the duration of an allreduce of K bytes on N ranks at B bytes per second. It
// ignores latency and addition.
type Cost struct {
	Bytes     float64 // size of the array
	Ranks     int
	Bandwidth float64 // bytes per second of a link, in each direction
}

// NaiveOneWay is the time often quoted for the naive algorithm: rank 0 receives all operands,
// (N-1)K/B, without the way back.
func (c Cost) NaiveOneWay() time.Duration {
	return c.seconds(float64(c.Ranks-1) * c.Bytes)
}

// Naive is the real time of the naive algorithm: rank 0 receives all operands and sends the result
// to all ranks, 2(N-1)K/B.
func (c Cost) Naive() time.Duration { return 2 * c.NaiveOneWay() }

// RingBytes is the number of bytes that a rank of a ring sends and receives: 2(N-1)/N K.
func (c Cost) RingBytes() float64 {
	return 2 * float64(c.Ranks-1) / float64(c.Ranks) * c.Bytes
}

func (c Cost) seconds(bytes float64) time.Duration {
	return time.Duration(bytes / c.Bandwidth * float64(time.Second))
}
