package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Stopping all ranks of a job after the same step. Ranks announce that they can stop
// (kindStoppable). To stop the job, the coordinator requests the number of started steps from each
// rank (kindStop, kindBegun); all ranks stop after the maximum (kindHalt). The protocol has
// the property invariant[one-last-step]: the last step is always the same on every rank, because
// from the request until the answer no rank begins a step beyond the reported number. A step
// therefore costs only an uncontended lock.

// StoppedError means that the job stopped in good order on request.
type StoppedError struct {
	Reason string // origin of the request: "SIGTERM"
	Step   int64  // steps done by the run; negative: not saved
	Saved  string // path of the saved run
}

// Error returns the origin of the request, the step and the path.
func (e *StoppedError) Error() string {
	if e.Step < 0 {
		return "interrupted by " + e.Reason
	}
	return fmt.Sprintf("stopped by %s after step %d, saved in %s", e.Reason, e.Step, e.Saved)
}

// RejoinError means that all ranks leave their job after the same step, to join again with other
// members.
type RejoinError struct{ Step int64 }

// Error names the step.
func (e *RejoinError) Error() string {
	return fmt.Sprintf("the members of the job change after step %d", e.Step)
}

// ErrCannotStop means that some rank does not take part in stopping all after the same step.
var ErrCannotStop = errors.New("the ranks have no step in common to stop after")

// stopAgreement is the maximum time for the ranks to agree on the step.
const stopAgreement = 10 * time.Second

// Stopper is a rank's part in stopping all ranks after the same step. A nil Stopper never stops.
// The methods are safe for concurrent use.
type Stopper struct {
	saved string // path at which the rank saves the run

	mu        sync.Mutex
	begun     int64         // started steps
	requested chan struct{} // nil: no request; closed with the answer
	lastStep  int64         // answer: number of steps of all ranks
	end       error         // answer: *StoppedError or *RejoinError
	stopped   bool          // Begin has returned end
	broken    error         // error instead of the answer
}

// NewStopper returns the Stopper of a rank that saves the run at saved and has done some steps.
func NewStopper(saved string, done int64) *Stopper { return &Stopper{saved: saved, begun: done} }

// Begin announces the next step of a rank that has done the given number of steps. Begin returns a
// *StoppedError or a *RejoinError if all ranks stop before the next step.
func (s *Stopper) Begin(done int64) error { return s.BeginMany(done, 1) }

// BeginMany is Begin for simultaneous steps of several threads: all stop before or after them.
func (s *Stopper) BeginMany(done, steps int64) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requested != nil && done >= s.begun {
		s.await()
		if s.broken != nil {
			return s.broken
		}
		if done >= s.lastStep {
			s.stopped = true
			return s.end
		}
	}
	s.begun = max(s.begun, done+steps)
	return nil
}

// hasStopped reports whether Begin has returned the error that all ranks stop.
func (s *Stopper) hasStopped() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// await waits for the answer. The caller holds mu; await releases mu while waiting.
func (s *Stopper) await() {
	answered := s.requested
	s.mu.Unlock()
	defer s.mu.Lock()
	late := time.NewTimer(stopAgreement)
	defer late.Stop()
	select {
	case <-answered:
	case <-late.C:
		s.fail(fmt.Errorf("the ranks have not agreed within %v on the step after which to stop", stopAgreement))
	}
}

// ask returns the number of steps that the rank has begun. From then on the rank begins no other
// step until answer.
func (s *Stopper) ask() (begun int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requested == nil {
		s.requested = make(chan struct{})
	}
	return s.begun
}

// answer sets the number of steps after which all ranks stop, for the reason why or, with rejoin,
// to join again.
func (s *Stopper) answer(halt int64, why string, rejoin bool) {
	s.settle(func() {
		s.lastStep, s.end = halt, &StoppedError{Reason: why, Step: halt, Saved: s.saved}
		if rejoin {
			s.end = &RejoinError{Step: halt}
		}
	})
}

func (s *Stopper) fail(err error) { s.settle(func() { s.broken = err }) }

