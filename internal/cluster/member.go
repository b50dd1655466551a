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
	"github.com/ringo-ml/ringo/internal/hostport"
	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/transport"
)

// MemberConfig places a rank in its job.
type MemberConfig struct {
	// Rendezvous is the coordinator's HOST:PORT.
	Rendezvous string
	// Ticket is the job's secret, that of the coordinator.
	Ticket transport.Ticket
	// TLS says which connections are encrypted, the same on all ranks. Zero: those between hosts.
	TLS transport.TLS
	// Version is that of the program, which must be the coordinator's.
	Version string
	// Rank is this rank, from 0 to WorldSize-1.
	Rank int
	// WorldSize is how many members the mesh has, servers among them.
	WorldSize int
	// Interface is the network interface on which this rank's mesh listens.
	// Empty: that of the address by which this host reaches the coordinator.
	Interface string
	// Ports are where it may listen; the first free one is taken. Zero: any.
	Ports PortRange
	// Settings are what this process was told of the job: where another member was told otherwise, the job ends with
	// a *setting.ConflictError that names both. nil: nothing.
	Settings setting.Values
	// Times should be the coordinator's. Join bounds the wait for the coordinator, and then the wait for the other
	// ranks.
	Times Times
	// Look, if set, finds Rendezvous and Ticket anew before each attempt to reach the coordinator, which may not have said yet where
	// it is. An error is the attempt's, and the last one's, if it is a *rendezvous.UnsafeError.
	Look func() (rendezvous string, ticket transport.Ticket, err error)
	// Report, if set, is told in one line that the rendezvous has a name which nobody knows yet. Names of pods appear when these
	// have started, in any order, so Join tries on.
	Report func(line string)
}

// Validate reports everything that is wrong with the configuration.
func (c MemberConfig) Validate() error {
	var errs []error
	if c.WorldSize < 1 {
		errs = append(errs, fmt.Errorf("world size %d: want at least 1", c.WorldSize))
	} else if c.Rank < 0 || c.Rank >= c.WorldSize {
		errs = append(errs, fmt.Errorf("rank %d: want 0 to %d for a world size of %d", c.Rank, c.WorldSize-1, c.WorldSize))
	}
	if !c.Ports.valid() {
		errs = append(errs, fmt.Errorf("ports %v: want FIRST-LAST within 1 to 65535", c.Ports))
	}
	if c.Look == nil {
		errs = append(errs, checkRendezvous(c.Rendezvous), checkTicket(c.Ticket))
	}
	errs = append(errs, c.Times.Validate(), c.Settings.Check(), c.TLS.Validate())
	return errors.Join(errs...)
}

// checkRendezvous wants an address that other ranks can dial: with a host that
// means the same to all, and with a port.
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

// Member is one rank's membership of a job. Its methods may be called from any
// goroutine.
type Member struct {
	cfg      MemberConfig
	ch       channel
	listener net.Listener
	addrs    []string // by rank; set before ready is closed
	hostRank int      // likewise

	ready   chan struct{} // the roster is here
	lost    chan error
	ended   chan struct{}     // err is set
	bye     chan struct{}     // the coordinator has answered leave or failed, or hung up
	closing chan struct{}     // the goroutines are to end
	halted  chan StoppedError // after which step all stop, or that they cannot
	work    sync.WaitGroup
	leaving sync.Once

	acknowledged atomic.Bool // it has answered

	mu            sync.Mutex
	doing         string
	waiting       func() (Wait, bool)
	data          func() int64      // how much has come from other members
	came          int64             // what that was at the last heartbeat
	moved         int64             // at how many heartbeats it had grown
	still         time.Duration     // for how long it has not grown
	quiet         liveness.Detector // since the coordinator's last message
	lastHeartbeat time.Time
	stopper       *Stopper
	hasLeft       bool
	err           error
}

// Join dials the coordinator, trying again until it is there, opens the
// listener of this rank's mesh, and returns when all ranks have joined.
//
// The mesh listens on the address by which this host reaches the coordinator,
// on loopback when the rendezvous is on loopback, unless the configuration says
// otherwise; on all addresses where a name of the rendezvous is a loopback address. A job of several hosts in which one rank listens on loopback ends
// for all ranks with an error that names it. Errors name the ranks that did
// not come (*MissingError), or say why the coordinator cannot be reached or
// refused this rank (*DialError, around transport.ErrTicket, ErrVersion,
// ErrRefused, ErrNotRingo, or the network's fault).
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
		m.Fail(err) // or the others would wait for it
		_ = m.Leave("")
		return nil, err
	}
	return m, nil
}

