package sharedmem

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/memfd"
	"github.com/ringo-ml/ringo/transport"
)

// maxPending is the maximum number of unauthenticated connections.
const maxPending = 64

// Config identifies the heter-trainer of a socket.
type Config struct {
	Ticket  transport.Credentials
	Version string
	// Index is the heter-trainer's number, and Trainers the number of trainers.
	Index, Trainers int
}

func (c Config) hello(rank int) transport.Hello {
	return transport.Hello{Version: c.Version, Purpose: transport.Memory, Rank: rank, WorldSize: c.Trainers}
}

// Broker exchanges memory between a heter-trainer and the trainers of its host.
type Broker struct {
	cfg     Config
	name    Name
	ctx     context.Context
	cancel  context.CancelFunc
	ln      *net.UnixListener
	door    *transport.AcceptLimiter
	workers sync.WaitGroup

	mu     sync.Mutex
	guests map[Key]pendingTrainer
}

// pendingTrainer is the registration of a trainer for one exchange.
type pendingTrainer struct {
	trainer int
	take    func(theirs *View) (*Region, error)
}

// Open listens on a socket. It fails on systems without such memory or sockets.
func Open(ctx context.Context, cfg Config) (*Broker, error) {
	if !Supported {
		return nil, memfd.ErrUnsupported
	}
	d := &Broker{cfg: cfg, door: transport.NewDoor(maxPending, nil), guests: map[Key]pendingTrainer{}}
	rand.Read(d.name[:]) // never fails
	var err error
	if d.ln, err = net.ListenUnix("unix", d.name.addr()); err != nil {
		return nil, fmt.Errorf("listening on a unix socket: %w", err)
	}
	d.ctx, d.cancel = context.WithCancel(ctx)
	d.workers.Go(d.listen)
	return d, nil
}

// addr returns an abstract address, without a file.
func (n Name) addr() *net.UnixAddr {
	return &net.UnixAddr{Name: "@ringo-" + hex.EncodeToString(n[:]), Net: "unix"}
}

// Name returns the socket's name, zero for a nil Broker.
func (d *Broker) Name() (n Name) {
	if d != nil {
		n = d.name
	}
	return n
}

// Register returns a key for a single exchange with a trainer. take receives and owns the trainer's
// memory, and returns the memory for the trainer, to keep until Close. A nil Broker has no
// exchanges.
func (d *Broker) Register(trainer int, take func(theirs *View) (*Region, error)) (k Key) {
	if d == nil {
		return k
	}
	rand.Read(k[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guests[k] = pendingTrainer{trainer, take}
	return k
}

// Forget revokes a key.
func (d *Broker) Forget(k Key) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.guests, k)
}

// Close ends running exchanges, waits for them, and closes the socket.
func (d *Broker) Close() {
	if d == nil {
		return
	}
	d.cancel()
	_ = d.ln.Close()
	d.workers.Wait()
}

func (d *Broker) listen() {
	for {
		conn, err := d.ln.AcceptUnix()
		if err == nil {
			knocked := d.door.Admit(conn)
			d.workers.Go(func() { d.answer(knocked, conn) })
			continue
		}
		select { // out of descriptors, for instance
		case <-time.After(pause):
		case <-d.ctx.Done():
			return
		}
	}
}

// pause is the delay before a retry.
const pause = 20 * time.Millisecond

// answer exchanges memory with a peer that proves its membership in the job. Others get no answer.
func (d *Broker) answer(knocked *transport.PendingConn, conn *net.UnixConn) {
	link, theirs, err := knocked.Accept(d.ctx, d.cfg.Ticket, d.cfg.hello(d.cfg.Index), nil)
	if err != nil {
		return
	}
	defer link.Close()
	defer bound(d.ctx, conn)()
	mine, err := d.swap(conn, theirs.Rank)
	if err != nil {
		text := err.Error()
		_ = memfd.Send(conn, []byte(text[:min(len(text), maxText)]), -1) // the trainer reports it
		return
	}
	_ = memfd.Send(conn, header{shape: mine.shape}.encode(), mine.fd)
}

// swap takes a trainer's memory, and returns the memory for it.
func (d *Broker) swap(conn *net.UnixConn, trainer int) (*Region, error) {
	b := make([]byte, cardSize+1)
	n, fd, err := memfd.Take(conn, b)
	if err != nil {
		return nil, err
	}
	if fd < 0 {
		return nil, errors.New("no memory came: is the process out of descriptors (ulimit -n)?")
	}
	defer memfd.Close(fd)
	c, err := decode(b[:n])
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	g, known := d.guests[c.key]
	delete(d.guests, c.key)
	d.mu.Unlock()
	if !known || g.trainer != trainer {
		return nil, fmt.Errorf("trainer %d gets no memory here", trainer)
	}
	v, err := view(fd, c.shape)
	if err != nil {
		return nil, err
	}
	return g.take(v)
}

// bound limits blocking on conn by ctx and by the handshake's timeout.
func bound(ctx context.Context, conn net.Conn) (stop func() bool) {
	_ = conn.SetDeadline(time.Now().Add(transport.HandshakeTimeout)) // repeated at the next use
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// dialLocal connects to a heter-trainer's socket, or returns nil if it is not on this host.
func dialLocal(ctx context.Context, name Name) (*net.UnixConn, error) {
	dialer := net.Dialer{Timeout: transport.HandshakeTimeout}
	conn, err := dialer.DialContext(ctx, "unix", name.addr().Name)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return nil, nil // no socket of this name
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to its socket: %w", err)
	}
	return conn.(*net.UnixConn), nil
}

// Exchange is the trainer's side: memory from mine goes to the heter-trainer with the given name
// and key, and the heter-trainer's memory is returned. mine's memory remains the caller's. For a
// heter-trainer on another host mine is not called, and the View is nil.
func Exchange(ctx context.Context, cfg Config, trainer int, name Name, key Key, mine func() (*Region, error)) (*View, error) {
	if name == (Name{}) || !Supported {
		return nil, nil
	}
	conn, err := dialLocal(ctx, name)
	if err != nil || conn == nil {
		return nil, err
	}
	link, theirs, err := transport.ClientHandshake(ctx, conn, cfg.Ticket, cfg.hello(trainer))
	if err != nil {
		return nil, err
	}
	defer link.Close()
	if theirs.Rank != cfg.Index {
		return nil, fmt.Errorf("its socket is answered by heter-trainer %d", theirs.Rank)
	}
	m, err := mine()
	if err != nil {
		return nil, err
	}
	defer bound(ctx, conn)()
	if err := memfd.Send(conn, header{key, m.shape}.encode(), m.fd); err != nil {
		return nil, fmt.Errorf("handing memory over: %w", err)
	}
	return take(conn)
}

func take(conn *net.UnixConn) (*View, error) {
	b := make([]byte, maxText)
	n, fd, err := memfd.Take(conn, b)
	if err != nil {
		return nil, fmt.Errorf("taking memory: %w", err)
	}
	if fd < 0 {
		return nil, fmt.Errorf("it shares no memory: %s", b[:n])
	}
	defer memfd.Close(fd)
	c, err := decode(b[:n])
	if err != nil {
		return nil, err
	}
	return view(fd, c.shape)
}
