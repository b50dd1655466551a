package collective

import "time"

// Cost is a model of an allreduce that is bound by bandwidth: it leaves latency
// and the adding out.
type Cost struct {
	Bytes     float64 // of the array
	Ranks     int
	Bandwidth float64 // of a link, bytes a second in each direction
}

// NaiveOneWay is the figure that is usually quoted for the straw man: rank 0
// receives everything, (N-1)K/B; the way back is not counted.
func (c Cost) NaiveOneWay() time.Duration {
	return c.seconds(float64(c.Ranks-1) * c.Bytes)
}

// Naive is what the straw man really takes: rank 0 receives everything and
// sends the result to everyone, 2(N-1)K/B.
func (c Cost) Naive() time.Duration { return 2 * c.NaiveOneWay() }

// RingBytes is what a rank of a ring sends, and receives: 2(N-1)/N K.
func (c Cost) RingBytes() float64 {
	return 2 * float64(c.Ranks-1) / float64(c.Ranks) * c.Bytes
}

func (c Cost) seconds(bytes float64) time.Duration {
	return time.Duration(bytes / c.Bandwidth * float64(time.Second))
}
