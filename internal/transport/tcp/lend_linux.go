package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Lending: pages of the payload go through a pipe to the socket, which keeps
// references to them instead of copies (vmsplice(2), splice(2)). On loopback the
// receiver copies straight from the sender's memory; a network card reads it
// there, also when a segment has to be sent again.
//
// The kernel holds the pages themselves, so that memory that is freed meanwhile is
// never touched after it is somebody else's; what is written to it meanwhile is
// sent. Only the receiver can tell when that no longer matters (transport.ZeroCopySender).
// Pages that have not reached the socket when a frame fails are let go at once.

// pipe is what pages go through. Its bytes are the next ones of the frame that is
// being written; between frames it is empty.
type pipe struct {
	in, out int // descriptors
	held    int // bytes
	vec     [1]unix.Iovec
	refused bool // this system does not lend
}

// pipeBytes is the size that is asked for: two segments of a collective. Where a
// user has many, the system grants less and it takes more calls.
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
		s.pipe.close() // of what it held nothing has reached the socket
		s.pipe.refused = true
	}
	return outcome(writev(s.fd, v))
}

// takeBack empties the pipe.
func (s *epollSocket) takeBack() {
	if s.use() {
		s.pipe.close()
		s.free()
	}
}

// unable reports whether an error says that this system does not lend, or has
// nothing left to lend with. Every other one is the connection's own.
func unable(err error) bool {
	switch err {
	case unix.EINVAL, unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS:
		return true
	}
	return false
}

// through fills the pipe from v, whose first bytes may be in it already, and
// empties it into the socket.
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

// fill puts what fits of v behind what the pipe holds: a copy of all slices but
// the last, and the last one's pages. More is left where more is true.
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
				err = nil // full
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

// close gives up what the pipe holds.
func (p *pipe) close() {
	if p.out != 0 {
		unix.Close(p.out)
		unix.Close(p.in)
	}
	p.in, p.out, p.held = 0, 0, 0
}

// Like reads and writes these calls never wait, and the Go scheduler is not told of them.

// vmsplice is vmsplice(2) of a pipe's part at most.
func vmsplice(pipe int, v *[1]unix.Iovec) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_VMSPLICE, uintptr(pipe), uintptr(unsafe.Pointer(v)), 1, unix.SPLICE_F_NONBLOCK, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// splice is splice(2) of what a pipe holds.
func splice(pipe, socket, n, flags int) (int, error) {
	r, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(pipe), 0, uintptr(socket), 0, uintptr(n), uintptr(flags))
	if errno != 0 {
		return outcome(0, errno)
	}
	return int(r), nil
}
