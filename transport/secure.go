package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// SecureConn is an established TLS connection, as returned by Link.Detach for an encrypted link.
// After a failed write, including one past its deadline, further writes fail; a read past its
// deadline loses no data.
type SecureConn struct {
	*tls.Conn
	lower below
}

// NetConn returns the underlying connection.
func (s *SecureConn) NetConn() net.Conn { return s.lower.conn }

// writeAll writes all of vec in few system calls, as net.Buffers.WriteTo does, and returns the
// number of bytes written. patience limits the time without progress, 0 means no limit.
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

// Divert makes TLS use the functions read and write instead of the underlying connection (NetConn),
// which then belongs to the caller alone. read and write transfer the available bytes without
// waiting; if no byte is available, or no space, they return a temporary net.Error. Unwritten bytes
// are kept for Flush. Calls of Divert, Read, Write and Flush must not overlap, except for one Read
// with one other call.
func (s *SecureConn) Divert(read func([]byte) (int, error), write func([]byte) (int, error)) {
	s.lower.mu.Lock()
	defer s.lower.mu.Unlock()
	s.lower.read, s.lower.write = read, write
}

// Fetch reads the next bytes from the underlying connection unless some are buffered, and reports
// whether Read has data. The cost is one system call. Fetch counts as a Read for the rules of
// overlapping calls.
func (s *SecureConn) Fetch() (bool, error) {
	if len(s.lower.buffered) > 0 {
		return true, nil
	}
	return s.lower.fetch()
}

// Flush writes the bytes in memory without waiting, and reports whether all were written.
func (s *SecureConn) Flush() (bool, error) { return s.lower.flush() }

// corked is the number of bytes that a connection collects for one write, after a call of cork.
const corked = 256 << 10

// readBelow is the size of a read: several records of 16 KiB.
const readBelow = 64 << 10

// below is the connection under TLS.
type below struct {
	conn        net.Conn
	buffered    []byte // read from conn, not yet by TLS
	buffer      []byte // readBelow bytes, for an authenticated peer; else nil
	read, write func([]byte) (int, error)

	mu       sync.Mutex
	held     bool // writes of TLS are collected
	patience time.Duration
	out      []byte // collected, or not yet accepted by write
}

// Read is called by TLS.
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

// fetch reads ahead, and reports whether bytes were available.
func (b *below) fetch() (bool, error) {
	read := b.read
	if read == nil {
		read = b.conn.Read
	}
	n, err := read(b.buffer)
	b.buffered = b.buffer[:n]
	return n > 0, err
}

// Write is called by TLS.
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

// empty writes the collected bytes. empty needs the lock.
func (b *below) empty() error {
	defer func() { b.out = b.out[:0] }()
	for rest := b.out; len(rest) > 0; {
		n, err := b.conn.Write(rest)
		rest = rest[n:]
		if err != nil && (n == 0 || b.patience == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return err
		}
		if err != nil { // slow progress
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

// The methods below complete a net.Conn.

func (b *below) Close() error                       { return b.conn.Close() }
func (b *below) LocalAddr() net.Addr                { return b.conn.LocalAddr() }
func (b *below) RemoteAddr() net.Addr               { return b.conn.RemoteAddr() }
func (b *below) SetDeadline(t time.Time) error      { return b.conn.SetDeadline(t) }
func (b *below) SetReadDeadline(t time.Time) error  { return b.conn.SetReadDeadline(t) }
func (b *below) SetWriteDeadline(t time.Time) error { return b.conn.SetWriteDeadline(t) }
