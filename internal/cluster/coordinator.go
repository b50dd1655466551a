package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// CoordinatorConfig describes the job of a Coordinator.
type CoordinatorConfig struct {
	// Listener, if set, accepts the ranks, instead of Address; the Coordinator closes it.
	Listener net.Listener
	// Address is the HOST:PORT where ranks join, without a Listener.
	Address string
	// WorldSize is the number of ranks, at least 1.
	WorldSize int
	// Servers is the number of servers, the last ranks, without training.
	Servers int
	// Ticket is the job's secret, the same on all ranks.
	Ticket transport.Ticket
	// TLS selects the encrypted connections, equal on all ranks. Zero: those between hosts.
	TLS transport.TLS
	// Version is the program's version. Ranks with another version are refused.
	Version string
	// HostRank is the rank with the Coordinator in its process; -1 means a launcher.
	HostRank int
	// Times must equal the ranks' Times. Join limits the wait of the first rank for the last.
	Times Times
	// SlowAfter is the time for which other ranks must have waited for a rank until it is reported
	// as slow; 0 means 5 s.
	SlowAfter time.Duration
	// StuckAfter is the time without progress that makes an operation stuck; 0 means 30 s.
	StuckAfter time.Duration
	// Early enables a limit below Times.DeadAfter, derived from the intervals of heartbeats, for
	// ranks that use no processor time. It is for jobs that continue after a loss.
	Early bool
	// Rejoin is for jobs with ranks that can join again: a signal to one rank is a request to leave
	// (Departures), and does not stop the other ranks.
	Rejoin bool
	// Report, if set, is called with one line for each notable event that does not end the job:
	// slow ranks, refused connections, and reports of the ranks. Report must not block for long.
	Report func(line string)
}

// Validate returns all errors of the configuration.
func (c CoordinatorConfig) Validate() error {
	var bad faults.List
	bad.If(c.WorldSize < 1, "world size %d: want at least 1", c.WorldSize)
	bad.If(c.Servers < 0 || c.Servers > 0 && c.Servers >= c.WorldSize,
		"%d servers in a mesh of %d: want 0 to %d, since at least one rank trains", c.Servers, c.WorldSize, max(0, c.WorldSize-1))
	bad.If(c.HostRank < -1 || c.HostRank > 0 && c.HostRank >= c.WorldSize,
		"host rank %d: want -1 for a launcher, or a rank below %d", c.HostRank, c.WorldSize)
	bad.If(c.Listener == nil && c.Address == "", "neither Listener nor Address is given: want one, where ranks join")
	bad.If(c.SlowAfter < 0 || c.StuckAfter < 0,
		"slow after %v, stuck after %v: want at least 0", c.SlowAfter, c.StuckAfter)
	bad.Add(c.Times.Validate(), checkTicket(c.Ticket), c.TLS.Validate())
	return bad.Err()
}

func checkTicket(t transport.Ticket) error {
	if len(t) == 0 {
		return errors.New("no ticket: all ranks of a job need the same one")
	}
	return nil
}

func (c *CoordinatorConfig) setDefaults() {
	c.Times = c.Times.WithDefaults()
	c.SlowAfter = cmp.Or(c.SlowAfter, defaultSlowAfter)
	c.StuckAfter = cmp.Or(c.StuckAfter, defaultStuckAfter)
	if c.Report == nil {
		c.Report = func(string) {}
	}
}

// Coordinator gathers and monitors the ranks of a job. The methods are safe for concurrent use.
type Coordinator struct {
	cfg      CoordinatorConfig
	listener net.Listener
	door     *transport.AcceptLimiter
	ctx      context.Context // context of the handshakes; ends with Close
	cancel   context.CancelFunc
	lost     chan error
	joined   chan struct{} // closed when all ranks have joined
	idle     chan struct{} // token: a seat was freed
	work     sync.WaitGroup
	closed   sync.Once

	mu       sync.Mutex
	members  []memberState
	complete bool // all have joined; the roster is sent
	evidence []failureReport
	ended    []bool // processes that ended with status 0, by rank
	verdict  error
	recheck  *time.Timer // timer of judge
	join     *time.Timer // timer until all ranks must have joined; nil before the first joins
	slow     reporter
	reported map[string]bool // lines reported by ranks
	clock    pauseClock
	still    time.Duration  // time since a member last reported received data
	ends     []failure.Exit // reported ends of ranks, at most one per rank
	halt     stopping
	agreed   setting.Agreement
}

