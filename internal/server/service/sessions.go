package service

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/server/message"
)

// sessionTable has the state of all sessions, each with at most one connection.
type sessionTable struct {
	clock *liveness.Clock // measures absences

	mu        sync.Mutex
	sessions  int // sessions per trainer
	list      []sessionState
	trainers  []trainer
	restarted bool          // an earlier process has served these sessions
	changed   chan struct{} // gets a token when a session has ended normally
}

type sessionState struct {
	conn       *conn
	since      time.Time // start of the absence, or of left
	cause      error     // cause of the absence
	left       bool      // has left for good
	leaveAcked bool      // the session has seen the acknowledgement of its leave

	newest newest // last change of earlier connections
}

type trainer struct {
	process uint64   // number of the trainer's current process
	retired []uint64 // numbers of earlier processes
	lost    bool
}

// maxRetired is the maximum number of replaced processes that the server remembers per trainer.
const maxRetired = 64

var errNeverCame = errors.New("it has never connected")

func (s *sessionTable) init(trainers, sessions int, clock *liveness.Clock) {
	s.clock, s.sessions, s.list, s.trainers = clock, sessions, make([]sessionState, trainers*sessions), make([]trainer, trainers)
	s.changed = make(chan struct{}, 1)
	for i := range s.list {
		s.list[i].cause = errNeverCame
	}
}

// begin restarts the clock of unconnected sessions, with more time at the start of the job.
func (s *sessionTable) begin(more time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.clock.Now()
	if !s.restarted {
		since = since.Add(more)
	}
	for i := range s.list {
		if p := &s.list[i]; !p.left {
			p.since = since
		}
	}
}

// take makes c its session's connection, or returns the old connection, which must end first.
func (s *sessionTable) take(c *conn) (old *conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.trainers[c.hello.Trainer]
	if slices.Contains(t.retired, c.hello.Incarnation) {
		return nil, &message.Failure{Reason: message.ReasonReplaced,
			Text: fmt.Sprintf("another process has connected as trainer %d: were two started with the same rank?", c.hello.Trainer)}
	}
	if t.process != c.hello.Incarnation {
		if t.process != 0 {
			if len(t.retired) == maxRetired {
				t.retired = slices.Delete(t.retired, 0, 1)
			}
			t.retired = append(t.retired, t.process)
		}
		t.process = c.hello.Incarnation
		for l := range s.sessions { // the old process's other sessions end as well
			if other := s.list[c.hello.Trainer*s.sessions+l].conn; other != nil && l != c.hello.Session {
				other.replace()
			}
		}
	}
	place := &s.list[c.session]
	if place.conn != nil {
		return place.conn, nil
	}
	if place.cause == errNeverCame && c.hello.From > 1 && !s.restarted {
		s.goOn(s.clock.Now())
	}
	c.reconnected = place.cause != errNeverCame
	place.conn, place.leaveAcked = c, false
	c.safe.newest = place.newest
	return nil, nil
}

// goOn records that this server continues an earlier server's work: absent trainers get no extra
// time. s.mu is held.
func (s *sessionTable) goOn(now time.Time) {
	s.restarted = true
	for i := range s.list {
		if p := &s.list[i]; p.conn == nil && !p.left && p.since.After(now) {
			p.since = now
		}
	}
}

// leave removes c as its session's connection, if it still is.
func (s *sessionTable) leave(c *conn, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := &s.list[c.session]
	if place.conn != c {
		return
	}
	place.conn = nil
	place.newest = c.safe.newest
	if !place.left {
		place.since, place.cause = s.clock.Now(), cause
	}
	s.notify()
}

func (s *sessionTable) departed(session int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := &s.list[session]; !p.left {
		p.left, p.since = true, s.clock.Now()
	}
}

// goodbye records that a session has left and has seen the acknowledgement.
func (s *sessionTable) goodbye(session int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list[session].left, s.list[session].leaveAcked = true, true
	s.notify()
}

func (s *sessionTable) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

type expiredSession struct {
	trainer, session int
	cause            error
	beginning        bool // has never connected, within the time limit of the start
}

// overdue returns the sessions absent for longer than limit and not left, once per trainer.
func (s *sessionTable) overdue(limit time.Duration) (out []expiredSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.clock.Now().Add(-limit)
	for i, p := range s.list {
		t := &s.trainers[i/s.sessions]
		if t.lost || p.conn != nil || p.left || p.since.After(before) {
			continue
		}
		t.lost = true
		out = append(out, expiredSession{i / s.sessions, i % s.sessions, p.cause, p.cause == errNeverCame && !s.restarted})
	}
	return out
}

func (s *sessionTable) firstLost() (trainer int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range s.trainers {
		if t.lost {
			return i, true
		}
	}
	return 0, false
}

// done reports whether all trainers are lost, have left with an acknowledgement, or have left
// longer ago than within, the time in which a trainer repeats a lost Leave.
func (s *sessionTable) done(within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.clock.Now().Add(-within)
	for i, p := range s.list {
		if !s.trainers[i/s.sessions].lost && !(p.left && (p.leaveAcked || p.since.Before(before))) {
			return false
		}
	}
	return true
}

// Trainer is the state of a trainer at a server.
type Trainer struct {
	Trainer      int    `json:"trainer"`
	Connected    int    `json:"connected"` // sessions
	Left         int    `json:"left"`      // sessions
	Lost         bool   `json:"lost"`
	Disconnected string `json:"away,omitempty"` // cause of the absence of an active session
}

func (s *sessionTable) show() []Trainer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Trainer, len(s.trainers))
	for i := range out {
		out[i] = Trainer{Trainer: i, Lost: s.trainers[i].lost}
	}
	for i, p := range s.list {
		t := &out[i/s.sessions]
		switch {
		case p.left:
			t.Left++
		case p.conn == nil && p.cause != nil:
			t.Disconnected = p.cause.Error()
		}
		if p.conn != nil {
			t.Connected++
		}
	}
	return out
}
