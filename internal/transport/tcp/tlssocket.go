package tcp

import (
	"sync/atomic"

	"github.com/ringo-ml/ringo/transport"
)

// tlsChunk is the number of bytes encrypted per step: 16 records, with ciphertext that leaves in
// one system call while still in the cache.
const tlsChunk = 256 << 10

// tlsSocket is a socket under TLS, on top of a socket for the ciphertext.
//
// Encrypted bytes must be sent. While a part of a chunk waits for space, the chunk's last byte does
// not count as written: the writer calls again with that byte.
type tlsSocket struct {
	socket
	conn *transport.SecureConn
	more atomic.Bool // TLS may have unread bytes from the socket below

	vec   [1][]byte // argument of calls to the socket below
	vecIn [1][]byte
	held  bool // the next byte is already encrypted
}

func newTLSSocket(below socket, conn *transport.SecureConn) *tlsSocket {
	s := &tlsSocket{socket: below, conn: conn}
	s.more.Store(true) // the handshake may have read beyond its end
	conn.Divert(func(p []byte) (int, error) {
		s.vecIn[0] = p
		return s.below(below.read(s.vecIn[:]))
	}, func(p []byte) (int, error) {
		s.vec[0] = p
		return s.below(below.write(s.vec[:]))
	})
	return s
}

// below translates errAgain from the socket below into a temporary error for TLS.
func (s *tlsSocket) below(n int, err error) (int, error) {
	if err == errAgain {
		err = nothingYet{}
	}
	return n, err
}

type nothingYet struct{}

func (nothingYet) Error() string   { return errAgain.Error() }
func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

// read returns fewer bytes than fit into v only if neither TLS nor the socket below has more.
func (s *tlsSocket) read(v [][]byte) (int, error) {
	if !s.more.Load() { // without buffered TLS data a polling caller pays for one system call only
		if some, err := s.conn.Fetch(); !some {
			return 0, retryable(err)
		}
	}
	total := 0
	for _, p := range v {
		for len(p) > 0 {
			n, err := s.conn.Read(p)
			total += n
			p = p[n:]
			switch {
			case err == nil:
			case err == error(nothingYet{}):
				s.more.Store(false)
				if total == 0 {
					return 0, errAgain
				}
				return total, nil
			case total > 0:
				return total, nil // the next call returns the error
			default:
				return 0, err
			}
		}
	}
	s.more.Store(true)
	return total, nil
}

// arm makes awaitRead return immediately if TLS may have data that no poller can see.
func (s *tlsSocket) arm() {
	s.socket.arm()
	if s.more.Load() {
		s.socket.wake()
	}
}

func (s *tlsSocket) write(v [][]byte) (int, error) {
	if s.held {
		if done, err := s.conn.Flush(); err != nil || !done {
			return 0, retryable(err)
		}
		s.held = false
		return 1, nil
	}
	taken := 0
	for _, p := range v {
		p = p[:min(len(p), tlsChunk-taken)]
		n, err := s.conn.Write(p)
		taken += n
		if err != nil {
			return taken, err
		}
		if taken == tlsChunk {
			break
		}
	}
	done, err := s.conn.Flush()
	if done {
		return taken, nil
	}
	s.held = true
	return taken - 1, err
}

// retryable maps a temporary failure to errAgain.
func retryable(err error) error {
	if err == nil || err == error(nothingYet{}) {
		return errAgain
	}
	return err
}

func (s *tlsSocket) writeZeroCopy(v [][]byte) (int, error) { return s.write(v) }

func (s *tlsSocket) takeBack() {}

// closeWrite sends the TLS end alert, if there is space.
func (s *tlsSocket) closeWrite() {
	if s.conn.CloseWrite() == nil {
		_, _ = s.conn.Flush()
	}
	s.socket.closeWrite()
}
