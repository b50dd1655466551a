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

// maxPending is how many may be at a socket at a time.
const maxPending = 64

// Config says whose socket it is.
type Config struct {
	Ticket  transport.Credentials
	Version string
	// Index is the heter-trainer's, and Trainers how many trainers there are.
	Index, Trainers int
}

func (c Config) hello(rank int) transport.Hello {
	return transport.Hello{Version: c.Version, Purpose: transport.Memory, Rank: rank, WorldSize: c.Trainers}
}

// Broker is where a heter-trainer hands memory to trainers of its host.
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

// pendingTrainer is a connection whose trainer may ask once.
type pendingTrainer struct {
	trainer int
	take    func(theirs *View) (*Region, error)
}

// Open listens. Errors: this system has no such memory, or no sockets.
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

// addr has no file.
func (n Name) addr() *net.UnixAddr {
	return &net.UnixAddr{Name: "@ringo-" + hex.EncodeToString(n[:]), Net: "unix"}
}

// Name is the socket's; that of nil is zero.
func (d *Broker) Name() (n Name) {
	if d != nil {
		n = d.name
	}
	return n
}

// Register returns a key with which a trainer may ask once. take is given the trainer's memory
// then, which it owns, and returns that for the trainer, which must stay until the desk is closed.
// Nobody comes to the desk of nil.
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

// Forget makes a key worth nothing.
func (d *Broker) Forget(k Key) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.guests, k)
}

// Close ends what is under way, waits for it, and gives the socket back.
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
		select { // out of descriptors, for instance: others may free some
		case <-time.After(pause):
		case <-d.ctx.Done():
			return
		}
	}
}

// pause is between two tries of what may work later.
const pause = 20 * time.Millisecond

// answer swaps memory with one who proves to be of the job. Others are turned away by the handshake, and what they wanted is nobody's concern.
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
		_ = memfd.Send(conn, []byte(text[:min(len(text), maxText)]), -1) // the trainer's end says why
		return
	}
	_ = memfd.Send(conn, header{shape: mine.shape}.encode(), mine.fd)
}

// swap takes a trainer's memory, and returns that for it.
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

// bound ends what blocks on conn with ctx, or after the time of a handshake.
func bound(ctx context.Context, conn net.Conn) (stop func() bool) {
	_ = conn.SetDeadline(time.Now().Add(transport.HandshakeTimeout)) // fails only where what follows will, too
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// Here tells whether a heter-trainer's socket is on this host, and returns a connection to it.
func dialLocal(ctx context.Context, name Name) (*net.UnixConn, error) {
	dialer := net.Dialer{Timeout: transport.HandshakeTimeout}
	conn, err := dialer.DialContext(ctx, "unix", name.addr().Name)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return nil, nil // nobody of that name
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to its socket: %w", err)
	}
	return conn.(*net.UnixConn), nil
}

// Exchange is a trainer's: it hands memory to the heter-trainer that says its name and a key, and
// returns what it gets for it. mine makes that memory, and is not called where the heter-trainer is
// not on this host: the view is nil then. The memory stays the caller's.
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

// take takes the memory that is the answer.
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