// dial tries until the coordinator answers, refuses, or the time is up.
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
		case final(err) && (cfg.Look == nil || errors.As(err, new(*rendezvous.UnsafeError))): // else it may have been an earlier job's coordinator
			return nil, &DialError{cfg.Rank, cfg.Rendezvous, err}
		case noNetwork(err) != nil:
			return nil, &DialError{cfg.Rank, cfg.Rendezvous, fmt.Errorf("%w: %w", noNetwork(err), err)}
		case limited.Err() == nil || last == nil:
			last = err // not the one that only says that the time is up
		}
		if unknown(err) && cfg.Report != nil {
			cfg.Report(unknownYet(cfg.Rendezvous, cfg.Times.Join))
			cfg.Report = nil // once
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

// attempt dials the coordinator once, where it now is.
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

// final says that trying again would not help.
func final(err error) bool {
	return transport.Permanent(err) || errors.As(err, new(*rendezvous.UnsafeError))
}

// Ticket is the job's secret, as it was given, or as Look found it.
func (m *Member) Ticket() transport.Ticket { return m.cfg.Ticket }

func newMember(cfg MemberConfig, ch channel, listener net.Listener) *Member {
	return &Member{
		cfg: cfg, ch: ch, listener: listener, hostRank: -1,
		ready: make(chan struct{}), lost: make(chan error, 1), ended: make(chan struct{}),
		quiet: liveness.Detector{Limit: cfg.Times.DeadAfter},
		bye:   make(chan struct{}), closing: make(chan struct{}), halted: make(chan StoppedError, 1),
	}
}

// join introduces this rank and waits for the others.
func (m *Member) join(ctx context.Context) error {
	m.work.Go(m.read)
	hello := message{Kind: kindJoin, Peer: -1, Addr: m.listener.Addr().String(), BeatNanos: int64(m.cfg.Times.Heartbeat), DeadNanos: int64(m.cfg.Times.DeadAfter), Settings: m.cfg.Settings}
	if err := m.ch.send(hello, answerTimeout); err != nil {
		return &DialError{m.cfg.Rank, m.cfg.Rendezvous, err}
	}
	m.work.Go(m.sendHeartbeat)
	// The coordinator's own deadline comes first and knows who is missing.
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
		return &DialError{m.cfg.Rank, m.cfg.Rendezvous, fmt.Errorf("not all ranks joined within %v, and the coordinator does not say which", m.cfg.Times.Join)}
	}
}

// Rank is this rank.
func (m *Member) Rank() int { return m.cfg.Rank }

// Size is the number of ranks.
func (m *Member) Size() int { return m.cfg.WorldSize }

// Addrs returns where each rank's mesh listens, by rank.
func (m *Member) Addrs() []string { return m.addrs }

// Listener is where this rank's mesh listens. Leave closes it if nobody has.
func (m *Member) Listener() net.Listener { return m.listener }

// Traffic counts the bytes of the control connection; only the Wire fields are
// set.
func (m *Member) Traffic() transport.Traffic {
	sent, received := m.ch.traffic()
	return transport.Traffic{WireSent: sent, WireReceived: received}
}

// LastHeartbeat is when the coordinator's last message came; zero before the first.
func (m *Member) LastHeartbeat() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastHeartbeat
}

// Lost receives why the job cannot go on, once, and is closed then: a
// *transport.LostError that is the same on every rank, a *MissingError, or an
// ErrNoCoordinator. Who leaves in good order is told nothing. Err returns the
// same to any number of callers.
func (m *Member) Lost() <-chan error { return m.lost }

// Err returns why the job cannot go on, or nil.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Verdict explains a fault of the mesh. It tells the coordinator whom err
// accuses, waits at most wait for its verdict, and returns that; or err, when
// there is none in time.
func (m *Member) Verdict(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	if peer := blamed(err); peer >= 0 && peer < m.cfg.WorldSize && peer != m.cfg.Rank && m.Err() == nil {
		_ = m.ch.send(message{Kind: kindSuspect, Peer: peer, Reason: err.Error(), TimedOut: errors.Is(err, transport.ErrTimeout), In: missedIn(err)}, answerTimeout) // or it is lost, too
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

// SetStatus says what this rank is doing, in a word or two ("evaluating"), for
// the report when others have to wait for it.
func (m *Member) SetStatus(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doing = text
}

// Report has the coordinator report a line, once in the job however many ranks say
// it. It does not wait for that.
func (m *Member) Report(line string) {
	_ = m.ch.send(message{Kind: kindReport, Peer: -1, Reason: line}, answerTimeout) // or the job is lost, too
}

// Wait is a wait of this rank for another.
type Wait struct {
	Peer  int       // whom it waits for
	Since time.Time // since when
	In    string    // the operation: "allreduce 12"; may be empty
	// Begun are the operations that this rank has last begun, at most 16, for
	// comparison with those of other ranks.
	Begun []Begun
}

// Begun is an operation: its number, by which it meets those of other ranks, and
// what it is, which must then be the same.
type Begun struct {
	Number    uint32 `json:"n"`
	Operation string `json:"w"`
}

// SetWaiting sets the function that says whom this rank waits for right now, if
// for anyone. It is called once per heartbeat from another goroutine.
func (m *Member) SetWaiting(fn func() (Wait, bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = fn
}

// SetReceived sets the function that says how many bytes have come to this rank from others so far. While they come, silence of the
// coordinator is borne for longer: links to it may be cut for a while. It is called once per heartbeat from another goroutine.
func (m *Member) SetReceived(fn func() int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = fn
}

// Fail tells the coordinator that this rank ends because of err, where in its run (see
// failure.PositionOf), and returns whether that is known there, at the latest after 2 s. If err
// names another rank as lost or unreachable, that one is accused in place of this; if it names a
// server of tables (transport.ServerLostError), that is what all are told.
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

// Leave leaves in good order after an operation, "" if there was none, or hangs up if the job has
// ended already, and frees everything. It returns when the coordinator knows, or after 2 s. A rank
// that waits for this one then ends the job: this one ended early.
func (m *Member) Leave(last string) error {
	m.depart(message{Kind: kindLeave, Peer: -1, In: last})
	m.leaving.Do(func() {
		close(m.closing)
		_ = m.ch.close()
		_ = m.listener.Close() // the mesh may have closed it
	})
	m.work.Wait()
	return nil
}

// depart sends the last message, unless one was sent or the coordinator is
// gone, and waits for the answer, which it says it has had.
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