type memberState struct {
	state    seatState
	member   *connection // set from seatJoined on
	addr     string
	reached  net.IP            // address of this host as dialed by the rank; nil: unknown
	status   message           // last message of kindStatus
	last     string            // last operation before leaving
	stopped  bool              // has left because all ranks stop
	at       time.Time         // arrival time of status
	detector liveness.Detector // silence since the last message
	rhythm   rhythm

	reported bool // the silence was reported

	used func() time.Duration // processor time of the process; nil: unknown
	busy time.Duration        // processor time at the last tick
}

type seatState int

const (
	seatEmpty    seatState = iota
	seatReserved           // during the handshake
	seatJoined
	seatLeft           // left in good order
	memberDisconnected // failed, or disconnected
)

// missed returns a text about what a process in this state has not done yet.
func (s seatState) missed() string {
	if s == seatEmpty || s == seatReserved {
		return "joined the job"
	}
	return "left the job"
}

// NewCoordinator starts listening and returns. The time for joining starts with the first rank.
func NewCoordinator(cfg CoordinatorConfig) (*Coordinator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	cfg.setDefaults()
	if cfg.Listener == nil {
		var err error
		if cfg.Listener, err = net.Listen("tcp", cfg.Address); err != nil {
			return nil, fmt.Errorf("coordinator: listen for ranks on %s: %w", cfg.Address, err)
		}
	}
	c := newCoordinator(cfg)
	c.work.Go(c.accept)
	return c, nil
}

// newCoordinator returns a coordinator that does not accept yet.
func newCoordinator(cfg CoordinatorConfig) *Coordinator {
	c := &Coordinator{
		cfg: cfg, listener: cfg.Listener,
		lost:    make(chan error, 1),
		joined:  make(chan struct{}),
		idle:    make(chan struct{}, 1),
		members: make([]memberState, cfg.WorldSize),
		ended:   make([]bool, cfg.WorldSize),
		clock:   pauseClock{beat: cfg.Times.Heartbeat, last: time.Now()},
		halt:    stopping{able: make([]bool, cfg.WorldSize), begun: map[int]int64{}, at: make(chan StoppedError, 1), asked: make(chan Departure, cfg.WorldSize), left: make(chan struct{})},
	}
	c.door = transport.NewDoor(maxHandshakes, c.refused)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.work.Go(c.watch)
	return c
}

// Addr returns the address for joining ranks.
func (c *Coordinator) Addr() net.Addr { return c.listener.Addr() }

// Lost receives the verdict when the job cannot continue, such as a *transport.LostError, a
// *MissingError or a *setting.ConflictError, and is then closed. Err returns the verdict any time.
func (c *Coordinator) Lost() <-chan error { return c.lost }

// Complete returns a channel that is closed when all ranks have joined.
func (c *Coordinator) Complete() <-chan struct{} { return c.joined }

// HasJoined reports whether rank is in the job.
func (c *Coordinator) HasJoined(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[rank].state == seatJoined
}

// Err returns the verdict, or nil.
func (c *Coordinator) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict
}

// Silent reports whether rank has sent no message for DeadAfter: it is dead, stopped or stuck.
func (c *Coordinator) Silent(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent(&c.members[rank])
}

func (c *Coordinator) silent(s *memberState) bool { return s.reported && s.detector.Lost() }

// HasLeft reports whether rank has left the job without an error.
func (c *Coordinator) HasLeft(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[rank].state == seatLeft
}

// MarkLost reports that rank's process has ended, with the reason ("killed by signal 9"). A
// launcher calls it as soon as the process ends. A rank that had left without an error is not lost.
func (c *Coordinator) MarkLost(rank int, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[rank].state != seatLeft {
		c.report(failureReport{proof: proofExited, rank: rank, by: -1, why: why})
	}
}

// MarkServerLost reports the loss of a process outside the mesh, such as "parameter server 0": the
// job ends, and no rank is to blame. addr is the process's listen address, or "".
func (c *Coordinator) MarkServerLost(who, addr, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serverLost(&transport.ServerLostError{Process: who, Addr: addr, Reason: why})
}

// serverLost makes e the verdict, the reason for the job's end, unless one exists. mu is held.
func (c *Coordinator) serverLost(e *transport.ServerLostError) {
	if c.verdict == nil {
		c.decide(e)
	}
}

// MarkEnded reports that rank's process has ended with status 0. The rank then counts as lost,
// unless it had left the job before, or no rank has joined: perhaps the program does not use ringo.
func (c *Coordinator) MarkEnded(rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[rank] = true
	c.reportExited()
}

