package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/connpeek"
	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// handshakeTimeout limits the time from a connection to the admission of its rank, and
// maxHandshakes the concurrent handshakes, so that strangers cannot exhaust memory or descriptors.
const (
	handshakeTimeout = 10 * time.Second
	maxHandshakes    = 128
)

func (c *Coordinator) accept() {
	connpeek.SpeakFirst(c.listener)
	who := c.cfg.Ticket.Under(c.cfg.TLS)
	for {
		conn, err := c.listener.Accept()
		if errors.Is(err, net.ErrClosed) || c.ctx.Err() != nil {
			if conn != nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil { // out of descriptors, for example: other processes may free some
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if s := c.door.Admit(conn); s != nil {
			c.work.Go(func() { c.admit(s, who) })
		}
	}
}

// admit performs the handshake of a connection and makes its rank a member.
func (c *Coordinator) admit(s *transport.PendingConn, who transport.Credentials) {
	ctx, cancel := context.WithTimeout(c.ctx, handshakeTimeout)
	defer cancel()
	seat := -1
	mine := transport.Hello{Version: c.cfg.Version, Purpose: transport.Control, Rank: -1, WorldSize: c.cfg.WorldSize}
	link, _, err := s.Accept(ctx, who, mine, func(h transport.Hello) error {
		if err := c.reserve(h); err != nil {
			return err
		}
		seat = h.Rank
		return nil
	})
	if err != nil {
		if seat >= 0 {
			c.unreserve(seat)
		}
		return
	}
	var reached net.IP
	if at, ok := link.LocalAddr().(*net.TCPAddr); ok {
		reached = at.IP
	}
	c.seat(seat, newLinkChannel(link, c.cfg.WorldSize), reached)
}

// refused reports a refused connection. A rank that joins after the job's end is not reported: the
// end is reported together with the other ranks' ends.
func (c *Coordinator) refused(line string) {
	if !strings.Contains(line, jobEnded) {
		c.cfg.Report(line)
	}
}

func (c *Coordinator) reserve(h transport.Hello) error {
	switch {
	case h.WorldSize != c.cfg.WorldSize:
		return fmt.Errorf("rank %d was started for a job of %d ranks, but the job has %d", h.Rank, h.WorldSize, c.cfg.WorldSize)
	case h.Rank < 0 || h.Rank >= c.cfg.WorldSize:
		return fmt.Errorf("rank %d is not among the %d ranks of the job", h.Rank, c.cfg.WorldSize)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := &c.members[h.Rank]; {
	case c.verdict != nil:
		c.note(h.Rank, failed(h.Rank, c.verdict))
		return fmt.Errorf("%s%w", jobEnded, c.verdict)
	case s.state == seatLeft:
		return fmt.Errorf("rank %d has left this job: a process joins it once", h.Rank)
	case s.state != seatEmpty:
		return fmt.Errorf("there is a rank %d already", h.Rank)
	default:
		s.state = seatReserved
		return nil
	}
}

func (c *Coordinator) unreserve(rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[rank].state == seatReserved {
		c.members[rank].state = seatEmpty
	}
}

// seat receives the join message of the rank on ch, assigns the seat and starts the goroutines of
// the connection. reached is the rank's target address on this host.
func (c *Coordinator) seat(rank int, ch channel, reached net.IP) {
	m, err := ch.receive(handshakeTimeout)
	if err != nil || m.Kind != kindJoin {
		_ = ch.close()
		c.unreserve(rank)
		return
	}
	member := newConnection(ch)
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		_ = ch.close()
		return
	}
	s := &c.members[rank]
	s.state, s.member, s.addr, s.reached, s.at = seatJoined, member, m.Addr, reached, time.Now()
	s.detector = liveness.Detector{Limit: c.cfg.Times.DeadAfter}
	s.detector.HeardAt(s.at, 0)
	if c.verdict != nil {
		member.post(verdictMessage(c.verdict))
	}
	if c.join == nil {
		c.join = time.AfterFunc(c.cfg.Times.Join, c.checkMissing)
	}
	if err := cmp.Or(c.checkSettings(rank, m), c.checkHeartbeats(rank, m)); err != nil && c.verdict == nil {
		c.decide(err)
	}
	c.reportExited()
	c.announce()
	c.work.Go(member.write)
	c.work.Go(func() { c.serve(rank, member) })
	c.mu.Unlock()
}

// checkSettings refuses a process with settings that differ from earlier processes.
func (c *Coordinator) checkSettings(rank int, m message) error {
	who := failure.Rank(rank)
	if server := rank - (c.cfg.WorldSize - c.cfg.Servers); server >= 0 {
		who = fmt.Sprintf("server %d", server)
	}
	return c.agreed.Join(who, m.Settings)
}

// checkHeartbeats refuses a rank if the two ends' times would make a live peer count as dead.
func (c *Coordinator) checkHeartbeats(rank int, m message) error {
	beat, dead := time.Duration(m.BeatNanos), time.Duration(m.DeadNanos)
	if m.Kind != kindJoin || 2*beat <= c.cfg.Times.DeadAfter && (dead == 0 || 2*c.cfg.Times.Heartbeat <= dead) {
		return nil
	}
	return fmt.Errorf("rank %d has a heartbeat of %v and takes others for dead after %v, the job's coordinator %v and %v: "+
		"give all ranks and their launcher the same times", rank, beat, dead, c.cfg.Times.Heartbeat, c.cfg.Times.DeadAfter)
}

// announce sends the roster when all have joined, but never after a verdict. mu is held.
func (c *Coordinator) announce() {
	if c.verdict != nil {
		return
	}
	addrs, reached := make([]string, len(c.members)), make([]net.IP, len(c.members))
	for r := range c.members {
		if c.members[r].state != seatJoined {
			return
		}
		addrs[r], reached[r] = c.members[r].addr, c.members[r].reached
	}
	addrs = reachable(addrs, reached)
	if err := checkReach(addrs); err != nil {
		c.decide(err)
		return
	}
	c.complete = true
	close(c.joined)
	for r := range c.members {
		c.members[r].member.post(message{Kind: kindRoster, Peer: c.cfg.HostRank, Addrs: addrs})
	}
}

// serve handles rank's messages until its connection ends.
func (c *Coordinator) serve(rank int, member *connection) {
	defer func() {
		member.finish()
		<-member.written
		_ = member.ch.close()
	}()
	for {
		m, err := member.ch.receive(0)
		if err != nil {
			c.disconnected(rank, err)
			return
		}
		c.handle(rank, m)
		if m.Kind == kindReport && c.news(m.Reason) {
			c.cfg.Report(m.Reason)
		}
	}
}

// maxTold limits the lines reported by ranks.
const maxTold = 64

func (c *Coordinator) news(line string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported[line] || len(c.reported) == maxTold {
		return false
	}
	if c.reported == nil {
		c.reported = map[string]bool{}
	}
	c.reported[line] = true
	return true
}

func (c *Coordinator) handle(rank int, m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.members[rank]
	c.heard(s, time.Now(), time.Duration(m.LateMillis)*time.Millisecond)
	switch m.Kind {
	case kindStatus:
		if m.Moved > s.status.Moved {
			c.still = 0
		}
		s.status, s.at = m, time.Now()
	case kindSuspect:
		c.suspect(rank, m)
	case kindStoppable, kindStop, kindBegun:
		c.stopHeard(rank, m)
	case kindLeave:
		if s.state == seatJoined {
			s.state, s.last, s.stopped = seatLeft, m.In, m.Stopped
			c.leftEarly(rank)
			c.leftToRejoin()
		}
		s.member.post(message{Kind: kindBye, Peer: -1})
		c.freed()
	case kindFailed:
		c.note(rank, m)
		if s.state == seatJoined {
			s.state = memberDisconnected
			c.failed(rank, m)
		}
		s.member.post(message{Kind: kindBye, Peer: -1})
		c.freed()
	}
}

// failed records the end of rank, caused by itself, another rank or a server. mu is held.
func (c *Coordinator) failed(rank int, m message) {
	if m.Addr != "" && m.Cause != "" {
		c.serverLost(&transport.ServerLostError{Process: m.Cause, Addr: m.Addr, Reason: m.Reason})
		return
	}
	if m.Peer >= 0 && m.Peer != rank {
		c.suspect(rank, m)
		return
	}
	c.report(failureReport{proof: proofFailed, rank: rank, by: rank, why: failedPrefix + m.Reason, late: m.TimedOut})
}

// suspect records that rank cannot reach m.Peer. If m.Peer waits for another rank, the suspected
// rank is the last of this chain of waits. mu is held.
func (c *Coordinator) suspect(rank int, m message) {
	if m.Peer < 0 || m.Peer == rank || accuser(rank, c.evidence) {
		return
	}
	accused := m.Peer
	if r, circle := root(c.statuses(), m.Peer, time.Second); !circle {
		accused = r
	}
	if accused == rank {
		accused = m.Peer
	}
	e := failureReport{proof: proofSuspect, rank: accused, by: rank, why: fmt.Sprintf("rank %d reports: %s", rank, m.Reason), late: m.TimedOut, in: m.In}
	if s := &c.members[accused]; s.state == seatLeft {
		e.left(s.last)
	}
	c.report(e)
}

// leftEarly turns suspicions against a rank that has left into proofs. The caller holds mu.
func (c *Coordinator) leftEarly(rank int) {
	for i := range c.evidence {
		if e := &c.evidence[i]; e.rank == rank {
			e.left(c.members[rank].last)
		}
	}
	c.judge()
}

func (c *Coordinator) disconnected(rank int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.members[rank]
	if s.state == seatJoined {
		s.state = memberDisconnected
		if c.ctx.Err() == nil {
			c.report(failureReport{proof: proofCut, rank: rank, by: -1, why: fmt.Sprintf("its control connection ended before it left (%v)", err)})
		}
	}
	c.freed()
}

func (c *Coordinator) freed() {
	select {
	case c.idle <- struct{}{}:
	default:
	}
}
