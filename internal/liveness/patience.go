package liveness

import "time"

// least is the minimum between two clock readings: threads of an overloaded host wait for a core.
const least = 100 * time.Millisecond

// Deadline limits a wait in running time of this process: an hour with a suspension of 59 minutes
// lasts one minute. Deadline allocates no memory. Spent must be called at intervals of Wait.
type Deadline struct {
	every     time.Duration // maximum interval of calls of Spent
	remaining time.Duration
	asked     time.Time
}

// NewPatience starts a wait of at most limit.
func NewPatience(limit time.Duration, now time.Time) Deadline {
	return Deadline{every: max(limit/pieces, least), remaining: limit, asked: now}
}

// Wait returns the time until the next Spent: a short limit, or an eighth of a long one.
func (p *Deadline) Wait() time.Duration { return min(p.remaining, p.every) }

// Spent reports whether the limit is reached.
func (p *Deadline) Spent(now time.Time) bool {
	p.remaining -= Elapsed(now.Sub(p.asked), p.every)
	p.asked = now
	return p.remaining <= 0
}

// Elapsed returns the running time since the last clock reading, if due at intervals of every: all
// of it for punctual readings, less the later the reading, and almost 0 after a long suspension.
func Elapsed(since, every time.Duration) time.Duration {
	if since <= every {
		return max(0, since)
	}
	return time.Duration(float64(every) / float64(since) * float64(every))
}
