package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// How all ranks of a job stop after the same step. Ranks say beforehand that they can (kindStoppable). When the
// job is to stop, the coordinator asks each how many steps it has begun (kindStop, kindBegun), the most of which is the
// step after which all stop (kindHalt). invariant[one-last-step]: that is the same step on every rank. From the question on a rank begins none that it has not told of, until it
// has the answer. So a step costs nothing but a lock that nobody else holds, and no step is begun that
// another rank would not do, too.

// StoppedError: the job was told to end, and did so in good order.
type StoppedError struct {
	Reason string // what told it: "SIGTERM"
	Step   int64  // how many steps the run has done; below 0: it was not saved
	Saved  string // where it was saved
}

// Error says what told it to end, and where it can go on.
func (e *StoppedError) Error() string {
	if e.Step < 0 {
		return "interrupted by " + e.Reason
	}
	return fmt.Sprintf("stopped by %s after step %d, saved in %s", e.Reason, e.Step, e.Saved)
}

// ErrCannotStop: some rank does not take part in stopping all after the same step.
var ErrCannotStop = errors.New("the ranks have no step in common to stop after")

// stopAgreement bounds how long ranks may take to agree on the step.
const stopAgreement = 10 * time.Second

// Stopper is a rank's part in stopping all after the same step. A nil one never stops. Its methods may
// be called from any goroutine.
type Stopper struct {
	saved string // where the rank saves the run

	mu        sync.Mutex
	begun     int64         // steps
	requested chan struct{} // nil: it was not asked to stop; closed with the answer
	lastStep  int64         // the answer: how many steps all do
	why       string
	broken    error // in place of it
}

// NewStopper is of a rank that saves the run in a place when it stops, and that has done so many
// steps of it before.
func NewStopper(saved string, done int64) *Stopper { return &Stopper{saved: saved, begun: done} }

// Begin says that the rank, which has done so many steps, is about to begin the next one. It returns a *StoppedError
// if all ranks stop before that step.
func (s *Stopper) Begin(done int64) error { return s.BeginMany(done, 1) }

// BeginMany is Begin of a thread among several that do so many steps at once: all stop before them, or behind.
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
			return &StoppedError{Reason: s.why, Step: s.lastStep, Saved: s.saved}
		}
	}
	s.begun = max(s.begun, done+steps)
	return nil
}

// await waits for the answer, which is on its way. The caller holds mu, which is free meanwhile.
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

// ask tells how many steps the rank has begun: from now on it begins no other without the answer.
func (s *Stopper) ask() (begun int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requested == nil {
		s.requested = make(chan struct{})
	}
	return s.begun
}

// answer is after how many steps all stop.
func (s *Stopper) answer(halt int64, why string) {
	s.settle(func() { s.lastStep, s.why = halt, why })
}

// fail gives err in place of the answer.
func (s *Stopper) fail(err error) { s.settle(func() { s.broken = err }) }

// abandon ends the wait for an answer that will not come.
func (s *Stopper) abandon(err error) {
	s.mu.Lock()
	waits := s.requested != nil
	s.mu.Unlock()
	if waits {
		s.fail(err)
	}
}

// settle sets the answer, once.
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

// StopTogether stops ranks of one process after the same step, and returns that.
func StopTogether(why string, ranks []*Stopper) (StoppedError, error) {
	if len(ranks) == 0 || slices.Contains(ranks, nil) {
		return StoppedError{}, ErrCannotStop
	}
	halt := int64(1) // of none there would be nothing to save
	for _, s := range ranks {
		halt = max(halt, s.ask())
	}
	for _, s := range ranks {
		s.answer(halt, why)
	}
	return StoppedError{Reason: why, Step: halt, Saved: ranks[0].saved}, nil
}

// stopping is the coordinator's part.
type stopping struct {
	able  []bool // by rank: it can stop
	saved string // where rank 0 saves the run
	why   string // "": nothing is stopped
	begun map[int]int64
	at    chan StoppedError
}

// Stop has all ranks that train stop after the same step, because of why, and returns false if some
// cannot. Stopping then says after which.
func (c *Coordinator) Stop(why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop(why)
}

// Stopping receives after which step all ranks stop, when they have agreed, whoever asked for it.
func (c *Coordinator) Stopping() <-chan StoppedError { return c.halt.at }

// Stopped says that the ranks have agreed to stop, and that rank has left in good order.
func (c *Coordinator) Stopped(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.halt.begun) == c.trainers() && c.members[rank].state == seatLeft
}

func (c *Coordinator) trainers() int { return c.cfg.WorldSize - c.cfg.Servers }

// stop is Stop. The caller holds mu.
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

// stopHeard acts on what a rank says of stopping. The caller holds mu.
func (c *Coordinator) stopHeard(rank int, m message) {
	h := &c.halt
	switch m.Kind {
	case kindStoppable:
		if h.able[rank] = true; rank == 0 {
			h.saved = m.Reason
		}
	case kindStop:
		if !c.stop(m.Reason) {
			c.members[rank].member.post(message{Kind: kindHalt, Peer: -1, Step: -1})
		}
	case kindBegun:
		if h.why == "" || rank >= c.trainers() || len(h.begun) == c.trainers() {
			return
		}
		if h.begun[rank] = m.Step; len(h.begun) == c.trainers() {
			c.haltAll()
		}
	}
}

// haltAll tells all after which step to stop. The caller holds mu.
func (c *Coordinator) haltAll() {
	h, last := &c.halt, int64(1) // of none there would be nothing to save
	for _, begun := range h.begun {
		last = max(last, begun)
	}
	for r := range c.trainers() {
		c.members[r].member.post(message{Kind: kindHalt, Peer: -1, Step: last, Reason: h.why})
	}
	h.at <- StoppedError{Reason: h.why, Step: last, Saved: h.saved}
}

// Stoppable says that this rank can stop after any step, and lets s know when it is to.
func (m *Member) Stoppable(s *Stopper) {
	m.mu.Lock()
	m.stopper = s
	m.mu.Unlock()
	_ = m.ch.send(message{Kind: kindStoppable, Peer: -1, Reason: s.saved}, answerTimeout) // or the job is lost, too
}

// Stop asks for all ranks to stop after the same step, and returns that when they have agreed on it.
// The error is ErrCannotStop, or why the job has ended.
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

// stopHeard acts on what the coordinator says of stopping.
func (m *Member) stopHeard(msg message) {
	m.mu.Lock()
	s := m.stopper
	m.mu.Unlock()
	switch {
	case s == nil: // it was not asked by who knows
	case msg.Kind == kindStop:
		_ = m.ch.send(message{Kind: kindBegun, Peer: -1, Step: s.ask()}, answerTimeout) // or the job is lost, too
	default:
		if msg.Step >= 0 {
			s.answer(msg.Step, msg.Reason)
		}
		select {
		case <-m.halted: // of who asked too early
		default:
		}
		m.halted <- StoppedError{Reason: msg.Reason, Step: msg.Step, Saved: s.saved}
	}
}
