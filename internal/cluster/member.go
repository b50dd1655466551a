package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/hostport"
	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/transport"
)

// MemberConfig is the place of a rank in its job.
type MemberConfig struct {
	// Rendezvous is the coordinator's HOST:PORT.
	Rendezvous string
	// Ticket is the job's secret, equal to the coordinator's.
	Ticket transport.Ticket
	// TLS selects the encrypted connections, equal on all ranks. Zero: those between hosts.
	TLS transport.TLS
	// Version is the program's version, equal to the coordinator's.
	Version string
	// Rank is this rank, from 0 to WorldSize-1.
	Rank int
	// WorldSize is the number of members of the mesh, including servers.
	WorldSize int
	// Interface is the network interface of this rank's mesh listener. Empty means the interface
	// toward the coordinator.
	Interface string
	// Ports is the range of the mesh listener's port; the first free port is used. Zero means any.
	Ports PortRange
	// Settings are this process's settings of the job. If another member has different settings,
	// the job ends with a *setting.ConflictError that names both. nil means none.
	Settings setting.Values
	// Times should be the coordinator's. Join limits the waits for coordinator and other ranks.
	Times Times
	// Look, if set, returns the current Rendezvous and Ticket before each attempt to reach the
	// coordinator, which may not have published its address yet. An error fails the attempt; a
	// *rendezvous.UnsafeError ends the attempts.
	Look func() (rendezvous string, ticket transport.Ticket, err error)
	// Report, if set, receives one line if the host name of the rendezvous is unknown. Join then
	// retries, because names of pods only exist when the pods have started.
	Report func(line string)
}

// Validate returns all errors of the configuration.
func (c MemberConfig) Validate() error {
	var bad faults.List
	if c.WorldSize < 1 {
		bad.Add(fmt.Errorf("world size %d: want at least 1", c.WorldSize))
	} else if c.Rank < 0 || c.Rank >= c.WorldSize {
		bad.Add(fmt.Errorf("rank %d: want 0 to %d for a world size of %d", c.Rank, c.WorldSize-1, c.WorldSize))
	}
	bad.If(!c.Ports.valid(), "ports %v: want FIRST-LAST within 1 to 65535", c.Ports)
	if c.Look == nil {
		bad.Add(checkRendezvous(c.Rendezvous), checkTicket(c.Ticket))
	}
	bad.Add(c.Times.Validate(), c.Settings.Check(), c.TLS.Validate())
	return bad.Err()
}

// checkRendezvous requires a port, and a host that means the same host to all ranks.
func checkRendezvous(addr string) error {
	host, port, err := hostport.Split(addr, 0)
	if err != nil {
		return fmt.Errorf("rendezvous %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("rendezvous %q: want the host's name or address by which the other ranks reach it", addr)
	}
	if port == 0 {
		return fmt.Errorf("rendezvous %q: want a port that all ranks know", addr)
	}
	return nil
}

// Member is a rank's membership of a job. The methods are safe for concurrent use.
type Member struct {
	cfg      MemberConfig
	ch       channel
	listener net.Listener
	addrs    []string // set before ready is closed
	hostRank int      // set before ready is closed

	ready   chan struct{} // closed when the roster has arrived
	lost    chan error
	ended   chan struct{}     // closed when err is set
	bye     chan struct{}     // closed when the coordinator has answered leave or failed, or disconnected
	closing chan struct{}     // closed to end the goroutines
	halted  chan StoppedError // receives the agreed last step of all ranks, or the failure to agree
	work    sync.WaitGroup
	leaving sync.Once

	acknowledged atomic.Bool // the coordinator has answered

	mu            sync.Mutex
	doing         string
	waiting       func() (Wait, bool)
	data          func() int64      // returns the bytes received from other members
	came          int64             // result of data at the last heartbeat
	moved         int64             // heartbeats with new data
	still         time.Duration     // time without new data
	quiet         liveness.Detector // silence since the coordinator's last message
	lastHeartbeat time.Time
	stopper       *Stopper
	hasLeft       bool
	err           error
}

// Join dials the coordinator, opens the mesh's listener, and returns when all ranks have joined.
//
// By default the mesh listens on the address of this host's connection to the coordinator, and on
// all addresses if a name in the rendezvous is a loopback address. A multi-host job with a rank on
// loopback ends on all ranks with an error naming the rank. Errors name the missing ranks
// (*MissingError), or why the coordinator is unreachable or refused this rank (*DialError, around
// transport.ErrTicket, ErrVersion, ErrRefused, ErrNotRingo, or a network error).
func Join(ctx context.Context, cfg MemberConfig) (*Member, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("joining the job: %w", err)
	}
	cfg.Times = cfg.Times.WithDefaults()
	link, err := dial(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	listener, err := listen(link.LocalAddr(), cfg.Rendezvous, cfg.Interface, cfg.Ports)
	if err != nil {
		_ = link.Close()
		return nil, fmt.Errorf("rank %d: listening for the other ranks: %w", cfg.Rank, err)
	}
	m := newMember(cfg, newLinkChannel(link, cfg.WorldSize), listener)
	if err := m.join(ctx); err != nil {
		m.Fail(err) // otherwise the other ranks would wait
		_ = m.Leave("")
		return nil, err
	}
	return m, nil
}

// dial retries until the coordinator answers or refuses, or the time is over.
func dial(ctx context.Context, cfg *MemberConfig) (*transport.Link, error) {
	limited, cancel := context.WithTimeout(ctx, cfg.Times.Join)
	defer cancel()
	mine := transport.Hello{Version: cfg.Version, Purpose: transport.Control, Rank: cfg.Rank, WorldSize: cfg.WorldSize}
	var last error
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		link, err := attempt(limited, cfg, mine)
		switch {
		case err == nil:
			return link, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case final(err) && (cfg.Look == nil || errors.As(err, new(*rendezvous.UnsafeError))): // without Look: the coordinator may belong to an earlier job
			return nil, &DialError{cfg.Rank, cfg.Rendezvous, err}
		case noNetwork(err) != nil:
			return nil, &DialError{cfg.Rank, cfg.Rendezvous, fmt.Errorf("%w: %w", noNetwork(err), err)}
		case limited.Err() == nil || last == nil:
			last = err // more specific than the timeout
		}
		if unknown(err) && cfg.Report != nil {
			cfg.Report(unknownYet(cfg.Rendezvous, cfg.Times.Join))
			cfg.Report = nil // report once
		}
		select {
		case <-time.After(pause):
		case <-limited.Done():
		}
		if ctx.Err() == nil && limited.Err() != nil {
			return nil, &DialError{cfg.Rank, cfg.Rendezvous, fmt.Errorf("no coordinator for %v; is the launcher, or rank 0, running there?%s %w", cfg.Times.Join, onlyHere(ctx, cfg.Rendezvous), last)}
		}
	}
}

