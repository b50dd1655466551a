package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/transport"
)

// sendHeartbeat sends this rank's status once per heartbeat and detects a silent coordinator. A
// pauseClock counts the silence, so that a process that was stopped for a while does not blame the
// coordinator.
func (m *Member) sendHeartbeat() {
	own := pauseClock{beat: m.cfg.Times.Heartbeat, last: time.Now()}
	t := time.NewTicker(m.cfg.Times.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-m.closing:
			return
		case <-m.ended:
			return
		case <-t.C:
		}
		now := time.Now()
		counts := own.tick(now)
		if lost, why := m.pass(now, counts).decide(); lost && !m.outlives() {
			m.end(m.noCoordinator(errors.New(why)))
			return
		}
		s := m.status(own.stalled(counts))
		s.LateMillis = own.lateMillis()
		_ = m.ch.send(s, m.cfg.Times.Heartbeat) // a lost connection also ends reading
	}
}

// pass counts a heartbeat of this process and returns an observation of the coordinator.
func (m *Member) pass(now time.Time, counts time.Duration) observation {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quiet.Pass(now, counts, false)
	m.still += counts
	if m.data != nil {
		if came := m.data(); came > m.came {
			m.came, m.still = came, 0
			m.moved++
		}
	}
	return observation{silent: m.quiet.Lasts(), limit: m.quiet.Most(), moved: m.still, last: oneIf(m.data != nil), sameHost: m.ch.within()}
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// outlives reports whether this rank continues with a silent coordinator. It does if the
// coordinator is a launcher on this host with an open connection: the system would close the
// connection of a dead process, so the launcher is stopped or waits for a core, and may continue.
func (m *Member) outlives() bool {
	select {
	case <-m.ready:
		return m.hostRank < 0 && m.ch.within()
	default:
		return false
	}
}

// status returns the message for a heartbeat. A wait is sent as a duration, because clocks of hosts
// differ. A process that was stopped until now cannot measure the wait, and omits it.
func (m *Member) status(stalled bool) message {
	m.mu.Lock()
	s := message{Kind: kindStatus, Peer: -1, Doing: m.doing, Moved: m.moved}
	waiting := m.waiting
	m.mu.Unlock()
	if waiting == nil || stalled {
		return s
	}
	if w, ok := waiting(); ok && w.Peer >= 0 && w.Peer < m.cfg.WorldSize {
		s.Waits, s.Peer, s.In, s.Begun = true, w.Peer, w.In, w.Begun
		s.WaitMillis = max(0, time.Since(w.Since).Milliseconds())
	}
	return s
}

// read handles the coordinator's messages until the connection ends.
func (m *Member) read() {
	for {
		msg, err := m.ch.receive(0)
		if err != nil {
			m.answered()
			m.end(m.noCoordinator(err))
			return
		}
		m.mu.Lock()
		m.lastHeartbeat = time.Now()
		m.quiet.HeardAt(m.lastHeartbeat, time.Duration(msg.LateMillis)*time.Millisecond)
		m.mu.Unlock()
		if msg.Kind == kindClosing {
			m.mu.Lock()
			m.hasLeft = true // orderly end: a later disconnect is no loss
			m.mu.Unlock()
		}
		m.act(msg)
	}
}

func (m *Member) act(msg message) {
	switch msg.Kind {
	case kindRoster:
		if m.addrs == nil { // the first roster only
			m.addrs, m.hostRank = msg.Addrs, msg.Peer
			close(m.ready)
		}
	case kindVerdict:
		m.end(verdictError(msg))
	case kindStop, kindHalt, kindRejoin:
		m.stopHeard(msg)
	case kindBye:
		m.acknowledged.Store(true)
		m.answered()
	}
}

func verdictError(msg message) error {
	switch {
	case len(msg.Disagree) > 0:
		return &setting.ConflictError{Over: msg.Disagree}
	case msg.Peer >= 0:
		return &transport.LostError{Rank: msg.Peer, Reason: msg.Reason, Timeout: msg.TimedOut}
	case msg.Cause != "":
		return &transport.ServerLostError{Process: msg.Cause, Addr: msg.Addr, Reason: msg.Reason}
	case len(msg.Missing) > 0:
		return &MissingError{Ranks: msg.Missing, WorldSize: msg.World, Servers: msg.Servers, Timeout: time.Duration(msg.WaitMillis) * time.Millisecond}
	}
	return errors.New(msg.Reason)
}

func (m *Member) noCoordinator(cause error) error {
	who, host := "the launcher or rank 0", -1
	select {
	case <-m.ready:
		who, host = "the launcher", m.hostRank
	default:
	}
	if host >= 0 {
		who = fmt.Sprintf("rank %d, which coordinates the job,", host)
	}
	err := fmt.Errorf("%w: %s at %s ended or cannot be reached (%v)", ErrNoCoordinator, who, m.cfg.Rendezvous, cause)
	if host >= 0 {
		return &hostLost{transport.LostError{Rank: host, Reason: err.Error()}, err}
	}
	return err
}

// hostLost is the loss of the coordinator together with its host rank.
type hostLost struct {
	lost transport.LostError
	err  error
}

func (e *hostLost) Error() string   { return e.lost.Error() }
func (e *hostLost) Unwrap() []error { return []error{&e.lost, e.err} }

// answered records the coordinator's last message. Only the reader calls answered.
func (m *Member) answered() {
	select {
	case <-m.bye:
	default:
		close(m.bye)
	}
}

// end makes err the reason for the job's end, if the first and before this rank has left.
func (m *Member) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || m.hasLeft {
		return
	}
	m.err = err
	if m.stopper != nil {
		m.stopper.abandon(err)
	}
	m.lost <- err
	close(m.lost)
	close(m.ended)
}
