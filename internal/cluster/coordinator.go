package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// CoordinatorConfig describes the job that a Coordinator gathers.
type CoordinatorConfig struct {
	// Listener is where ranks join; the Coordinator closes it. nil means that it listens on Address.
	Listener net.Listener
	// Address is the HOST:PORT where ranks join, without a Listener.
	Address string
	// WorldSize is the number of ranks, at least 1.
	WorldSize int
	// Servers is how many of them, the last, are servers and do not train.
	Servers int
	// Ticket is the job's secret, the same on all ranks.
	Ticket transport.Ticket
	// TLS says which connections are encrypted, the same on all ranks. Zero: those between hosts.
	TLS transport.TLS
	// Version is that of the program. Ranks of another are refused.
	Version string
	// HostRank is the rank in whose process the Coordinator lives; -1 means a
	// launcher's. The zero value is rank 0.
	HostRank int
	// Times are those of all ranks. Join bounds how long the first rank waits for the last.
	Times Times
	// SlowAfter is for how long a rank may hold up others before it is
	// reported; 0 means 5 s.
	SlowAfter time.Duration
	// StuckAfter is for how long an operation may make no progress, though all
	// ranks are alive, before it is reported by name as stuck; 0 means 30 s.
	StuckAfter time.Duration
	// Report, if set, is called with one line about each thing that a person
	// would want to know and that ends nothing: slow ranks, refused
	// connections, what ranks themselves report. It must not block for long.
	Report func(line string)
}

// Validate reports everything that is wrong with the configuration.
func (c CoordinatorConfig) Validate() error {
	var errs []error
	if c.WorldSize < 1 {
		errs = append(errs, fmt.Errorf("world size %d: want at least 1", c.WorldSize))
	}
	if c.Servers < 0 || c.Servers > 0 && c.Servers >= c.WorldSize {
		errs = append(errs, fmt.Errorf("%d servers in a mesh of %d: want 0 to %d, since at least one rank trains", c.Servers, c.WorldSize, max(0, c.WorldSize-1)))
	}
	if c.HostRank < -1 || c.HostRank > 0 && c.HostRank >= c.WorldSize {
		errs = append(errs, fmt.Errorf("host rank %d: want -1 for a launcher, or a rank below %d", c.HostRank, c.WorldSize))
	}
	if c.Listener == nil && c.Address == "" {
		errs = append(errs, errors.New("neither Listener nor Address is given: want one, where ranks join"))
	}
	if c.SlowAfter < 0 || c.StuckAfter < 0 {
		errs = append(errs, fmt.Errorf("slow after %v, stuck after %v: want at least 0", c.SlowAfter, c.StuckAfter))
	}
	errs = append(errs, c.Times.Validate(), checkTicket(c.Ticket), c.TLS.Validate())
	return errors.Join(errs...)
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

// Coordinator gathers the ranks of one job and watches over them. Its methods
// may be called from any goroutine.
type Coordinator struct {
	cfg      CoordinatorConfig
	listener net.Listener
	door     *transport.AcceptLimiter
	ctx      context.Context // of the handshakes; ends with Close
	cancel   context.CancelFunc
	lost     chan error
	idle     chan struct{} // a token whenever a seat was freed
	work     sync.WaitGroup
	closed   sync.Once

	mu       sync.Mutex
	members  []memberState
	complete bool // all have joined; the roster is out
	evidence []failureReport
	ended    []bool // the process ended with status 0
	verdict  error
	recheck  *time.Timer // of judge
	join     *time.Timer // until the last must have joined; nil: nobody joined
	slow     reporter
	reported map[string]bool // the lines that ranks had reported
	clock    pauseClock
	still    time.Duration  // since a member last said that data had come to it
	ends     []failure.Exit // what ranks have told of their end, each once
	halt     stopping
	agreed   setting.Agreement
}

// memberState is one rank's place.
type memberState struct {
	state    seatState
	member   *connection // from seatJoined on
	addr     string
	reached  net.IP            // the address at which it has reached this host; nil: unknown
	status   message           // the last of kindStatus
	last     string            // its last operation, once it has left
	at       time.Time         // when it came
	detector liveness.Detector // since its last message

	reported bool // of its silence

	used func() time.Duration // processor time of its process; nil: unknown
	busy time.Duration        // what that was at the last tick
}

type seatState int

const (
	seatEmpty    seatState = iota
	seatReserved           // in the handshake
	seatJoined
	seatLeft           // in good order
	memberDisconnected // failed, or its connection ended
)

// missed is the step that a process with a seat in this state would have taken next.
func (s seatState) missed() string {
	if s == seatEmpty || s == seatReserved {
		return "joined the job"
	}
	return "left the job"
}

// NewCoordinator starts listening, and returns at once. The time in which all
// ranks must join starts when the first does.
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

// newCoordinator is a coordinator that does not accept yet.
func newCoordinator(cfg CoordinatorConfig) *Coordinator {
	c := &Coordinator{
		cfg: cfg, listener: cfg.Listener,
		lost:    make(chan error, 1),
		idle:    make(chan struct{}, 1),
		members: make([]memberState, cfg.WorldSize),
		ended:   make([]bool, cfg.WorldSize),
		clock:   pauseClock{beat: cfg.Times.Heartbeat, last: time.Now()},
		halt:    stopping{able: make([]bool, cfg.WorldSize), begun: map[int]int64{}, at: make(chan StoppedError, 1)},
	}
	c.door = transport.NewDoor(maxHandshakes, c.refused)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.work.Go(c.watch)
	return c
}

// Addr is where ranks join.
func (c *Coordinator) Addr() net.Addr { return c.listener.Addr() }

// Lost receives the verdict, such as a *transport.LostError, a *MissingError or
// *setting.ConflictError, when the job cannot go on, and is closed then. Err returns the same at any time.
func (c *Coordinator) Lost() <-chan error { return c.lost }

// Err returns the verdict; nil while there is none.
func (c *Coordinator) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict
}

