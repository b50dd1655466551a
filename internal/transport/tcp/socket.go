package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a connection with non-blocking reads and writes, and separate waits.
//
// A single goroutine reads, a single goroutine writes, and a single goroutine calls awaitRead; the
// other methods are safe for concurrent use.
type socket interface {
	// read fills v's slices with available bytes: errAgain without any, io.EOF at the end.
	read(v [][]byte) (int, error)
	// write takes as much of v as fits, or errAgain.
	write(v [][]byte) (int, error)

	// writeZeroCopy is write, except that the bytes of the last slice are read from the slice until
	// the peer has them. writeZeroCopy may take bytes without counting them yet: until all of v is
	// written, the next call must be writeZeroCopy with the rest of v, or takeBack.
	writeZeroCopy(v [][]byte) (int, error)
	// takeBack drops bytes taken by writeZeroCopy: the rest of v is not sent.
	takeBack()

	// arm makes awaitRead return once when bytes are available.
	arm()
	// awaitRead parks until bytes are available after arm, until wake, or until the deadline, and
	// returns false at the deadline. A zero deadline means none.
	awaitRead(deadline time.Time) bool
	// wake makes the current awaitRead return, or else the next.
	wake()
	// awaitWrite parks until the socket is writable. At the deadline awaitWrite returns
	// errDeadline, or else a connection error.
	awaitWrite(deadline time.Time) error
	// hurry moves the deadline of every awaitWrite forward to d.
	hurry(d time.Time)
	// block blocks the thread until bytes are available, at most for the short time d.
	block(d time.Duration)

	// closeWrite ends the sending side.
	closeWrite()
	// reset breaks the connection as the death of this process would.
	reset()
	// close closes the socket: current and later calls get errClosed.
	close()
}

var (
	errAgain    = errors.New("nothing to do yet")
	errDeadline = os.ErrDeadlineExceeded
	errClosed   = net.ErrClosed
)

// outcome translates the result of a non-blocking system call.
func outcome(n int, err error) (int, error) {
	if err == nil {
		return n, nil
	}
	if errno, ok := err.(unix.Errno); ok && (errno == unix.EAGAIN || errno == unix.EINTR) {
		return 0, errAgain
	}
	return 0, err
}

// netSocket is a socket based on the Go runtime's poller, for every system. Its disadvantage: the
// poller's thread wakes for every arriving segment, even during polling. See epollSocket.
type netSocket struct {
	conn     *net.TCPConn
	raw      syscall.RawConn
	readable func(fd uintptr) bool
	writable func(fd uintptr) bool
	readv    func(fd uintptr)
	writev   func(fd uintptr)

	in, out       [][]byte // arguments of readv and writev, with the results
	nIn, nOut     int
	inErr, outErr error

	armed atomic.Bool
	woken atomic.Bool
	call  chan struct{} // token: armed, woken or closed
	limit bound
}

func newNetSocket(conn *net.TCPConn) (*netSocket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &netSocket{conn: conn, raw: raw, call: make(chan struct{}, 1)}
	ready := func(events int16) func(uintptr) bool {
		return func(fd uintptr) bool {
			p := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
			n, err := unix.Poll(p[:], 0)
			return n > 0 || err != nil && err != unix.EINTR
		}
	}
	s.readable, s.writable = ready(unix.POLLIN), ready(unix.POLLOUT)
	s.readv = func(fd uintptr) { s.nIn, s.inErr = readv(int(fd), s.in) }
	s.writev = func(fd uintptr) { s.nOut, s.outErr = writev(int(fd), s.out) }
	return s, nil
}

func (s *netSocket) read(v [][]byte) (int, error) {
	s.in = v
	if err := s.raw.Control(s.readv); err != nil {
		return 0, errClosed
	}
	n, err := outcome(s.nIn, s.inErr)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (s *netSocket) write(v [][]byte) (int, error) {
	s.out = v
	if err := s.raw.Control(s.writev); err != nil {
		return 0, errClosed
	}
	return outcome(s.nOut, s.outErr)
}

func (s *netSocket) writeZeroCopy(v [][]byte) (int, error) { return s.write(v) }

func (s *netSocket) takeBack() {}

func (s *netSocket) arm() {
	s.armed.Store(true)
	s.ring()
}

func (s *netSocket) ring() {
	select {
	case s.call <- struct{}{}:
	default:
	}
}

func (s *netSocket) awaitRead(deadline time.Time) bool {
	if !s.armed.Load() && !s.woken.Load() && !s.rings(deadline) {
		return false
	}
	s.conn.SetReadDeadline(deadline)
	if s.woken.Swap(false) || !s.armed.Load() {
		return true
	}
	err := s.raw.Read(s.readable)
	if errors.Is(err, errDeadline) && !s.woken.Swap(false) {
		return false
	}
	s.armed.Store(false)
	return true
}

// rings waits for a token in call.
func (s *netSocket) rings(deadline time.Time) bool {
	if deadline.IsZero() {
		<-s.call
		return true
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-s.call:
		return true
	case <-t.C:
		return false
	}
}

func (s *netSocket) wake() {
	s.woken.Store(true)
	s.conn.SetReadDeadline(time.Unix(1, 0))
	s.ring()
}

func (s *netSocket) awaitWrite(deadline time.Time) error {
	s.limit.set(deadline, func(d time.Time) { s.conn.SetWriteDeadline(d) })
	return s.raw.Write(s.writable)
}

func (s *netSocket) hurry(d time.Time) {
	s.limit.lower(d, func(d time.Time) { s.conn.SetWriteDeadline(d) })
}

func (s *netSocket) block(time.Duration) {} // the reader parks instead

func (s *netSocket) closeWrite() { s.conn.CloseWrite() }

func (s *netSocket) reset() {
	s.conn.SetLinger(0)
	s.close()
}

func (s *netSocket) close() {
	s.conn.Close()
	s.woken.Store(true)
	s.ring()
}

// bound is a deadline that hurry may shorten.
type bound struct {
	mu    sync.Mutex
	limit time.Time // zero means none
}

// set calls apply with the earlier of d and the limit.
func (b *bound) set(d time.Time, apply func(time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.limit.IsZero() && b.limit.Before(d) {
		d = b.limit
	}
	apply(d)
}

func (b *bound) lower(d time.Time, apply func(time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = d
	apply(d)
}
