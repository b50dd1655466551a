package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/connpeek"
	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/modeltext"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/message/requests"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// Server is a parameter server's network side.
type Server struct {
	cfg   Config
	door  *transport.AcceptLimiter
	clock *liveness.Clock // ticks in watch
	tried context.Context // already done: Await with it only tests
	seats sessionTable
	count counters

	meetings gathers
	saves    saveRequests
	parked   parked
	book     *requests.Book
	agreed   setting.Agreement // settings of this server and its trainers

	opening sync.Mutex // held while the engine opens
	opened  chan struct{}
	engine  Engine // valid with limits and hash once opened is closed
	limits  message.Limits
	hash    string
	schema  schema.Schema
	tables  modeltext.Text // schema as text
	from    string         // source of the schema: "trainer 0"
	broken  chan error     // error of opening the engine

	readers atomic.Int64 // connected readers

	mu     sync.Mutex
	conns  map[*conn]struct{}
	ending *message.Failure // cause of the server's end; Reason 0 without an error
	served bool
}

type counters struct {
	connections, replaced, parked, pulls, changes   atomic.Int64
	rowsPulled, rowsPushed, bytesRead, bytesWritten atomic.Int64
}

// New returns a server that is not yet serving.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	tried, cancel := context.WithCancel(context.Background())
	cancel()
	s := &Server{cfg: cfg, tried: tried, clock: liveness.New(cfg.Times.Heartbeat), opened: make(chan struct{}), broken: make(chan error, 1), conns: map[*conn]struct{}{}}
	s.door = transport.NewDoor(cfg.Strangers, func(line string) { cfg.Report(s.prefixed("%s", line)) })
	s.seats.init(cfg.Trainers, cfg.Sessions, s.clock)
	s.book = requests.NewBook(cfg.Record, cfg.Sessions)
	s.meetings.init(cfg.Trainers, s.book)
	_ = s.agreed.Join(fmt.Sprintf("server %d", cfg.Index), cfg.Settings) // the first agrees with itself
	return s, nil
}

func (s *Server) prefixed(format string, args ...any) string {
	return fmt.Sprintf("server %d: ", s.cfg.Index) + fmt.Sprintf(format, args...)
}

func (s *Server) fault(err error) error { return fmt.Errorf("ps: server %d: %w", s.cfg.Index, err) }

// errAllLeft ends Serve without an error.
var errAllLeft = errors.New("all trainers have left")

// Serve accepts trainers from l until all have left, ctx is done, or the engine fails; only the
// last is an error. Before returning it answers all received requests, acknowledges durable
// changes, sends a goodbye and closes l. A second call fails.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	again := s.served
	s.served = true
	s.mu.Unlock()
	if again {
		return s.fault(errors.New("it has served already: make another one"))
	}
	if s.cfg.Schema != nil {
		if err := s.open(*s.cfg.Schema, "this server"); err != nil {
			return s.fault(err)
		}
	}
	s.begin()
	inner, cancel := context.WithCancelCause(ctx)
	s.saves.ctx = inner
	var all sync.WaitGroup
	all.Go(func() { cancel(s.watch(inner)) })
	all.Go(func() { s.accept(inner, cancel, l, &all) })
	if s.cfg.Begun != nil {
		all.Go(func() { _ = s.open(*s.cfg.Begun, "this server") }) // watch returns the error
	}
	<-inner.Done()
	l.Close()
	cause := context.Cause(inner)
	failed := cause != errAllLeft && ctx.Err() == nil
	s.end(cause, failed)
	all.Wait()
	s.saves.end()
	if failed {
		return s.fault(cause)
	}
	return nil
}

func (s *Server) accept(ctx context.Context, cancel context.CancelCauseFunc, l net.Listener, all *sync.WaitGroup) {
	connpeek.SpeakFirst(l)
	who := s.cfg.Ticket.Under(s.cfg.TLS)
	told := ""
	const pause = 50 * time.Millisecond // after a temporary error, such as too many open files
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			told = ""
			if stranger := s.door.Admit(c); stranger != nil {
				all.Go(func() { s.handle(ctx, stranger, who, c) })
			}
		case ctx.Err() != nil:
			return
		case errors.Is(err, net.ErrClosed):
			cancel(fmt.Errorf("its listener was closed: %w", err))
			return
		default:
			if told != err.Error() { // report a repeated error once
				told = err.Error()
				s.cfg.Report(s.prefixed("accepting a connection: %v; it tries again until that works", err))
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}
}