// reportExited reports ranks that ended without leaving, once another has joined. mu is held.
func (c *Coordinator) reportExited() {
	for _, s := range c.members {
		if s.state != seatJoined && s.state != memberDisconnected {
			continue
		}
		for r, ended := range c.ended {
			if ended && c.members[r].state != seatLeft {
				c.ended[r] = false
				c.report(failureReport{proof: proofExited, rank: r, by: -1, why: failure.Early("its process ended with status 0 before it "+c.members[r].state.missed(), "", "")})
			}
		}
		return
	}
}

// report records a failure report and calls judge. The caller holds mu.
func (c *Coordinator) report(e failureReport) {
	if c.verdict != nil {
		return
	}
	e.at = time.Now()
	c.evidence = append(c.evidence, e)
	c.judge()
}

// judge ends the job if the reports suffice. The caller holds mu.
func (c *Coordinator) judge() {
	if c.verdict != nil {
		return
	}
	now := time.Now()
	lost, again, ok := decideLost(c.evidence, now)
	switch {
	case ok:
		lost.Reason = ServerName(lost.Rank-(c.cfg.WorldSize-c.cfg.Servers)) + lost.Reason
		c.decide(&lost)
	case !again.IsZero():
		if c.recheck != nil {
			c.recheck.Stop()
		}
		c.recheck = time.AfterFunc(again.Sub(now), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.judge()
		})
	}
}

// decide makes err the verdict and sends the verdict to all ranks. invariant[one-verdict]: a job
// always has at most one verdict, and all of its ranks receive the same, regardless of the link
// that broke first on each. The caller holds mu.
func (c *Coordinator) decide(err error) {
	c.verdict = err
	c.lost <- err
	close(c.lost)
	for r := range c.members {
		if s := &c.members[r]; s.state == seatJoined {
			s.member.post(verdictMessage(err))
		}
	}
}

func verdictMessage(err error) message {
	var lost *transport.LostError
	var missing *MissingError
	var server *transport.ServerLostError
	var conflict *setting.ConflictError
	switch {
	case errors.As(err, &conflict):
		return message{Kind: kindVerdict, Peer: -1, Disagree: conflict.Over.Short()}
	case errors.As(err, &lost):
		return message{Kind: kindVerdict, Peer: lost.Rank, Reason: lost.Reason, TimedOut: lost.Timeout}
	case errors.As(err, &server):
		return message{Kind: kindVerdict, Peer: -1, Cause: server.Process, Addr: clip(server.Addr, maxAddr), Reason: server.Reason}
	case errors.As(err, &missing):
		return message{Kind: kindVerdict, Peer: -1, Missing: missing.Ranks, World: missing.WorldSize, Servers: missing.Servers, WaitMillis: missing.Timeout.Milliseconds()}
	}
	return message{Kind: kindVerdict, Peer: -1, Reason: err.Error(), TimedOut: errors.Is(err, transport.ErrTimeout)}
}

// Close ends the coordinator. Without a verdict Close first waits for ranks in the job to leave, at
// most DeadAfter; after a verdict, only until the verdict is sent.
func (c *Coordinator) Close() error {
	c.closed.Do(func() {
		c.hangUp(c.silent) // silent ranks do not answer
		c.drain()
		c.cancel()
		_ = c.listener.Close()
		hang := time.AfterFunc(answerTimeout, func() { c.hangUp(everyone) })
		c.end()
		c.work.Wait()
		hang.Stop()
	})
	return nil
}

// end stops the timers, and makes every connection flush and finish.
func (c *Coordinator) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range []*time.Timer{c.recheck, c.join} {
		if t != nil {
			t.Stop()
		}
	}
	for r := range c.members {
		if m := c.members[r].member; m != nil {
			m.finish()
		}
	}
}

func everyone(*memberState) bool { return true }

// hangUp closes the connections of ranks that do not close.
func (c *Coordinator) hangUp(on func(*memberState) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.members {
		if s := &c.members[r]; s.member != nil && on(s) {
			_ = s.member.ch.close()
		}
	}
}

func (c *Coordinator) drain() {
	patience := c.cfg.Times.DeadAfter
	if c.Err() != nil {
		patience = answerTimeout
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for c.present() > 0 {
		select {
		case <-c.idle:
		case <-deadline.C:
			c.each(func(m *connection) { m.post(message{Kind: kindClosing, Peer: -1}) })
			return
		}
	}
}

func (c *Coordinator) present() (n int) {
	c.each(func(*connection) { n++ })
	return n
}

func (c *Coordinator) each(fn func(*connection)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.members {
		if s := &c.members[r]; s.state == seatJoined {
			fn(s.member)
		}
	}
}
