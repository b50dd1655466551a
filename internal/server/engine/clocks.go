package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

type sessionClock struct {
	clock uint64 // last clocked step
	left  bool
}

// clocks tracks the progress of trainers, and blocks trainers that are too far ahead.
type clocks struct {
	mode      Mode
	staleness uint64
	per       int // sessions per trainer
	limit     time.Duration

	mu       sync.Mutex
	sessions []sessionClock
	slowest  uint64 // lowest clock of active sessions, or the highest if all have left
	highest  uint64
	applied  uint64 // bsp: last step with its sum in the tables
	unset    int    // arrays without initial values
	fault    error
	changed  chan struct{} // closed at the next change; nil without waiters
	left     chan struct{} // closed when all sessions have left
	over     bool          // left is closed
}

func newClocks(c Config) *clocks {
	return &clocks{mode: c.Mode, staleness: uint64(c.Staleness), per: c.Sessions, limit: c.WaitLimit, sessions: make([]sessionClock, c.Trainers*c.Sessions), left: make(chan struct{})}
}

// note wakes the waiters. c.mu is held.
func (c *clocks) note() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// advance sets a session's clock and reports whether step is the highest until now.
func (c *clocks) advance(session int, step uint64) (leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.sessions[session]
	was := l.clock
	l.clock = max(was, step)
	if leads = step > c.highest; leads {
		c.highest = step
	}
	if was == c.slowest {
		c.measure()
	}
	return leads
}

// leave excludes a session from waits.
func (c *clocks) leave(session int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[session].left = true
	c.measure()
}

// measure computes the slowest clock. c.mu is held. Cost: linear in the sessions.
func (c *clocks) measure() {
	slowest, some := c.highest, false
	for i := range c.sessions {
		if l := &c.sessions[i]; !l.left && (!some || l.clock < slowest) {
			slowest, some = l.clock, true
		}
	}
	if slowest != c.slowest || !some {
		c.slowest = slowest
		c.note()
	}
	if !some && !c.over {
		c.over = true
		close(c.left)
	}
}

// clockedBy sets who[t] to whether all sessions of trainer t have ended the step, and returns the
// number of such trainers.
func (c *clocks) clockedBy(step uint64, who []bool) (n int) {
	for t := range who {
		who[t] = !slices.ContainsFunc(c.sessions[t*c.per:][:c.per], func(l sessionClock) bool { return l.clock < step })
		if who[t] {
			n++
		}
	}
	return n
}

func (c *clocks) setApplied(step uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = max(c.applied, step)
	c.note()
}

func (c *clocks) setUnset(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unset = n
	c.note()
}

func (c *clocks) arraySet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unset--
	c.note()
}

func (c *clocks) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == nil {
		c.fault = err
		c.note()
	}
}

// open reports whether a trainer may begin a step. c.mu is held.
func (c *clocks) open(step uint64) bool {
	switch {
	case c.unset > 0:
		return false
	case c.mode == BSP:
		return step <= c.applied+1
	case c.mode == SSP:
		return step <= c.slowest+1+c.staleness
	}
	return true
}

// waitedFor returns the trainers that block a step. c.mu is held.
func (c *clocks) waitedFor(step uint64) (trainers []int) {
	for i := range c.sessions {
		if c.blocks(i, step) && !slices.Contains(trainers, i/c.per) {
			trainers = append(trainers, i/c.per)
		}
	}
	return trainers
}

// blocks reports whether a session blocks a step. c.mu is held.
func (c *clocks) blocks(session int, step uint64) bool {
	needed := step - 1
	if c.mode == SSP {
		needed -= min(needed, c.staleness)
	}
	l := c.sessions[session]
	return !l.left && l.clock < needed
}

// slowestTrainer returns a trainer that blocks a step; -1: none, or initial values are missing.
func (c *clocks) slowestTrainer(step uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unset > 0 || c.open(step) {
		return -1
	}
	for i := range c.sessions {
		if c.blocks(i, step) {
			return i / c.per
		}
	}
	return -1
}

// await blocks until a step may begin. If the step may begin, await ignores the context and does
// not allocate.
func (c *clocks) await(ctx context.Context, trainer int, step uint64) error {
	c.mu.Lock()
	if c.fault == nil && c.open(step) {
		c.mu.Unlock()
		return nil
	}
	if err := ctx.Err(); err != nil && c.fault == nil { // a probe
		c.mu.Unlock()
		return context.Cause(ctx)
	}
	defer c.mu.Unlock()
	timer := time.NewTimer(c.limit)
	defer timer.Stop()
	for c.fault == nil && !c.open(step) {
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		var over bool
		select {
		case <-changed:
		case <-ctx.Done():
			over = true
		case <-timer.C:
			over = true
		}
		c.mu.Lock()
		if over && c.fault == nil && !c.open(step) {
			e := &waitError{Trainer: trainer, Step: step, Unset: c.unset > 0, Limit: c.limit, Cause: context.Cause(ctx)}
			if !e.Unset {
				e.WaitedFor = c.waitedFor(step)
			}
			return e
		}
	}
	return c.fault
}
