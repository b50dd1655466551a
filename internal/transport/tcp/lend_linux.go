package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Zero-copy sending: pages of the payload go through a pipe to the socket, which references the
// pages instead of copying (vmsplice(2), splice(2)). On loopback the receiver copies directly from
// the sender's memory; a network card reads the memory directly, also for retransmissions.
//
// The kernel holds references to the pages: memory that is freed early is never sent after another
// owner has reused it, but writes to the memory change the sent data. Only the receiver can confirm
// that writing is safe (transport.ZeroCopySender). After a failed frame, pages that have not
// reached the socket are released immediately.

// pipe carries pages to the socket: the next bytes of the current frame, none between frames.
type pipe struct {
	in, out int // descriptors
	held    int // bytes
	vec     [1]unix.Iovec
	refused bool // zero-copy is unsupported on this system
}

// pipeBytes is the requested size: two segments of a collective. For a user with many pipes the
// system grants less, at the cost of more calls.
const pipeBytes = 1 << 20

func (s *epollSocket) writeZeroCopy(v [][]byte) (int, error) {
	if !s.use() {
		return 0, errClosed
	}
	defer s.free()
	if !s.pipe.refused {
		n, err := s.through(v)
		if err == nil || err == errAgain || !unable(err) {
			return n, err
		}
		s.pipe.close() // none of the discarded bytes has reached the socket
		s.pipe.refused = true
	}
	return outcome(writev(s.fd, v))
}

func (s *epollSocket) takeBack() {
	if s.use() {
		s.pipe.close()
		s.free()
	}
}

// unable reports whether an error means that the system does not support zero-copy, or lacks
// resources. All other errors belong to the connection.
func unable(err error) bool {
	switch err {
	case unix.EINVAL, unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS:
		return true
	}
	return false
}

// through fills the pipe from v, after bytes already there, and empties it into the socket.
func (s *epollSocket) through(v [][]byte) (int, error) {
	p := &s.pipe
	if err := p.open(); err != nil {
		return 0, err
	}
	more, err := p.fill(v)
	if err != nil {
		return 0, err
	}
	flags := unix.SPLICE_F_NONBLOCK
	if more {
		flags |= unix.SPLICE_F_MORE
	}
	sends()
	n, err := splice(p.out, s.fd, p.held, flags)
	p.held -= n
	return n, err
}

// fill appends to the pipe the part of v that fits: copies of all slices but the last, and the
// pages of the last slice. more reports whether bytes are left.
func (p *pipe) fill(v [][]byte) (more bool, err error) {
	skip := p.held
	for i, b := range v {
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		b, skip = b[skip:], 0
		n := 0
		if i < len(v)-1 {
			n, err = unix.Write(p.in, b)
		} else {
			p.vec[0].Base = &b[0]
			p.vec[0].SetLen(len(b))
			n, err = vmsplice(p.in, &p.vec)
			p.vec[0].Base = nil
		}
		n, err = outcome(n, err)
		p.held += n
		if n < len(b) {
			if err == errAgain && p.held > 0 {
				err = nil // pipe is full
			}
			return true, err
		}
	}
	return false, nil
}

func (p *pipe) open() error {
	if p.out != 0 {
		return nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	p.out, p.in = fds[0], fds[1]
	_, _ = unix.FcntlInt(uintptr(p.in), unix.F_SETPIPE_SZ, pipeBytes)
	return nil
}

func (p *pipe) close() {
	if p.out != 0 {
		unix.Close(p.out)
		unix.Close(p.in)
	}
	p.in, p.out, p.held = 0, 0, 0
}

// Like reads and writes, these calls never block, and bypass the Go scheduler.

func vmsplice(pipe int, v *[1]unix.Iovec) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_VMSPLICE, uintptr(pipe), uintptr(unsafe.Pointer(v)), 1, unix.SPLICE_F_NONBLOCK, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func splice(pipe, socket, n, flags int) (int, error) {
	r, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(pipe), 0, uintptr(socket), 0, uintptr(n), uintptr(flags))
	if errno != 0 {
		return outcome(0, errno)
	}
	return int(r), nil
}
