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
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollSocket is a socket outside the Go runtime's poller. While a goroutine polls a connection,
// arriving data should wake no thread: the runtime's poller registers for all events, and waking
// its thread per message costs more than the message when all cores are busy. Each socket is
// therefore registered with separate epoll instances, which report once and only when armed. The
// runtime's poller watches these instances.
type epollSocket struct {
	fd    int
	users atomic.Int64 // current calls, plus closedBit after close
	in    *gate
	limit bound
	pipe  pipe // used by the writer

	mu  sync.Mutex
	out *gate // created when a write first has to wait
}

const closedBit = 1 << 62

// openSocket takes ownership of conn.
func openSocket(conn *net.TCPConn) (socket, error) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &epollSocket{fd: -1}
	if controlErr := raw.Control(func(fd uintptr) {
		s.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}); controlErr != nil {
		return nil, controlErr
	}
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if s.in, err = newGate(s.fd, unix.EPOLLIN|unix.EPOLLRDHUP); err != nil {
		unix.Close(s.fd)
		return nil, err
	}
	return s, nil
}

// use prevents closing and reuse of the descriptor until free.
func (s *epollSocket) use() bool {
	for {
		n := s.users.Load()
		if n&closedBit != 0 {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *epollSocket) free() {
	if s.users.Add(-1) == closedBit {
		s.closeFiles()
	}
}

// closeFiles is called once, after the last user.
func (s *epollSocket) closeFiles() {
	unix.Close(s.fd)
	s.pipe.close()
}

func (s *epollSocket) read(v [][]byte) (n int, err error) {
	if !s.use() {
		return 0, errClosed
	}
	if len(v) == 1 {
		n, err = tryReceive(s.fd, v[0])
	} else {
		n, err = readv(s.fd, v)
	}
	s.free()
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return outcome(n, err)
}

func (s *epollSocket) write(v [][]byte) (n int, err error) {
	if !s.use() {
		return 0, errClosed
	}
	if len(v) == 1 && len(v[0]) <= smallFrame {
		n, err = trySend(s.fd, v[0])
	} else {
		n, err = writev(s.fd, v)
	}
	s.free()
	return outcome(n, err)
}

// tryReceive is recv(2) without the Go scheduler's system call hooks, which take longer than
// finding no data. tryReceive never blocks and copies little.
func tryReceive(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	received()
	return int(n), nil
}

// trySend is send(2) without the scheduler's hooks.
func trySend(fd int, p []byte) (int, error) {
	sends()
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (s *epollSocket) arm() { s.in.arm() }

func (s *epollSocket) awaitRead(deadline time.Time) bool { return s.in.wait(deadline) == nil }

func (s *epollSocket) wake() { s.in.wake() }

func (s *epollSocket) awaitWrite(deadline time.Time) error {
	out, err := s.outGate()
	if err != nil {
		return err
	}
	s.limit.set(deadline, out.setDeadline)
	out.arm()
	return out.park()
}

func (s *epollSocket) outGate() (*gate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out != nil {
		return s.out, nil
	}
	if !s.use() {
		return nil, errClosed
	}
	defer s.free()
	out, err := newGate(s.fd, unix.EPOLLOUT)
	if err == nil {
		s.out = out
	}
	return out, err
}

func (s *epollSocket) hurry(d time.Time) {
	s.mu.Lock()
	out := s.out
	s.mu.Unlock()
	s.limit.lower(d, func(d time.Time) {
		if out != nil {
			out.setDeadline(d)
		}
	})
}

func (s *epollSocket) block(d time.Duration) {
	if !s.use() {
		return
	}
	defer s.free()
	p := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	t := unix.NsecToTimespec(int64(d))
	unix.Ppoll(p[:], &t, nil) // the next read reports any error
}

func (s *epollSocket) closeWrite() {
	if s.use() {
		unix.Shutdown(s.fd, unix.SHUT_WR)
		s.free()
	}
}

func (s *epollSocket) reset() {
	if s.use() {
		unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		s.free()
	}
	s.close()
}

func (s *epollSocket) close() {
	for {
		n := s.users.Load()
		if n&closedBit != 0 {
			return
		}
		if !s.users.CompareAndSwap(n, n|closedBit) {
			continue
		}
		if n == 0 {
			s.closeFiles()
		} // otherwise the last user closes, soon: no call waits for long
		break
	}
	s.in.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out != nil {
		s.out.close()
	}
}

func yieldCore() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// gate is an epoll instance for one event of one socket.
type gate struct {
	file    *os.File // epoll instance, registered with the runtime's poller
	raw     syscall.RawConn
	socket  int
	events  uint32
	woken   atomic.Bool
	control func(ep uintptr)
	ready   func(ep uintptr) bool
}

func newGate(socket int, events uint32) (*gate, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, socket, &unix.EpollEvent{Events: unix.EPOLLONESHOT})
	if err == nil {
		err = unix.SetNonblock(ep, true)
	}
	if err != nil {
		unix.Close(ep)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	g := &gate{file: os.NewFile(uintptr(ep), "epoll"), socket: socket, events: events | unix.EPOLLONESHOT}
	if g.raw, err = g.file.SyscallConn(); err != nil {
		g.file.Close()
		return nil, err
	}
	g.control = func(ep uintptr) {
		e := unix.EpollEvent{Events: g.events}
		unix.EpollCtl(int(ep), unix.EPOLL_CTL_MOD, g.socket, &e) // fails only after the socket is closed
	}
	g.ready = func(ep uintptr) bool {
		var e [1]unix.EpollEvent
		n, _ := unix.EpollWait(int(ep), e[:], 0)
		return n > 0
	}
	return g, nil
}

// arm makes the gate report the next event, or a pending event.
func (g *gate) arm() { g.raw.Control(g.control) }

func (g *gate) wait(deadline time.Time) error {
	g.setDeadline(deadline)
	if g.woken.Swap(false) {
		return nil
	}
	err := g.park()
	if err != nil && g.woken.Swap(false) || err == errClosed {
		return nil
	}
	return err
}

func (g *gate) park() error {
	switch err := g.raw.Read(g.ready); {
	case err == nil:
		return nil
	case errors.Is(err, errDeadline):
		return errDeadline
	}
	return errClosed
}

func (g *gate) setDeadline(d time.Time) { g.file.SetReadDeadline(d) }

func (g *gate) wake() {
	g.woken.Store(true)
	g.setDeadline(time.Unix(1, 0))
}

func (g *gate) close() { g.file.Close() }