// attempt dials the coordinator once, at its current address.
func attempt(ctx context.Context, cfg *MemberConfig, mine transport.Hello) (*transport.Link, error) {
	if cfg.Look != nil {
		rendezvous, ticket, err := cfg.Look()
		if err == nil {
			err = errors.Join(checkRendezvous(rendezvous), checkTicket(ticket))
		}
		if err != nil {
			return nil, err
		}
		cfg.Rendezvous, cfg.Ticket = rendezvous, ticket
	}
	link, _, err := transport.Dial(ctx, cfg.Rendezvous, cfg.Ticket.Under(cfg.TLS), mine)
	return link, err
}

// final reports whether retries are useless.
func final(err error) bool {
	return transport.Permanent(err) || errors.As(err, new(*rendezvous.UnsafeError))
}

// Ticket returns the job's secret, from the configuration or from Look.
func (m *Member) Ticket() transport.Ticket { return m.cfg.Ticket }

func newMember(cfg MemberConfig, ch channel, listener net.Listener) *Member {
	return &Member{
		cfg: cfg, ch: ch, listener: listener, hostRank: -1,
		ready: make(chan struct{}), lost: make(chan error, 1), ended: make(chan struct{}),
		quiet: liveness.Detector{Limit: cfg.Times.DeadAfter},
		bye:   make(chan struct{}), closing: make(chan struct{}), halted: make(chan StoppedError, 1),
	}
}

// join sends the join message and waits for the other ranks.
func (m *Member) join(ctx context.Context) error {
	m.work.Go(m.read)
	hello := message{Kind: kindJoin, Peer: -1, Addr: m.listener.Addr().String(), BeatNanos: int64(m.cfg.Times.Heartbeat), DeadNanos: int64(m.cfg.Times.DeadAfter), Settings: m.cfg.Settings}
	if err := m.ch.send(hello, answerTimeout); err != nil {
		return &DialError{m.cfg.Rank, m.cfg.Rendezvous, err}
	}
	m.work.Go(m.sendHeartbeat)
	// The coordinator's own deadline comes first, with the list of missing ranks.
	late := time.NewTimer(m.cfg.Times.Join + answerTimeout)
	defer late.Stop()
	select {
	case <-m.ready:
		return nil
	case <-m.ended:
		return m.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return &DialError{m.cfg.Rank, m.cfg.Rendezvous, fmt.Errorf("some ranks did not join within %v, and the coordinator has not reported which", m.cfg.Times.Join)}
	}
}

// Rank returns this rank.
func (m *Member) Rank() int { return m.cfg.Rank }

// Size returns the number of ranks.
func (m *Member) Size() int { return m.cfg.WorldSize }

// Addrs returns the mesh listen addresses, by rank.
func (m *Member) Addrs() []string { return m.addrs }

