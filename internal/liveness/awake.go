// Package liveness measures what another process is reproached with, such as its silence.
// invariant[silence-while-awake]: it is measured in time in which this process ran: while it was
// stopped by a signal, frozen with its container, or kept from its turn by others, it could not
// have heard anything. Without that, all processes of a job that was suspended would take each
// other for dead when it goes on.
package liveness

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

// New returns a clock whose Tick is called every so often. A tick that is late by more than once
// that time is taken for one of a process that did not run.
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

// pieces is in how many pieces a silence is counted where nobody ticks: it is noticed late by at
// most one of them.
const pieces = 8

// longest is how many times its limit a silence may last that has an excuse, such as that the
// process is seen to run: it waits for its turn to send a heartbeat, which on a crowded machine may
// be late by seconds, or it hangs.
const longest = 4

// Detector counts for how long another process has sent no heartbeat, in time in which this process
// ran. A process that ticks calls Pass with each tick. One that only waits calls Missed after each
// Wait: a wait during a suspension counts as one, however long it was.
type Detector struct {
	// Limit is the silence after which the other process is taken for dead.
	Limit time.Duration

	heard time.Time     // when the last heartbeat came; zero: it is counted already
	lasts time.Duration // counted
	ran   time.Duration // what lasts was when the process was last seen to run; 0: never
	late  time.Duration // by how much its ticks are late, as it last reported
}

// Reset notes a heartbeat.
func (s *Detector) Reset() { s.HeardAt(time.Time{}, 0) }

// HeardAt notes a heartbeat of a process whose own ticks are late by so much.
func (s *Detector) HeardAt(now time.Time, late time.Duration) {
	*s = Detector{Limit: s.Limit, heard: now, late: late}
}

// Pass notes a tick of this process, which counts for so much, and whether the other process ran
// since the last.
func (s *Detector) Pass(now time.Time, counts time.Duration, ran bool) {
	if !s.heard.IsZero() {
		counts = min(counts, now.Sub(s.heard))
		s.heard = time.Time{}
	}
	s.lasts += counts
	if ran {
		s.ran = s.lasts
	}
}

// Wait is how long to wait for a heartbeat before Missed is called.
func (s *Detector) Wait() time.Duration { return max(1, (s.Limit+pieces-1)/pieces) }

// Missed notes a wait without a heartbeat, and whether the process was seen to run during it, and
// tells whether the limit is reached.
func (s *Detector) Missed(ran bool) bool {
	s.Pass(time.Time{}, s.Wait(), ran)
	return s.Lost()
}

// Lasts is the silence until now.
func (s *Detector) Lasts() time.Duration { return s.lasts }

// Most is the longest silence of this process: more than the limit where it has reported that its
// ticks are late, or until it has not been seen to run for half of the limit; at most four times
// the limit.
func (s *Detector) Most() time.Duration {
	return min(max(s.Limit+2*s.late, s.ran+s.Limit/2), longest*s.Limit)
}

// Lost reports whether the process has been silent for too long.
func (s *Detector) Lost() bool { return s.lasts >= s.Most() }
