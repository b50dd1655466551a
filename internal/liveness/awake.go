// Package liveness measures the silence of other processes.
// invariant[silence-while-awake]: silence is always measured in running time of this process,
// because a process that was stopped, frozen with its container or waiting for a core receives no
// heartbeats. Otherwise all processes of a suspended job would declare each other dead on resuming.
package liveness

import (
	"sync"
	"time"
)

// Clock is a clock that stops without calls of Tick. A Clock is safe for concurrent use.
type Clock struct {
	most time.Duration // maximum time between two ticks that counts

	mu     sync.Mutex
	ticked time.Time
	asleep time.Duration
}

// New returns a clock for calls of Tick at the given interval. A tick that is late by more than the
// interval marks time without running.
func New(every time.Duration) *Clock { return &Clock{most: 2 * every, ticked: time.Now()} }

// Tick records that this process runs.
func (c *Clock) Tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.asleep += late(now.Sub(c.ticked), c.most)
	c.ticked = now
}

// Now returns the time without suspensions of this process. Only differences of Now are meaningful.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return now.Add(-c.asleep - late(now.Sub(c.ticked), c.most))
}

// late returns the part of the time since a tick that counts as suspended.
func late(since, most time.Duration) time.Duration { return max(0, since-most) }

// pieces is the number of waits that add up to a limit: a suspension counts as one wait at most.
const pieces = 8

// longest is the maximum multiple of the limit for a silence with an excuse, such as a process that
// uses CPU time: its heartbeats are late, by seconds on an overloaded host, or it hangs.
const longest = 4

// Detector measures the time without heartbeats of another process, in running time of this
// process. A process with a regular tick calls Pass at each tick. A process that only waits calls
// Missed after each Wait: a wait during a suspension counts as a single wait.
type Detector struct {
	// Limit is the silence after which the other process counts as dead.
	Limit time.Duration
	// Early is a shorter limit for a process that does not run. 0 means Limit.
	Early time.Duration

	heard time.Time     // arrival of the last heartbeat; zero: already counted
	lasts time.Duration // counted silence
	ran   time.Duration // value of lasts when the process was last seen to run; 0: never
	late  time.Duration // last reported delay of the process's own ticks
}

// Reset records a heartbeat.
func (s *Detector) Reset() { s.HeardAt(time.Time{}, 0) }

// HeardAt records a heartbeat of a process with the given delay of ticks.
func (s *Detector) HeardAt(now time.Time, late time.Duration) {
	*s = Detector{Limit: s.Limit, Early: s.Early, heard: now, late: late}
}

// Pass records this process's tick, the time that counts, and whether the other process ran.
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

// Wait returns the time to wait for a heartbeat before Missed.
func (s *Detector) Wait() time.Duration { return max(1, (s.Limit+pieces-1)/pieces) }

// Missed records a wait without a heartbeat, and whether the process ran; true at the limit.
func (s *Detector) Missed(ran bool) bool {
	s.Pass(time.Time{}, s.Wait(), ran)
	return s.Lost()
}

// Lasts returns the current silence.
func (s *Detector) Lasts() time.Duration { return s.lasts }

// Most returns the current maximum silence: above the limit for a process that reported late ticks,
// or that was seen to run within the last half limit; at most four times the limit. Early counts
// for a process that has not run since half of it.
func (s *Detector) Most() time.Duration {
	limit := s.Limit
	if s.Early > 0 && s.ran <= s.Early/2 {
		limit = min(limit, s.Early)
	}
	return min(max(limit+2*s.late, s.ran+limit/2), longest*s.Limit)
}

// Lost reports whether the silence has reached the maximum.
func (s *Detector) Lost() bool { return s.lasts >= s.Most() }
