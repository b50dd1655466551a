package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/connpeek"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/transport"
)

// New connects this rank with all other ranks: New dials the lower ranks and accepts the higher
// ones, and returns when all connections are established.
//
// Connections without the ticket or with a wrong rank are refused, without effect on the mesh.
// After the timeout the error is a *MissingError with the missing ranks.
func New(ctx context.Context, cfg Config) (*Mesh, error) {
	if err := cfg.Validate(); err != nil {
		if cfg.Listener != nil {
			cfg.Listener.Close()
		}
		return nil, err
	}
	cfg = cfg.withDefaults()
	links, err := form(ctx, cfg)
	if err != nil {
		return nil, err
	}
	m, err := newMesh(cfg, links)
	if err != nil {
		closeLinks(links)
		return nil, fmt.Errorf("rank %d: %w", cfg.Rank, err)
	}
	return m, nil
}

// MissingError names the ranks that did not connect.
type MissingError struct {
	Rank, Size int
	Missing    []int
	After      time.Duration
	Notes      []string // observations about the missing ranks and refused connections
	Err        error    // reason for the end of waiting
}

// Error names the missing ranks.
func (e *MissingError) Error() string {
	names := make([]string, len(e.Missing))
	for i, r := range e.Missing {
		names[i] = fmt.Sprint(r)
	}
	s := fmt.Sprintf("rank %d: no connection with rank %s of %d after %s: %v",
		e.Rank, strings.Join(names, ", "), e.Size, quantity.Duration(e.After), e.Err)
	for _, n := range e.Notes {
		s += "; " + n
	}
	return s
}

// Unwrap returns the reason for the end of waiting.
func (e *MissingError) Unwrap() error { return e.Err }

// maxStrangers limits concurrent handshakes. Ranks of the job finish a handshake in a millisecond.
const maxStrangers = 128

// formation is the state of forming a mesh.
type formation struct {
	cfg         Config
	credentials transport.Credentials
	hello       transport.Hello
	workers     sync.WaitGroup
	changed     chan struct{} // token: the state has changed
	door        *transport.AcceptLimiter

	mu      sync.Mutex
	claimed [][]bool            // connection established or in negotiation, by rank and stream
	links   [][]*transport.Link // links by rank and stream
	fatal   error
	tries   []error // latest dial error, by rank
	refused int     // refused connections
	last    error   // latest refusal
}

