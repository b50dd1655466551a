// Package awake measures what another process is reproached with, such as its silence.
// invariant[silence-while-awake]: it is measured in time in which this process ran: while it was stopped by a signal, frozen with its container, or kept from its turn by
// others, it could not have heard anything. Without that, all processes of a job that was suspended would
// take each other for dead when it goes on.
package awake

import (
	"sync"
	"time"
)

// Clock tells time that stands still while nobody calls Tick. Any goroutine may use it.
type Clock struct {
	most time.Duration // between two ticks, that counts

	mu     sync.Mutex
	ticked time.Time
	asleep time.Duration
}

// New returns a clock whose Tick is called every so often. A tick that is late by more than once that
// time is taken for one of a process that did not run.
func New(every time.Duration) *Clock { return &Clock{most: 2 * every, ticked: time.Now()} }

// Tick says that this process runs.
func (c *Clock) Tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.asleep += late(now.Sub(c.ticked), c.most)
	c.ticked = now
}

// Now is the time less all that this process has slept. Differences between two such times mean
// something, the time itself does not.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return now.Add(-c.asleep - late(now.Sub(c.ticked), c.most))
}

// late is how much of the time since a tick this process has slept.
func late(since, most time.Duration) time.Duration { return max(0, since-most) }

// pieces is in how many pieces a silence is counted: it is noticed late by at most one of them.
const pieces = 8

// Longest is how many times longer than usual a process may be silent that has an excuse, such as that it was seen to
// run: it waits for its turn to show a sign of life, which on a crowded machine may come late by seconds, or it hangs.
const Longest = 4

// Silence counts for how long another process has shown no sign of life, in waits of this process: one
// that was suspended has waited once, however long that took.
type Silence struct {
	// Limit is the silence after which the other process is taken for dead.
	Limit           time.Duration
	missed, excused int
}

// Wait is how long to wait for a sign of life before Missed is called.
func (s *Silence) Wait() time.Duration { return max(1, s.Limit/pieces) }

// Heard notes a sign of life.
func (s *Silence) Heard() { s.missed, s.excused = 0, 0 }

// Missed notes a wait without one, and tells whether the limit is reached.
func (s *Silence) Missed() bool { return s.MissedBy(false) }

// MissedBy is Missed for a process of which is known whether it has run during the wait. If it has, the limit is
// Longest times as long.
func (s *Silence) MissedBy(ran bool) bool {
	if ran {
		s.excused++
	} else {
		s.missed++
	}
	return s.missed >= pieces || s.missed+s.excused >= Longest*pieces
}