// abandon ends the wait for an answer that will not arrive.
func (s *Stopper) abandon(err error) {
	s.mu.Lock()
	waits := s.requested != nil
	s.mu.Unlock()
	if waits {
		s.fail(err)
	}
}

func (s *Stopper) settle(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requested == nil {
		s.requested = make(chan struct{})
	}
	select {
	case <-s.requested:
	default:
		set()
		close(s.requested)
	}
}

// LocalStops coordinates the stop of ranks that are goroutines of one process.
type LocalStops struct {
	mu    sync.Mutex
	ranks []*Stopper     // nil: the rank cannot stop
	last  map[int]string // last operation of each rank that has left
}

// NewLocalStops returns the stops of n ranks.
func NewLocalStops(n int) *LocalStops {
	return &LocalStops{ranks: make([]*Stopper, n), last: map[int]string{}}
}

// Add makes a rank stoppable.
func (t *LocalStops) Add(rank int, s *Stopper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ranks[rank] = s
}

// Stop stops all ranks after the same step, and returns that step.
func (t *LocalStops) Stop(why string) (StoppedError, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ranks) == 0 || slices.Contains(t.ranks, nil) {
		return StoppedError{}, ErrCannotStop
	}
	last := int64(1) // a run without a step has no state to save
	for _, s := range t.ranks {
		last = max(last, s.ask())
	}
	for _, s := range t.ranks {
		s.answer(last, why, false)
	}
	return StoppedError{Reason: why, Step: last, Saved: t.ranks[0].saved}, nil
}

// Leave stores the last operation of a rank that leaves.
func (t *LocalStops) Leave(rank int, operation string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[rank] = operation
}

// After returns " after allreduce 98", the last operation of a rank that has left; "": none.
func (t *LocalStops) After(rank int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[rank] == "" {
		return ""
	}
	return " after " + t.last[rank]
}

type stopping struct {
	able   []bool // ranks able to stop
	saved  string // path at which rank 0 saves the run
	why    string // "": no stop in progress
	rejoin bool   // the ranks stop to join again
	begun  map[int]int64
	at     chan StoppedError
	asked  chan Departure
	left   chan struct{} // closed when all ranks have left to join again
}

// Departure is the request of a rank to leave a job that continues without the rank.
type Departure struct {
	Rank   int
	Reason string // origin of the request: "SIGTERM"
}

// Stop stops all training ranks after the same step, with the reason why. Stop returns false if
// some rank cannot stop. The channel of Stopping receives the step.
func (c *Coordinator) Stop(why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop(why)
}

// Stopping receives the agreed last step, for a request of any origin.
func (c *Coordinator) Stopping() <-chan StoppedError { return c.halt.at }

// Departures receives requests of ranks to leave, with CoordinatorConfig.Rejoin.
func (c *Coordinator) Departures() <-chan Departure { return c.halt.asked }

// Rejoin makes all ranks leave after the same step, to join again: they stop with a *RejoinError.
// Rejoin returns false if some rank cannot stop, or all stop for another reason.
func (c *Coordinator) Rejoin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.halt.why == "" {
		c.halt.rejoin = c.stop("other members")
	}
	return c.halt.rejoin
}

// Rejoined returns a channel that is closed when all ranks have left because of Rejoin. It stays
// open if they had begun their last step before, and end.
func (c *Coordinator) Rejoined() <-chan struct{} { return c.halt.left }

// leftToRejoin closes the channel of Rejoined. The caller holds mu.
func (c *Coordinator) leftToRejoin() {
	for r := range c.trainers() {
		if !c.halt.rejoin || c.members[r].state != seatLeft || !c.members[r].stopped {
			return
		}
	}
	close(c.halt.left)
}

// Stopped reports whether the ranks have agreed to stop and rank has left in good order.
func (c *Coordinator) Stopped(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.halt.begun) == c.trainers() && c.members[rank].state == seatLeft
}

func (c *Coordinator) trainers() int { return c.cfg.WorldSize - c.cfg.Servers }

