package cluster

import (
	"time"
)

// watch is the coordinator's periodic work: heartbeats, silent ranks, slow ranks.
func (c *Coordinator) watch() {
	beat := time.NewTicker(c.cfg.Times.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-beat.C:
			for _, line := range c.beat(time.Now()) {
				c.cfg.Report(line)
			}
		}
	}
}

// checkMissing ends the job if ranks have not joined in time.
func (c *Coordinator) checkMissing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complete || c.verdict != nil {
		return
	}
	if time.Since(c.clock.last) > 2*c.cfg.Times.Heartbeat { // this process was stopped, and the ranks possibly too
		c.join.Reset(c.cfg.Times.Join)
		return
	}
	missing := &MissingError{WorldSize: c.cfg.WorldSize, Servers: c.cfg.Servers, Timeout: c.cfg.Times.Join}
	for r := range c.members {
		if c.members[r].state != seatJoined {
			missing.Ranks = append(missing.Ranks, r)
		}
	}
	c.decide(missing)
}

// beat sends heartbeats to all ranks, accuses silent ranks and returns the reports on slow ranks.
//
// Silence is counted by a pauseClock, so that a coordinator that was stopped for a while accuses no
// rank of silence or slowness when it resumes. A rank with a process that uses CPU time is alive:
// on an overloaded host a heartbeat can be seconds late.
func (c *Coordinator) beat(now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.clock.tick(now)
	for r := range c.members {
		s := &c.members[r]
		if s.state != seatJoined {
			continue
		}
		s.member.post(message{Kind: kindHeartbeat, Peer: -1, LateMillis: c.clock.lateMillis()})
		s.detector.Pass(now, counts, s.ran())
	}
	c.still += counts
	c.reportSilent()
	if c.verdict != nil || !c.complete || c.clock.stalled(counts) {
		return nil
	}
	if !c.anyWaits() {
		return c.slow.lines(nil)
	}
	if err := FindMismatch(c.begun()); err != nil {
		c.decide(err)
		return nil
	}
	return c.slow.lines(FindSlow(c.statuses(), c.cfg.SlowAfter, c.cfg.StuckAfter))
}

// reportSilent accuses ranks that have been silent for too long, once. The caller holds mu.
func (c *Coordinator) reportSilent() {
	heard, silence := 0, 0
	for r := range c.members {
		if s := &c.members[r]; s.state == seatJoined {
			silent := s.detector.Lasts() > c.cfg.Times.DeadAfter/2
			heard, silence = heard+oneIf(!silent), silence+oneIf(silent)
		}
	}
	for r := range c.members {
		s := &c.members[r]
		if s.state != seatJoined || s.reported {
			continue
		}
		q := observation{silent: s.detector.Lasts(), limit: s.detector.Most(), moved: c.still, last: heard, silence: silence - 1, sameHost: s.member.ch.within()}
		if lost, why := q.decide(); lost {
			s.reported = true
			c.report(failureReport{proof: proofSilent, rank: r, by: -1, why: why})
		}
	}
}

// anyWaits reports whether a rank waits, as ranks with started operations do. mu is held.
func (c *Coordinator) anyWaits() bool {
	for r := range c.members {
		if s := &c.members[r]; s.status.Waits || len(s.status.Begun) > 0 {
			return true
		}
	}
	return false
}

// begun returns the started operations of the ranks. The caller holds mu.
func (c *Coordinator) begun() [][]Begun {
	out := make([][]Begun, len(c.members))
	for r := range c.members {
		if c.members[r].state == seatJoined {
			out[r] = c.members[r].status.Begun
		}
	}
	return out
}

// statuses returns the status of every rank. The caller holds mu.
func (c *Coordinator) statuses() []Status {
	out := make([]Status, len(c.members))
	for r := range c.members {
		s := &c.members[r]
		age := time.Since(s.at)
		out[r] = Status{
			Doing: s.status.Doing, Waits: s.status.Waits, Peer: s.status.Peer,
			For:  time.Duration(s.status.WaitMillis)*time.Millisecond + age,
			In:   s.status.In,
			Left: s.state != seatJoined,
		}
		if s.detector.Lasts() > 2*c.cfg.Times.Heartbeat { // one heartbeat in flight, and one late
			out[r].Silent = age
		}
	}
	return out
}

// Process sets the function that returns the processor time of rank's process, on this host. While
// a silent rank's processor time grows, its limit is four times DeadAfter, because the rank may
// wait for a processor. Without growth for half of DeadAfter, the process hangs or is stopped.
func (c *Coordinator) Process(rank int, used func() time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[rank].used = used
}

// ran reports whether the rank's processor time has grown since the last call. The caller holds mu.
func (s *memberState) ran() bool {
	if s.used == nil {
		return false
	}
	was := s.busy
	s.busy = s.used()
	return s.busy > was
}
