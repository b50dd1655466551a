package tcp

import (
	"sync/atomic"

	"github.com/ringo-ml/ringo/transport"
)

// tlsChunk is how much is encrypted at a time: 16 records, whose ciphertext goes out in one system call and still lies in the
// cache.
const tlsChunk = 256 << 10

// tlsSocket is a socket under TLS: another socket carries the ciphertext.
//
// Ciphertext cannot be taken back, so what is encrypted goes out, and of a chunk of which a part still waits for room the last
// byte is not counted as written: whoever writes comes again, with that byte.
type tlsSocket struct {
	socket
	conn *transport.SecureConn
	more atomic.Bool // TLS may have something that was read from below

	vec   [1][]byte // the argument of calls below
	vecIn [1][]byte
	held  bool // the byte that comes next is encrypted already
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

// below is what TLS is told of a call below: that there is nothing, or no room, ends nothing.
func (s *tlsSocket) below(n int, err error) (int, error) {
	if err == errAgain {
		err = nothingYet{}
	}
	return n, err
}

// nothingYet is errAgain as a net.Error.
type nothingYet struct{}

func (nothingYet) Error() string   { return errAgain.Error() }
func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

// read returns less than fits into v only if nothing more is there, below or in TLS.
func (s *tlsSocket) read(v [][]byte) (int, error) {
	if !s.more.Load() { // TLS has nothing: who asks again and again while it waits pays for the system call alone
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
				return total, nil // the next call has the fault
			default:
				return 0, err
			}
		}
	}
	s.more.Store(true)
	return total, nil
}

// arm has awaitRead return at once where TLS may have something that no poller knows of.
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

// retryable is errAgain for what has come to nothing without a fault.
func retryable(err error) error {
	if err == nil || err == error(nothingYet{}) {
		return errAgain
	}
	return err
}

func (s *tlsSocket) writeZeroCopy(v [][]byte) (int, error) { return s.write(v) }

func (s *tlsSocket) takeBack() {}

// closeWrite tells the other end that nothing more comes, as far as there is room for that.
func (s *tlsSocket) closeWrite() {
	if s.conn.CloseWrite() == nil {
		_, _ = s.conn.Flush()
	}
	s.socket.closeWrite()
}
