package liveness

import "time"

// least is the shortest time between two looks at the clock that a process is given: on a busy
// machine each of its threads may have to wait for so long for its turn.
const least = 100 * time.Millisecond

// Deadline is for how long this process waits for something, in time in which it ran: a wait of an
// hour in which it was suspended for 59 minutes has lasted for one. It allocates nothing. Spent has
// to be asked now and then.
type Deadline struct {
	every     time.Duration // in which Spent is to be asked
	remaining time.Duration
	asked     time.Time
}

// NewPatience begins a wait of at most limit.
func NewPatience(limit time.Duration, now time.Time) Deadline {
	return Deadline{every: max(limit/pieces, least), remaining: limit, asked: now}
}

// Wait is how long to wait before Spent is asked again: the whole of a short limit, an eighth of a
// long one.
func (p *Deadline) Wait() time.Duration { return min(p.remaining, p.every) }

// Spent says whether the limit is reached.
func (p *Deadline) Spent(now time.Time) bool {
	p.remaining -= Elapsed(now.Sub(p.asked), p.every)
	p.asked = now
	return p.remaining <= 0
}

// Elapsed is how much of the time since one last looked at the clock this process has waited, when
// it was to look after no more than every. It is all of that, and less the later it looks: of an
// hour in which it was stopped next to nothing.
func Elapsed(since, every time.Duration) time.Duration {
	if since <= every {
		return max(0, since)
	}
	return time.Duration(float64(every) / float64(since) * float64(every))
}
