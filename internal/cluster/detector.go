package cluster

import (
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// maxLate bounds what a late tick says of those to come, in beats: one that was later by far was of
// a process that had been stopped, which goes on as before.
const maxLate = 4

// pauseClock weighs time by how well this process gets to run: its ticks are to come once per beat.
// A process that was stopped, or that waits for a core, neither sees its peers' signs of life nor
// may conclude anything from having seen none; and on a machine that delays it, it delays its
// peers, too.
type pauseClock struct {
	beat time.Duration
	last time.Time     // the last tick
	late time.Duration // by how much ticks have lately been late, at most; it fades
}

// tick notes a tick and returns how much of the time since the last one counts as silence of a peer
// that was not heard. It is all of it while ticks are in time; of a later one less the later it is:
// of an hour in which the process was stopped next to nothing.
func (c *pauseClock) tick(now time.Time) (counts time.Duration) {
	since := now.Sub(c.last)
	c.last = now
	c.late = max(min(since-c.beat, maxLate*c.beat), c.late*15/16)
	return liveness.Elapsed(since, c.beat)
}

// lateMillis is what peers are told of it: in eighths of a beat, so that a job in order says the
// same again and again.
func (c *pauseClock) lateMillis() int64 {
	eighth := max(1, c.beat/8)
	return (c.late / eighth * eighth).Milliseconds()
}

// stalled says that a process whose last tick counted for so little has just been stopped, or
// nearly: what it knows of others is old.
func (c *pauseClock) stalled(counts time.Duration) bool { return 2*counts < c.beat && c.late > c.beat }

// graceFactor is for how many times DeadAfter nobody is taken for dead by silence on the control
// connection alone: links to the coordinator may be cut for 15 s, and TCP takes as long again to
// notice that they are back.
const graceFactor = 3

// observation is what is known of a peer whose limit of silence is reached.
type observation struct {
	silent   time.Duration // since its last sign of life
	limit    time.Duration // after which it is usually lost
	moved    time.Duration // since data last came from members to those that are heard; as long as the job, if never
	last     int           // how many others are heard
	silence  int           // how many others are not, though they should be
	sameHost bool          // it is on this very host, where no link can be cut
}

// decide decides whether a silent peer is lost, and why, or why not. While the data links of the
// job live, the silence may be of the control connection alone.
//   - Data that came to others half of the limit after its last sign of life came with its help: a step needs all members.
//   - Where nobody at all is heard, of several, it is this end that is cut off.
//
// Neither excuses it for longer than patience.
func (q observation) decide() (lost bool, why string) {
	sign := func(limit time.Duration) string {
		return "no sign of life for " + quantity.Duration(limit)
	}
	switch {
	case q.silent < q.limit:
		return false, "it was heard of lately"
	case q.sameHost:
		return true, sign(q.limit)
	case q.silent >= graceFactor*q.limit:
		return true, sign(graceFactor * q.limit)
	case q.last > 0 && q.moved < q.silent-q.limit/2:
		return false, "data have come to others since, which takes all members"
	case q.last == 0 && q.silence > 0:
		return false, "nobody is heard of, so the coordinator itself may be cut off"
	}
	return true, sign(q.limit)
}