// Silent says whether rank has not been heard of for DeadAfter: its process, if
// it lives, is stopped or stuck.
func (c *Coordinator) Silent(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent(&c.members[rank])
}

// silent is Silent. The caller holds mu.
func (c *Coordinator) silent(s *memberState) bool { return s.reported && s.detector.Lost() }

// HasLeft says whether rank left in good order.
func (c *Coordinator) HasLeft(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[rank].state == seatLeft
}

// MarkLost says that rank's process ended, and how ("killed by signal 9"). It is
// what a launcher calls as soon as it knows. A rank that left in good order
// before is not lost.
func (c *Coordinator) MarkLost(rank int, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[rank].state != seatLeft {
		c.report(failureReport{proof: proofExited, rank: rank, by: -1, why: why})
	}
}

// MarkServerLost says that a process that is no member of the mesh is lost, such as "parameter server 0": the job
// ends, and no rank is to blame. addr is where it listened, or "".
func (c *Coordinator) MarkServerLost(who, addr, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serverLost(&transport.ServerLostError{Process: who, Addr: addr, Reason: why})
}

// serverLost is the verdict, unless there is one. The caller holds mu.
func (c *Coordinator) serverLost(e *transport.ServerLostError) {
	if c.verdict == nil {
		c.decide(e)
	}
}

// MarkEnded says that rank's process ended with status 0. The rank is lost
// unless it left in good order, or no rank at all takes part in the job: the
// program may not use this library.
func (c *Coordinator) MarkEnded(rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[rank] = true
	c.reportExited()
}

// reportExited accuses ranks that ended quietly once there is someone who needs
// them. The caller holds mu.
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

// report records evidence and judges. The caller holds mu.
func (c *Coordinator) report(e failureReport) {
	if c.verdict != nil {
		return
	}
	e.at = time.Now()
	c.evidence = append(c.evidence, e)
	c.judge()
}

// judge ends the job if the evidence suffices. The caller holds mu.
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

// decide makes err the verdict and tells everyone. invariant[one-verdict]: a job has one
// at most, and all of its ranks are told the same, whichever link each saw break first.
// The caller holds mu.
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

// Close ends the coordinator. While ranks are still in the job and nobody is
// lost, it first waits for them to leave, at most DeadAfter, and after a verdict
// only as long as telling them takes.
func (c *Coordinator) Close() error {
	c.closed.Do(func() {
		c.hangUp(c.silent) // they will not answer
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

// end stops the timers and lets every connection flush and finish.
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

// hangUp closes the connections of some ranks, which do not close theirs.
func (c *Coordinator) hangUp(on func(*memberState) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.members {
		if s := &c.members[r]; s.member != nil && on(s) {
			_ = s.member.ch.close()
		}
	}
}

// drain waits for the ranks to leave.
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

// present counts the ranks in the job.
func (c *Coordinator) present() (n int) {
	c.each(func(*connection) { n++ })
	return n
}

// each calls fn for every rank in the job.
func (c *Coordinator) each(fn func(*connection)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.members {
		if s := &c.members[r]; s.state == seatJoined {
			fn(s.member)
		}
	}
}
