package shm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/memfd"
	"github.com/ringo-ml/ringo/transport"
)

// The descriptor is sent after the handshake, in reply to a byte of the dialing rank: otherwise the
// dialing link could read ahead into the reply as ordinary bytes, losing the descriptor.

// strangers limits unauthenticated connections at the socket, in addition to the expected ranks.
const strangers = 64

// source sends a memory's descriptor to ranks of this host.
type source struct {
	name   string // socket name
	fd     int
	hello  transport.Hello
	ticket transport.Ticket

	ctx     context.Context
	cancel  context.CancelFunc
	ln      *net.UnixListener
	workers sync.WaitGroup
	door    *transport.AcceptLimiter

	mu    sync.Mutex
	ranks []int // ranks without a reply yet
}

// newSource listens on an abstract socket with a random name, and answers each of the ranks once.
// newSource owns fd unless newSource fails.
func newSource(ctx context.Context, fd int, hello transport.Hello, ticket transport.Ticket, ranks []int) (*source, error) {
	var random [16]byte
	rand.Read(random[:]) // never fails
	s := &source{
		name: "@ringo-" + hex.EncodeToString(random[:]), fd: fd, hello: hello, ticket: ticket,
		door: transport.NewDoor(strangers+len(ranks), nil), ranks: slices.Clone(ranks),
	}
	var err error
	if s.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: s.name, Net: "unix"}); err != nil {
		return nil, fmt.Errorf("listening on a unix socket: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.workers.Go(s.listen)
	return s, nil
}

// close ends all work in progress and closes the socket and the descriptor.
func (s *source) close() {
	s.cancel()
	s.ln.Close()
	s.workers.Wait()
	memfd.Close(s.fd)
}

func (s *source) listen() {
	for {
		conn, err := s.ln.AcceptUnix()
		if err == nil {
			if knocked := s.door.Admit(conn); knocked != nil {
				s.workers.Go(func() { s.answer(knocked, conn) })
			}
			continue
		}
		if s.ctx.Err() != nil {
			return
		}
		select { // out of descriptors, for example: other processes may free some
		case <-time.After(pause):
		case <-s.ctx.Done():
			return
		}
	}
}

// answer sends the memory to an authenticated rank. The handshake refuses other peers, unreported.
func (s *source) answer(knocked *transport.PendingConn, conn *net.UnixConn) {
	link, theirs, err := knocked.Accept(s.ctx, s.ticket, s.hello, s.check)
	if err != nil {
		return
	}
	defer link.Close()
	if !s.take(theirs.Rank) {
		return
	}
	stop := bound(s.ctx, conn)
	defer stop()
	var ask [1]byte
	if _, err := conn.Read(ask[:]); err != nil {
		return // the other rank reports the reason
	}
	_ = memfd.Send(conn, []byte{1}, s.fd) // the other rank reports an error
}

// check accepts a rank that has not got its memory yet.
func (s *source) check(h transport.Hello) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.WorldSize != s.hello.WorldSize || !slices.Contains(s.ranks, h.Rank) {
		return fmt.Errorf("rank %d of %d gets no memory here", h.Rank, h.WorldSize)
	}
	return nil
}

// take marks a rank as answered, unless it was.
func (s *source) take(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.ranks, rank)
	if i >= 0 {
		s.ranks = slices.Delete(s.ranks, i, i+1)
	}
	return i >= 0
}

// bound ends blocking calls on conn when ctx ends, or after the handshake timeout.
func bound(ctx context.Context, conn net.Conn) (stop func() bool) {
	conn.SetDeadline(time.Now().Add(transport.HandshakeTimeout))
	return context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
}

// pause is the delay between retries.
const pause = 20 * time.Millisecond

// receiveMemory requests the descriptor from the leader's source. A request that the leader closes
// under a flood of strangers is retried until the handshake timeout.
func receiveMemory(ctx context.Context, name string, hello transport.Hello, ticket transport.Ticket, leader int) (fd int, err error) {
	limited, cancel := context.WithTimeout(ctx, transport.HandshakeTimeout)
	defer cancel()
	for {
		var hungUp bool
		if fd, hungUp, err = askForMemory(ctx, name, hello, ticket, leader); !hungUp {
			return fd, err
		}
		select {
		case <-time.After(pause):
		case <-limited.Done():
			return -1, err
		}
	}
}

// receiveFile reads the single descriptor sent by a source.
func receiveFile(conn *net.UnixConn) (fd int, err error) {
	n, fd, err := memfd.Take(conn, make([]byte, 1))
	if err == nil && fd < 0 {
		err = fmt.Errorf("%d bytes came without a descriptor: is the process out of descriptors (ulimit -n)?", n)
	}
	return fd, err
}

// newMemory creates n zero bytes of memory, sealed against truncation.
func newMemory(n int64) (fd int, err error) {
	if fd, err = memfd.Create("ringo", n); err != nil {
		return -1, err
	}
	if err = memfd.Seal(fd, memfd.Fixed); err != nil {
		memfd.Close(fd)
		return -1, err
	}
	return fd, nil
}

// askForMemory is one attempt of receiveMemory. hungUp: the leader closed the connection early.
func askForMemory(ctx context.Context, name string, hello transport.Hello, ticket transport.Ticket, leader int) (fd int, hungUp bool, err error) {
	dialer := net.Dialer{Timeout: transport.HandshakeTimeout}
	conn, err := dialer.DialContext(ctx, "unix", name)
	if err != nil {
		return -1, false, fmt.Errorf("connecting to the socket of rank %d: %w", leader, err)
	}
	link, theirs, err := transport.ClientHandshake(ctx, conn, ticket, hello)
	if err != nil {
		closed := slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}, func(e error) bool { return errors.Is(err, e) })
		return -1, closed, fmt.Errorf("the socket of rank %d: %w", leader, err)
	}
	defer link.Close()
	if theirs.Rank != leader {
		return -1, false, fmt.Errorf("the socket of rank %d is answered by rank %d", leader, theirs.Rank)
	}
	stop := bound(ctx, conn)
	defer stop()
	if _, err := conn.Write([]byte{1}); err != nil {
		return -1, false, fmt.Errorf("asking rank %d for memory: %w", leader, err)
	}
	if fd, err = receiveFile(conn.(*net.UnixConn)); err != nil {
		return -1, false, fmt.Errorf("memory from rank %d: %w", leader, err)
	}
	return fd, false, nil
}
