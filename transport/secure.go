package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// SecureConn is a connection under TLS that stands: what Link.Detach returns of one that is encrypted. After a write that
// failed, because of its deadline too, nothing can be written; a read that fails because of its deadline has lost nothing.
type SecureConn struct {
	*tls.Conn
	lower below
}

// NetConn returns the connection underneath.
func (s *SecureConn) NetConn() net.Conn { return s.lower.conn }

// writeAll writes all of vec in few system calls, as net.Buffers.WriteTo does, and returns how much it wrote. While bytes go
// out, each part of them may take as long as patience, if that is not 0.
func (s *SecureConn) writeAll(vec net.Buffers, patience time.Duration) (int64, error) {
	s.lower.cork(patience)
	total := int64(0)
	for _, p := range vec {
		n, err := s.Conn.Write(p)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, s.lower.uncork()
}

// Divert has the bytes of TLS go by read and write from now on, in place of the connection underneath (NetConn), which the
// caller has to itself: as much as there is, never waiting. Where there is nothing to be read, or no room, they return an error that is a
// temporary net.Error; what could not be written waits in memory for Flush. The calls of Divert, Read, Write and Flush must not
// overlap, but for one of Read beside one of the others.
func (s *SecureConn) Divert(read func([]byte) (int, error), write func([]byte) (int, error)) {
	s.lower.mu.Lock()
	defer s.lower.mu.Unlock()
	s.lower.read, s.lower.write = read, write
}

// Fetch reads from below what comes next, unless there is some already, and reports whether a Read has anything to work with:
// it costs nothing but the system call. It is a call of Read as to what may overlap.
func (s *SecureConn) Fetch() (bool, error) {
	if len(s.lower.buffered) > 0 {
		return true, nil
	}
	return s.lower.fetch()
}

// Flush writes what waits in memory, as far as there is room, and reports whether that is all.
func (s *SecureConn) Flush() (bool, error) { return s.lower.flush() }

// corked is how many bytes a corked connection gathers before it writes them.
const corked = 256 << 10

// readBelow is how much is read at a time: several records of 16 KiB.
const readBelow = 64 << 10

// below is what TLS reads from and writes to.
type below struct {
	conn        net.Conn
	buffered    []byte // read from conn, not yet by TLS
	buffer      []byte // of readBelow bytes, where the other end is known and may have them
	read, write func([]byte) (int, error)

	mu       sync.Mutex
	held     bool // what TLS writes is gathered
	patience time.Duration
	out      []byte // gathered, or not yet taken by write
}

// Read is what TLS reads with.
func (b *below) Read(p []byte) (int, error) {
	if len(b.buffered) == 0 {
		if b.buffer == nil {
			return b.conn.Read(p)
		}
		if some, err := b.fetch(); !some {
			return 0, err
		}
	}
	n := copy(p, b.buffered)
	b.buffered = b.buffered[n:]
	return n, nil
}

// fetch reads ahead, and reports whether there was anything.
func (b *below) fetch() (bool, error) {
	read := b.read
	if read == nil {
		read = b.conn.Read
	}
	n, err := read(b.buffer)
	b.buffered = b.buffer[:n]
	return n > 0, err
}

// Write is what TLS writes with.
func (b *below) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.write != nil {
		b.out = append(b.out, p...)
		return len(p), nil
	}
	if !b.held {
		return b.conn.Write(p)
	}
	b.out = append(b.out, p...)
	if len(b.out) < corked {
		return len(p), nil
	}
	return len(p), b.empty()
}

func (b *below) cork(patience time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.patience = true, patience
}

func (b *below) uncork() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = false
	return b.empty()
}

// empty writes what is gathered. It needs the lock.
func (b *below) empty() error {
	defer func() { b.out = b.out[:0] }()
	for rest := b.out; len(rest) > 0; {
		n, err := b.conn.Write(rest)
		rest = rest[n:]
		if err != nil && (n == 0 || b.patience == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return err
		}
		if err != nil { // slow, but it moves
			b.conn.SetWriteDeadline(time.Now().Add(b.patience))
		}
	}
	return nil
}

func (b *below) flush() (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	done := 0
	var err error
	for done < len(b.out) && err == nil {
		var n int
		n, err = b.write(b.out[done:])
		done += n
	}
	b.out = b.out[:copy(b.out, b.out[done:])]
	if t := net.Error(nil); errors.As(err, &t) && t.Timeout() {
		err = nil
	}
	if err == nil && len(b.out) == 0 {
		return true, nil
	}
	return false, err
}

// The rest makes a net.Conn of it.

func (b *below) Close() error                       { return b.conn.Close() }
func (b *below) LocalAddr() net.Addr                { return b.conn.LocalAddr() }
func (b *below) RemoteAddr() net.Addr               { return b.conn.RemoteAddr() }
func (b *below) SetDeadline(t time.Time) error      { return b.conn.SetDeadline(t) }
func (b *below) SetReadDeadline(t time.Time) error  { return b.conn.SetReadDeadline(t) }
func (b *below) SetWriteDeadline(t time.Time) error { return b.conn.SetWriteDeadline(t) }
