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

// sessionTable are who is there: a seat for each session, taken by at most one connection.
type sessionTable struct {
	clock *liveness.Clock // by which absences are measured

	mu        sync.Mutex
	sessions  int // of each trainer
	list      []sessionState
	trainers  []trainer
	restarted bool          // an earlier process had this server's seats
	changed   chan struct{} // gets a token when a session has ended in good order
}

type sessionState struct {
	conn       *conn
	since      time.Time // when it was left; with left, when the session left
	cause      error     // why
	left       bool      // the session has left for good
	leaveAcked bool      // and knows that the server knows

	newest newest // change of earlier connections
}

type trainer struct {
	process uint64   // the number of the process that is this trainer now
	retired []uint64 // of those that were
	lost    bool
}

// maxRetired is how many processes may be one trainer, one after the other, and be
// known by their numbers.
const maxRetired = 64

var errNeverCame = errors.New("it has never connected")

func (s *sessionTable) init(trainers, sessions int, clock *liveness.Clock) {
	s.clock, s.sessions, s.list, s.trainers = clock, sessions, make([]sessionState, trainers*sessions), make([]trainer, trainers)
	s.changed = make(chan struct{}, 1)
	for i := range s.list {
		s.list[i].cause = errNeverCame
	}
}

// begin has sessions that are empty be so since now, with another time to come at the
// beginning.
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

// take gives c its seat, or returns the connection that must end first.
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
		for l := range s.sessions { // the old process's other sessions end, too
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

// goOn notes that this server goes on with what another one has begun: trainers that have
// not come are not at their beginning. s.mu is held.
func (s *sessionTable) goOn(now time.Time) {
	s.restarted = true
	for i := range s.list {
		if p := &s.list[i]; p.conn == nil && !p.left && p.since.After(now) {
			p.since = now
		}
	}
}

// leave frees the seat of c, if it has it.
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

// departed notes that a session has left.
func (s *sessionTable) departed(session int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := &s.list[session]; !p.left {
		p.left, p.since = true, s.clock.Now()
	}
}

// goodbye notes that a session has left and knows that its leave has arrived.
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

// expiredSession is a session that has been empty for too long.
type expiredSession struct {
	trainer, session int
	cause            error
	beginning        bool // it has never come, and had the time of the beginning for it
}

// overdue returns the trainers that have a session which is empty for longer than a time
// and has not left, each once ever.
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

// firstLost returns the first trainer that is lost.
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

// done tells whether nobody is to come any more: all trainers are lost, or have left
// and know it, or left longer ago than a time: an acknowledgement that was lost is asked for
// again within it.
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

// Trainer is what a server knows of a trainer.
type Trainer struct {
	Trainer      int    `json:"trainer"`
	Connected    int    `json:"connected"` // sessions
	Left         int    `json:"left"`      // sessions
	Lost         bool   `json:"lost"`
	Disconnected string `json:"away,omitempty"` // why a session that has not left is not connected
}

// show describes all trainers.
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
