package liveness

import "time"

// least is the minimum time between two clock readings: on an overloaded host each thread may wait
// this long for a core.
const least = 100 * time.Millisecond

// Deadline limits a wait in running time of this process: a wait of an hour with a suspension of 59
// minutes lasts one minute. Deadline allocates no memory. Spent must be called at intervals of
// Wait.
type Deadline struct {
	every     time.Duration // maximum interval of calls of Spent
	remaining time.Duration
	asked     time.Time
}

// NewPatience starts a wait of at most limit.
func NewPatience(limit time.Duration, now time.Time) Deadline {
	return Deadline{every: max(limit/pieces, least), remaining: limit, asked: now}
}

// Wait returns the time until the next call of Spent: all of a short limit, an eighth of a long
// one.
func (p *Deadline) Wait() time.Duration { return min(p.remaining, p.every) }

// Spent reports whether the limit is reached.
func (p *Deadline) Spent(now time.Time) bool {
	p.remaining -= Elapsed(now.Sub(p.asked), p.every)
	p.asked = now
	return p.remaining <= 0
}

// Elapsed returns the running time since the last clock reading, if readings are due at intervals
// of every: all of the time for punctual readings, and less the later the reading. After an hour of
// suspension Elapsed is almost 0.
func Elapsed(since, every time.Duration) time.Duration {
	if since <= every {
		return max(0, since)
	}
	return time.Duration(float64(every) / float64(since) * float64(every))
}