func (s *Server) handle(ctx context.Context, stranger *transport.PendingConn, who transport.Credentials, nc net.Conn) {
	tune(nc, s.cfg.SocketBytes)
	link, _, err := stranger.Accept(ctx, who, s.cfg.transportHello(), nil)
	if err != nil {
		return // already reported by the AcceptLimiter
	}
	s.count.connections.Add(1)
	c := newConn(s, link)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	if s.ending != nil {
		c.end()
	}
	s.mu.Unlock()
	c.run()
	s.mu.Lock()
	delete(s.conns, c)
	s.count.bytesRead.Add(link.Received()) // under mu, so that Stats counts each connection once
	s.count.bytesWritten.Add(link.Sent())
	s.mu.Unlock()
}

func (s *Server) end(cause error, failed bool) {
	f := &message.Failure{Text: cause.Error()}
	if failed {
		f.Text = s.prefixed("%v", cause)
		f.Reason = message.ReasonFailed
		if trainer, ok := s.seats.firstLost(); ok {
			f.Reason, f.Trainer = message.ReasonLost, trainer
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = f
	for c := range s.conns {
		c.end()
	}
}

func (s *Server) reason() *message.Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// ready returns the engine, nil until it is open.
func (s *Server) ready() Engine {
	select {
	case <-s.opened:
		return s.engine
	default:
		return nil
	}
}

// open opens the engine with a schema, unless it is open. Concurrent calls wait.
func (s *Server) open(sc schema.Schema, from string) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.ready() != nil {
		return nil
	}
	engine, err := s.cfg.Open(sc)
	if err != nil {
		err = fmt.Errorf("opening the tables: %w", err)
		select {
		case s.broken <- err:
		default:
		}
		return err
	}
	s.limits = message.Limits{Keys: s.cfg.MaxKeys, Values: s.cfg.MaxValues, Trainers: s.cfg.Trainers}
	for _, t := range sc.Sparse {
		s.limits.Dims, s.limits.Counts = append(s.limits.Dims, t.Dim), append(s.limits.Counts, t.Counts())
	}
	for _, d := range sc.Dense {
		s.limits.Arrays = append(s.limits.Arrays, d.Len)
	}
	s.book.Know(&sc)
	s.engine, s.hash, s.schema, s.tables, s.from = engine, sc.Hash(), sc, textOf(sc), from
	close(s.opened)
	return nil
}

// begin starts the time limit for trainers to connect.
func (s *Server) begin() { s.seats.begin(s.cfg.Times.Join - s.cfg.Rejoin) }

// watch runs until the server must end, and returns the cause.
func (s *Server) watch(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Times.Heartbeat)
	defer tick.Stop()
	opened := s.opened
	var failed <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-opened:
			opened, failed = nil, s.engine.Failed()
			s.begin() // no trainer could connect while the tables were opened
			s.depart()
		case <-failed:
			return s.engine.Err()
		case err := <-s.broken:
			return err
		case <-s.seats.changed:
		case <-tick.C:
			s.clock.Tick()
		}
		if err := s.look(); err != nil {
			return err
		}
	}
}

// depart records the sessions that have left according to the engine's restored state.
func (s *Server) depart() {
	e, ok := s.engine.(interface{ HasLeft(session int) bool })
	if !ok {
		return
	}
	for session := range s.cfg.Trainers * s.cfg.Sessions {
		if e.HasLeft(session) {
			s.seats.departed(session)
			s.meetings.leave(session / s.cfg.Sessions)
		}
	}
}

// look handles lost trainers, and returns an error if the server must end.
func (s *Server) look() error {
	if !s.opening.TryLock() {
		return nil // the engine is opening, and no trainer can connect
	}
	engine := s.ready()
	s.opening.Unlock()
	for _, l := range s.seats.overdue(s.cfg.Rejoin) {
		limit := s.cfg.Rejoin
		if l.beginning {
			limit = s.cfg.Times.Join
		}
		cause := fmt.Errorf("its session %d has been away for %v: %w", l.session, limit, l.cause)
		if engine == nil {
			return fmt.Errorf("trainer %d is lost: %w", l.trainer, cause)
		}
		s.cfg.Report(s.prefixed("trainer %d is lost: %v", l.trainer, cause))
		if err := engine.Lost(l.trainer, cause); err != nil {
			return err
		}
		s.meetings.leave(l.trainer)
		s.parked.look(s)
	}
	if s.seats.done(s.cfg.Times.DeadAfter) {
		return errAllLeft
	}
	return nil
}
