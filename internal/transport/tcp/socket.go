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

// socket is a connection of which reading and writing never wait. Waiting is
// apart from them, so that whoever has a reason to can try again at once.
//
// One goroutine at a time reads, one writes, and one calls awaitRead; the other
// methods are for any.
type socket interface {
	// read fills v's slices one after the other with what is there: errAgain
	// when that is nothing, io.EOF at the end.
	read(v [][]byte) (int, error)
	// write takes as much of v as fits, or errAgain.
	write(v [][]byte) (int, error)

	// writeZeroCopy is write, but what it has taken of the last slice is read from where it
	// lies until the other end has it. It may keep bytes that it has not counted
	// yet: until all of v is taken the next call is lend again, with v from where
	// the last one ended, or takeBack.
	writeZeroCopy(v [][]byte) (int, error)
	// takeBack forgets what lend keeps: the rest of v is not to be sent.
	takeBack()

	// arm makes awaitRead return once when something is there to be read.
	arm()
	// awaitRead parks until then, until wake, or until the deadline, and
	// reports whether it was not the deadline. A zero deadline never comes.
	awaitRead(deadline time.Time) bool
	// wake makes the awaitRead under way, or else the next, return.
	wake()
	// awaitWrite parks until something can be written; errDeadline or a fault
	// of the connection otherwise.
	awaitWrite(deadline time.Time) error
	// hurry moves the deadline of every awaitWrite forward to d.
	hurry(d time.Time)
	// block waits on the thread itself until something can be read, but not
	// beyond d, which is short.
	block(d time.Duration)

	// closeWrite ends what this side sends.
	closeWrite()
	// reset makes the other end see what the death of this process would.
	reset()
	// close ends everything: whoever waits or comes later gets errClosed.
	close()
}

var (
	errAgain    = errors.New("nothing to do yet")
	errDeadline = os.ErrDeadlineExceeded
	errClosed   = net.ErrClosed
)

// outcome translates what a non-blocking system call returned.
func outcome(n int, err error) (int, error) {
	if err == nil {
		return n, nil
	}
	if errno, ok := err.(unix.Errno); ok && (errno == unix.EAGAIN || errno == unix.EINTR) {
		return 0, errAgain
	}
	return 0, err
}

// netSocket is a socket by means of the Go runtime's poller. It serves every
// system. Its price is that the poller's thread wakes for every segment that
// arrives, also when somebody polls for it: see epollSocket.
type netSocket struct {
	conn     *net.TCPConn
	raw      syscall.RawConn
	readable func(fd uintptr) bool
	writable func(fd uintptr) bool
	readv    func(fd uintptr)
	writev   func(fd uintptr)

	in, out       [][]byte // what readv and writev work on, and what came of it
	nIn, nOut     int
	inErr, outErr error

	armed atomic.Bool
	woken atomic.Bool
	call  chan struct{} // a token: armed, woken or closed
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

// rings waits for a call.
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

func (s *netSocket) block(time.Duration) {} // its reader is better parked

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

// bound is a deadline that hurry may bring forward.
type bound struct {
	mu    sync.Mutex
	limit time.Time // zero: none
}

// set calls apply with d or the bound, whichever comes first.
func (b *bound) set(d time.Time, apply func(time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.limit.IsZero() && b.limit.Before(d) {
		d = b.limit
	}
	apply(d)
}

// lower makes d the bound, from now on.
func (b *bound) lower(d time.Time, apply func(time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = d
	apply(d)
}