func form(ctx context.Context, cfg Config) ([][]*transport.Link, error) {
	f := &formation{
		cfg:         cfg,
		credentials: cfg.Ticket.Under(cfg.TLS),
		hello:       transport.Hello{Version: cfg.Version, Purpose: transport.MeshLink, Rank: cfg.Rank, WorldSize: cfg.Size, Streams: cfg.Streams},
		changed:     make(chan struct{}, 1),
		door:        transport.NewDoor(maxStrangers, cfg.Report),
		claimed:     make([][]bool, cfg.Size),
		links:       make([][]*transport.Link, cfg.Size),
		tries:       make([]error, cfg.Size),
	}
	for r := range f.links {
		if r != cfg.Rank {
			f.links[r], f.claimed[r] = make([]*transport.Link, cfg.Streams), make([]bool, cfg.Streams)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.JoinTimeout)
	defer cancel()
	start := time.Now()
	f.start(ctx)
	err := f.wait(ctx)
	cancel()
	if cfg.Listener != nil {
		cfg.Listener.Close()
	}
	f.workers.Wait()
	if err = f.result(err, time.Since(start)); err == nil {
		return f.links, nil
	}
	closeLinks(f.links)
	return nil, err
}

func closeLinks(links [][]*transport.Link) {
	for _, streams := range links {
		for _, l := range streams {
			if l != nil {
				l.Close()
			}
		}
	}
}

func (f *formation) start(ctx context.Context) {
	if f.cfg.Listener != nil && f.cfg.Rank < f.cfg.Size-1 {
		f.hello.Addr = f.cfg.Listener.Addr().String()
		f.workers.Go(func() { f.listen(ctx) })
	}
	for r := range f.cfg.Rank {
		for stream := range f.cfg.Streams {
			f.workers.Go(func() { f.dial(ctx, r, stream) })
		}
	}
}

// wait blocks until all links are established, a fatal error occurs, or ctx ends.
func (f *formation) wait(ctx context.Context) error {
	for {
		f.mu.Lock()
		complete, fatal := len(f.missing()) == 0, f.fatal
		f.mu.Unlock()
		if complete || fatal != nil {
			return fatal
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *formation) result(err error, after time.Duration) error {
	missing := f.missing()
	if f.fatal != nil {
		return fmt.Errorf("rank %d: %w", f.cfg.Rank, f.fatal)
	}
	if len(missing) == 0 {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = transport.ErrTimeout
	}
	e := &MissingError{Rank: f.cfg.Rank, Size: f.cfg.Size, Missing: missing, After: after, Err: err}
	for _, r := range missing {
		if f.tries[r] != nil {
			e.Notes = append(e.Notes, fmt.Sprintf("rank %d: %v", r, f.tries[r]))
		}
	}
	if f.refused > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%d connections were turned away, the last one: %v", f.refused, f.last))
	}
	return e
}

// missing lists the ranks without a complete set of links. f.mu is held, or all workers have ended.
func (f *formation) missing() []int {
	var out []int
	for r, streams := range f.links {
		if slices.Contains(streams, nil) {
			out = append(out, r)
		}
	}
	return out
}

func (f *formation) update(change func()) {
	f.mu.Lock()
	change()
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

const (
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// dial connects to a lower rank, with retries while the rank is unreachable.
func (f *formation) dial(ctx context.Context, rank, stream int) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		link, err := f.dialOnce(ctx, rank, stream)
		if err == nil {
			f.update(func() { f.links[rank][stream] = link })
			return
		}
		if transport.Permanent(err) {
			f.update(func() { f.fatal = fmt.Errorf("rank %d: %w", rank, err) })
			return
		}
		if ctx.Err() != nil {
			return // the previous error is more specific
		}
		f.update(func() { f.tries[rank] = err })
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (f *formation) dialOnce(ctx context.Context, rank, stream int) (*transport.Link, error) {
	mine := f.hello
	mine.Stream = stream
	link, theirs, err := transport.Dial(ctx, f.cfg.Addrs[rank], f.credentials, mine)
	if err == nil && (theirs.Rank != rank || theirs.WorldSize != f.cfg.Size) {
		link.Close()
		err = fmt.Errorf("%w: %s answers as rank %d of %d, expected rank %d of %d",
			transport.ErrRefused, f.cfg.Addrs[rank], theirs.Rank, theirs.WorldSize, rank, f.cfg.Size)
	}
	return link, err
}

// listen accepts connections, each with a goroutine so that silent peers delay no other.
func (f *formation) listen(ctx context.Context) {
	connpeek.SpeakFirst(f.cfg.Listener)
	for {
		conn, err := f.cfg.Listener.Accept()
		switch {
		case err == nil:
			if s := f.door.Admit(conn); s != nil {
				f.workers.Go(func() { f.accept(ctx, s) })
			}
		case errors.Is(err, net.ErrClosed):
			if ctx.Err() == nil {
				f.update(func() { f.fatal = fmt.Errorf("the listener %v was closed by somebody else", f.cfg.Listener.Addr()) })
			}
			return
		default: // out of descriptors, for example: other processes may free some
			f.update(func() { f.refused, f.last = f.refused+1, err })
			select {
			case <-time.After(firstPause):
			case <-ctx.Done():
				return
			}
		}
	}
}

func (f *formation) accept(ctx context.Context, s *transport.PendingConn) {
	var claimed *bool
	link, theirs, err := s.Accept(ctx, f.credentials, f.hello, func(h transport.Hello) error {
		seat, err := f.claim(h)
		claimed = seat
		return err
	})
	f.update(func() {
		if err == nil {
			f.links[theirs.Rank][theirs.Stream] = link
			return
		}
		if claimed != nil {
			*claimed = false
		}
		f.refused, f.last = f.refused+1, err
	})
}

// claim checks the rank claimed by h and returns the entry of claimed, reserved for the connection.
func (f *formation) claim(h transport.Hello) (*bool, error) {
	if h.WorldSize != f.cfg.Size {
		return nil, fmt.Errorf("this job has %d ranks, not %d", f.cfg.Size, h.WorldSize)
	}
	if h.Rank <= f.cfg.Rank || h.Rank >= f.cfg.Size {
		return nil, fmt.Errorf("ranks %d to %d connect to rank %d, not rank %d", f.cfg.Rank+1, f.cfg.Size-1, f.cfg.Rank, h.Rank)
	}
	if h.Streams != f.cfg.Streams || h.Stream >= h.Streams {
		return nil, fmt.Errorf("rank %d has %d streams to each rank, rank %d has %d (this is number %d): all ranks must have as many",
			h.Rank, h.Streams, f.cfg.Rank, f.cfg.Streams, h.Stream)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seat := &f.claimed[h.Rank][h.Stream]
	if *seat {
		return nil, fmt.Errorf("rank %d is already connected to rank %d", h.Rank, f.cfg.Rank)
	}
	*seat = true
	return seat, nil
}