func (c *Coordinator) stop(why string) bool {
	h := &c.halt
	if h.why != "" {
		return true
	}
	if c.verdict != nil || !c.complete {
		return false
	}
	for r := range c.trainers() {
		if !h.able[r] || c.members[r].state != seatJoined {
			return false
		}
	}
	h.why = why
	for r := range c.trainers() {
		c.members[r].member.post(message{Kind: kindStop, Peer: -1, Reason: why})
	}
	return true
}

// stopHeard handles a rank's messages about stopping. The caller holds mu.
func (c *Coordinator) stopHeard(rank int, m message) {
	h := &c.halt
	switch m.Kind {
	case kindStoppable:
		if h.able[rank] = true; rank == 0 {
			h.saved = m.Reason
		}
	case kindStop:
		answer := message{Kind: kindHalt, Peer: -1, Step: -1}
		if c.cfg.Rejoin {
			select {
			case h.asked <- Departure{rank, m.Reason}:
				answer.Step = 0
			default: // repeated
			}
		} else if c.stop(m.Reason) {
			return // the answer follows
		}
		c.members[rank].member.post(answer)
	case kindBegun:
		if h.why == "" || rank >= c.trainers() || len(h.begun) == c.trainers() {
			return
		}
		if h.begun[rank] = m.Step; len(h.begun) == c.trainers() {
			c.haltAll()
		}
	}
}

// haltAll sends the last step to all ranks. The caller holds mu.
func (c *Coordinator) haltAll() {
	h, last := &c.halt, int64(1) // without a step there is no state to save
	for _, begun := range h.begun {
		last = max(last, begun)
	}
	kind := kindHalt
	if h.rejoin {
		kind = kindRejoin
	}
	for r := range c.trainers() {
		c.members[r].member.post(message{Kind: kind, Peer: -1, Step: last, Reason: h.why})
	}
	if h.rejoin {
		return
	}
	h.at <- StoppedError{Reason: h.why, Step: last, Saved: h.saved}
}

// Stoppable announces that this rank can stop after any step, and connects s to requests.
func (m *Member) Stoppable(s *Stopper) {
	m.mu.Lock()
	m.stopper = s
	m.mu.Unlock()
	_ = m.ch.send(message{Kind: kindStoppable, Peer: -1, Reason: s.saved}, answerTimeout) // if sending fails, the job is lost
}

// Stop requests that all ranks stop after the same step, and returns the agreed step, or that this
// rank leaves a job that continues without it, and returns step 0. The error is ErrCannotStop, or
// the reason for the job's end.
func (m *Member) Stop(why string) (StoppedError, error) {
	m.mu.Lock()
	s := m.stopper
	m.mu.Unlock()
	if s == nil {
		return StoppedError{}, ErrCannotStop
	}
	if err := m.ch.send(message{Kind: kindStop, Peer: -1, Reason: why}, answerTimeout); err != nil {
		return StoppedError{}, err
	}
	late := time.NewTimer(stopAgreement)
	defer late.Stop()
	select {
	case at := <-m.halted:
		if at.Step < 0 {
			return at, ErrCannotStop
		}
		return at, nil
	case <-m.ended:
		return StoppedError{}, m.Err()
	case <-late.C:
		return StoppedError{}, ErrCannotStop
	}
}

// stopHeard handles the coordinator's messages about stopping.
func (m *Member) stopHeard(msg message) {
	m.mu.Lock()
	s := m.stopper
	m.mu.Unlock()
	switch {
	case s == nil: // this rank did not announce that it can stop
	case msg.Kind == kindStop:
		_ = m.ch.send(message{Kind: kindBegun, Peer: -1, Step: s.ask()}, answerTimeout) // if sending fails, the job is lost
	default:
		if msg.Step > 0 {
			s.answer(msg.Step, msg.Reason, msg.Kind == kindRejoin)
		}
		select {
		case <-m.halted: // refused: the request came too early
		default:
		}
		m.halted <- StoppedError{Reason: msg.Reason, Step: msg.Step, Saved: s.saved}
	}
}
