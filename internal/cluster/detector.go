package cluster

import (
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// maxLate limits, in intervals of heartbeats, the delay of a tick that gives later ticks less
// weight. After a longer delay the process was stopped, and now runs at normal speed.
const maxLate = 4

// pauseClock weights time by this process's own scheduling: ticks should come once per beat. A
// process that was stopped, or is waiting for a core, cannot receive heartbeats, so missing
// heartbeats prove no loss. A machine that delays this process delays its other ranks too.
type pauseClock struct {
	beat time.Duration
	last time.Time     // last tick
	late time.Duration // maximum recent delay of ticks, decaying
}

// tick records a tick and returns the part of the time since the previous tick that counts as
// silence of peers: all for punctual ticks, less for late ones, almost none after a suspension.
func (c *pauseClock) tick(now time.Time) (counts time.Duration) {
	since := now.Sub(c.last)
	c.last = now
	c.late = max(min(since-c.beat, maxLate*c.beat), c.late*15/16)
	return liveness.Elapsed(since, c.beat)
}

// lateMillis returns the delay of this process for its heartbeats, in ms, rounded to an eighth of
// the interval so that ranks without delays repeat the same message.
func (c *pauseClock) lateMillis() int64 {
	eighth := max(1, c.beat/8)
	return (c.late / eighth * eighth).Milliseconds()
}

// stalled reports whether this process was stopped for most of a tick: its data on peers are old.
func (c *pauseClock) stalled(counts time.Duration) bool { return 2*counts < c.beat && c.late > c.beat }

// rhythm holds the last intervals of a member's heartbeats.
type rhythm struct {
	last time.Time
	gaps []time.Duration
}

const (
	fewGaps      = 4  // intervals before an estimate
	maxGaps      = 16 // intervals of an estimate
	leastEarly   = 4 * time.Second
	spreadFactor = 4
)

// heard records a heartbeat.
func (r *rhythm) heard(now time.Time) {
	if !r.last.IsZero() {
		r.gaps = append(r.gaps[max(0, len(r.gaps)-maxGaps+1):], now.Sub(r.last))
	}
	r.last = now
}

// early returns the silence that proves the loss of a process that does not run: the median of the
// intervals and several times their spread, at least leastEarly; 0 before an estimate. The spread
// is the largest distance from the median, so that a rare long interval does not count as a loss.
func (r *rhythm) early() time.Duration {
	if len(r.gaps) < fewGaps {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.gaps))
	median := sorted[len(sorted)/2]
	spread := max(sorted[len(sorted)-1]-median, median-sorted[0])
	return max(leastEarly, median+spreadFactor*spread)
}

// heard records a message of a member. The caller holds mu.
func (c *Coordinator) heard(s *memberState, now time.Time, late time.Duration) {
	s.detector.HeardAt(now, late)
	if c.cfg.Early && s.used != nil {
		s.rhythm.heard(now)
		s.detector.Early = s.rhythm.early()
	}
}

// graceFactor is the multiple of DeadAfter after which silence on the control connection is always
// a loss: links to the coordinator may be cut for 15 s, and TCP needs as long again to recover.
const graceFactor = 3

// observation describes a peer at the limit of silence.
type observation struct {
	silent   time.Duration // time since the last heartbeat
	limit    time.Duration // default limit of silence
	moved    time.Duration // time since members that are heard last received data; the job's duration if never
	last     int           // other peers heard from
	silence  int           // other peers that are silent
	sameHost bool          // peer on this host, where no link can be cut
}

// decide reports whether a silent peer is lost, with the reason in either case. While data links
// work, only the control connection may be silent.
//   - If other ranks still received data later than half the limit after the peer's last heartbeat,
//     the peer was alive, because a step needs all members.
//   - If all of several peers are silent, this process itself is cut off.
//
// In both cases the peer is not lost before graceFactor times the limit.
func (q observation) decide() (lost bool, why string) {
	sign := func(limit time.Duration) string {
		return "no sign of life for " + quantity.Duration(limit)
	}
	switch {
	case q.silent < q.limit:
		return false, "its last heartbeat is recent"
	case q.sameHost:
		return true, sign(q.limit)
	case q.silent >= graceFactor*q.limit:
		return true, sign(graceFactor * q.limit)
	case q.last > 0 && q.moved < q.silent-q.limit/2:
		return false, "other members have received data since, for which all members are needed"
	case q.last == 0 && q.silence > 0:
		return false, "no member sends heartbeats, so the coordinator itself may be disconnected"
	}
	return true, sign(q.limit)
}