// Listener returns the listener of this rank's mesh. Leave closes the listener if still open.
func (m *Member) Listener() net.Listener { return m.listener }

// Traffic counts the bytes of the control connection, in the Wire fields only.
func (m *Member) Traffic() transport.Traffic {
	sent, received := m.ch.traffic()
	return transport.Traffic{WireSent: sent, WireReceived: received}
}

// LastHeartbeat returns the arrival time of the coordinator's last message; zero before the first.
func (m *Member) LastHeartbeat() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastHeartbeat
}

// Lost receives the reason for the job's end, once, and is then closed: a *transport.LostError
// equal on every rank, a *MissingError, or an ErrNoCoordinator. If this rank leaves without an
// error, Lost is closed without a reason. Err returns the reason to any number of callers.
func (m *Member) Lost() <-chan error { return m.lost }

// Err returns the reason for the job's end, or nil.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Verdict returns the coordinator's decision about an error of the mesh. It reports the rank that
// err names to the coordinator, waits at most wait for the decision, and returns it, or else err.
func (m *Member) Verdict(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	if peer := blamed(err); peer >= 0 && peer < m.cfg.WorldSize && peer != m.cfg.Rank && m.Err() == nil {
		_ = m.ch.send(message{Kind: kindSuspect, Peer: peer, Reason: err.Error(), TimedOut: errors.Is(err, transport.ErrTimeout), In: missedIn(err)}, answerTimeout) // if sending fails, the job is lost
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-m.ended:
		return m.Err()
	case <-t.C:
		return err
	}
}

// SetStatus sets this rank's activity, such as "evaluating", for reports on waiting ranks.
func (m *Member) SetStatus(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doing = text
}

// Report makes the coordinator report a line to the user, once if several ranks send the same line.
// It does not wait.
func (m *Member) Report(line string) {
	_ = m.ch.send(message{Kind: kindReport, Peer: -1, Reason: line}, answerTimeout) // if sending fails, the job is lost
}

// Wait is a wait of this rank for another rank.
type Wait struct {
	Peer  int       // awaited rank
	Since time.Time // start of the wait
	In    string    // operation, such as "allreduce 12"; may be empty
	// Begun are this rank's last operations, at most 16, for comparison with other ranks.
	Begun []Begun
}

// Begun is a started operation: the number that matches operations across ranks, and the
// description, equal on all ranks.
type Begun struct {
	Number    uint32 `json:"number"`
	Operation string `json:"operation"`
}

// SetWaiting sets the function that returns this rank's current wait, if any. The function is
// called once per heartbeat from another goroutine.
func (m *Member) SetWaiting(fn func() (Wait, bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = fn
}

// SetReceived sets the function that returns the number of bytes received from other ranks. While
// the number grows, the coordinator may be silent for longer, because links to the coordinator may
// be cut for a while. The function is called once per heartbeat from another goroutine.
func (m *Member) SetReceived(fn func() int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = fn
}

// Fail reports to the coordinator that this rank ends because of err, with the position in the run
// (see failure.PositionOf), and returns whether the coordinator has confirmed, after at most 2 s.
// If err names another rank as lost or unreachable, that rank is accused; if err names a parameter
// server (transport.ServerLostError), all ranks receive the server's loss.
func (m *Member) Fail(err error) (told bool) {
	if err == nil {
		err = errors.New("no reason given")
	}
	last := failed(m.cfg.Rank, err)
	if last.Peer >= m.cfg.WorldSize {
		last.Peer = -1
	}
	return m.depart(last)
}

// Leave leaves in good order after the operation last ("" for none), or disconnects if the job has
// ended, and releases all resources. Leave returns when the coordinator has confirmed, or after 2
// s. If another rank waits for this rank, the job then ends, because this rank ended early.
func (m *Member) Leave(last string) error {
	m.mu.Lock()
	s := m.stopper
	m.mu.Unlock()
	m.depart(message{Kind: kindLeave, Peer: -1, In: last, Stopped: s.hasStopped()})
	m.leaving.Do(func() {
		close(m.closing)
		_ = m.ch.close()
		_ = m.listener.Close() // the mesh may have closed the listener
	})
	m.work.Wait()
	return nil
}

// depart sends last, once, unless the coordinator is gone; answered: the coordinator replied.
func (m *Member) depart(last message) (answered bool) {
	m.mu.Lock()
	first := !m.hasLeft
	m.hasLeft = true
	over := m.err
	m.mu.Unlock()
	if !first || errors.Is(over, ErrNoCoordinator) || m.ch.send(last, answerTimeout) != nil {
		return false
	}
	t := time.NewTimer(answerTimeout)
	defer t.Stop()
	select {
	case <-m.bye:
		return m.acknowledged.Load()
	case <-t.C:
		return false
	}
}
