package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
)

// readAhead is the number of bytes that a link reads beyond an expected header: enough for a small
// message in a single system call, and a negligible copy for a large message.
const readAhead = 16 << 10

// Link is an authenticated connection for frames. Any number of goroutines may write, and one may
// read. Dial and ServerHandshake create links.
//
// Without TLS the bytes are not encrypted: an eavesdropper on the network can read the gradients,
// but cannot join.
type Link struct {
	conn   net.Conn
	secure *SecureConn // conn, if encrypted

	in       [readAhead]byte
	from, to int
	received atomic.Int64

	// lock protects the writer's fields below: a channel with one token.
	lock   chan struct{}
	timers sync.Pool // timers of writers waiting for lock
	head   [wire.HeaderSize]byte
	parts  [2][]byte
	vec    net.Buffers
	broken error // error of all further writes
	sent   atomic.Int64
}

func newLink(conn net.Conn) *Link {
	return &Link{conn: conn, lock: make(chan struct{}, 1)}
}

// LocalAddr returns this end's address.
func (l *Link) LocalAddr() net.Addr { return l.conn.LocalAddr() }

// RemoteAddr returns the peer's address.
func (l *Link) RemoteAddr() net.Addr { return l.conn.RemoteAddr() }

// Detach returns the connection and the bytes that the link has already read from it, for a caller
// that replaces the link. Afterwards the link must not be used: it would overwrite ahead.
func (l *Link) Detach() (conn net.Conn, ahead []byte) { return l.conn, l.in[l.from:l.to] }

// Sent returns the number of bytes written, including headers and handshake.
func (l *Link) Sent() int64 { return l.sent.Load() }

// Received returns the number of bytes consumed, including headers and handshake, excluding bytes
// read ahead.
func (l *Link) Received() int64 { return l.received.Load() }

// Close closes the connection. Concurrent reads and writes fail with ErrClosed.
func (l *Link) Close() error { return l.conn.Close() }

// WriteFrame writes a frame, with h.Length set from payload, and returns when the operating system
// has the bytes. timeout includes the wait for other writers. After an error in the middle of a
// frame, all writes fail.
func (l *Link) WriteFrame(h wire.Header, payload []byte, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	if err := l.acquire(timeout); err != nil {
		return err
	}
	err := l.write(h, payload, deadline, timeout)
	<-l.lock
	return err
}

// WriteEncoded writes encoded frames in order, in few system calls, and consumes the slice frames.
// It fails if for patience no byte can be written, or another writer holds the lock. Later writes
// then fail too, unless no byte was written.
func (l *Link) WriteEncoded(frames net.Buffers, patience time.Duration) error {
	if err := l.acquire(patience); err != nil {
		return err
	}
	err := l.writeEncoded(frames, patience)
	l.vec = nil
	<-l.lock
	return err
}

// writeEncoded needs the writer's lock.
func (l *Link) writeEncoded(frames net.Buffers, patience time.Duration) error {
	if l.broken != nil {
		return l.broken
	}
	l.vec = frames
	for total := int64(0); ; {
		l.conn.SetWriteDeadline(time.Now().Add(patience)) // the write fails as well if this fails
		n, err := l.writeVec(patience)
		l.sent.Add(n)
		total += n
		late := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case err == nil:
			return nil
		case late && n > 0 && l.secure == nil:
			continue // slow progress
		case late:
			err = fmt.Errorf("%w: nothing could be written for %v after %d bytes; the other end does not read", ErrTimeout, patience, total)
			if total == 0 && l.secure == nil {
				return err // no byte was written
			}
		}
		l.broken = linkError(err)
		return l.broken
	}
}

// writeVec writes vec. Only TLS needs patience here, because an abandoned write ends a TLS
// connection.
func (l *Link) writeVec(patience time.Duration) (int64, error) {
	if l.secure != nil {
		return l.secure.writeAll(l.vec, patience)
	}
	return l.vec.WriteTo(l.conn)
}

// CloseWrite closes the writing side: the peer reads EOF after the last frame. Later writes fail
// with cause.
func (l *Link) CloseWrite(timeout time.Duration, cause error) error {
	if err := l.acquire(timeout); err != nil {
		return err
	}
	defer func() { <-l.lock }()
	if l.broken == nil {
		l.broken = cause
	}
	if c, ok := l.conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // the next use reports an error
	}
	return nil
}

func (l *Link) acquire(timeout time.Duration) error {
	select {
	case l.lock <- struct{}{}:
		return nil
	default:
	}
	t, _ := l.timers.Get().(*time.Timer)
	if t == nil {
		t = time.NewTimer(timeout)
	} else {
		t.Reset(timeout)
	}
	defer func() { t.Stop(); l.timers.Put(t) }()
	select {
	case l.lock <- struct{}{}:
		return nil
	case <-t.C:
		return fmt.Errorf("%w after %v, waiting for another frame to be written", ErrTimeout, timeout)
	}
}

// write needs the writer's lock.
func (l *Link) write(h wire.Header, payload []byte, deadline time.Time, timeout time.Duration) error {
	if l.broken != nil {
		return l.broken
	}
	h.Length = len(payload)
	if err := wire.PutHeader(&l.head, h); err != nil {
		return err
	}
	l.conn.SetWriteDeadline(deadline) // the write fails as well if this fails
	l.parts = [2][]byte{l.head[:], payload}
	l.vec = l.parts[:]
	if len(payload) == 0 {
		l.vec = l.parts[:1]
	}
	n, err := l.writeVec(0)
	l.parts = [2][]byte{}
	l.sent.Add(n)
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w after %v with %d of %d bytes written; the other end does not read", ErrTimeout, timeout, n, wire.HeaderSize+len(payload))
		if n == 0 && l.secure == nil {
			return err // no byte was written
		}
	}
	l.broken = linkError(err)
	return l.broken
}

// SetReadDeadline limits current and later reads; the zero time removes the limit. A read that
// exceeds the deadline loses no data and can be continued.
func (l *Link) SetReadDeadline(t time.Time) error { return l.conn.SetReadDeadline(t) }

// ReadHeader reads the next header. ReadHeader returns io.EOF if the peer has closed between two
// frames. Read the payload before the next header.
func (l *Link) ReadHeader() (wire.Header, error) {
	for l.to-l.from < wire.HeaderSize {
		if err := l.fill(); err != nil {
			return wire.Header{}, err
		}
	}
	h, err := wire.ParseHeader((*[wire.HeaderSize]byte)(l.in[l.from:]), wire.MaxPayload)
	if err == nil {
		l.use(wire.HeaderSize)
	}
	return h, err
}

// ReadPayload fills dst and returns the bytes read. After an ErrTimeout call again for the rest.
func (l *Link) ReadPayload(dst []byte) (int, error) {
	got := copy(dst, l.in[l.from:l.to])
	l.use(got)
	for got < len(dst) {
		n, err := l.conn.Read(dst[got:])
		got += n
		l.received.Add(int64(n))
		if err != nil && got < len(dst) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return got, linkError(err)
		}
	}
	return got, nil
}

// readFrame reads a whole small frame. A payload above limit is an error without an allocation.
func (l *Link) readFrame(limit int) (wire.Header, []byte, error) {
	h, err := l.ReadHeader()
	if err != nil {
		return h, nil, err
	}
	if h.Length > limit {
		return h, nil, fmt.Errorf("%w: a %v frame of %d bytes, the limit is %d", wire.ErrTooLong, h.Type, h.Length, limit)
	}
	p := make([]byte, h.Length)
	_, err = l.ReadPayload(p)
	return h, p, err
}

func (l *Link) fill() error {
	if l.from > 0 {
		l.to = copy(l.in[:], l.in[l.from:l.to])
		l.from = 0
	}
	n, err := l.conn.Read(l.in[l.to:])
	l.to += n
	switch {
	case n > 0:
		return nil // the next read repeats the error
	case err == io.EOF && l.to > 0:
		return io.ErrUnexpectedEOF
	case err == io.EOF:
		return io.EOF
	}
	return linkError(err)
}

func (l *Link) use(n int) {
	l.from += n
	l.received.Add(int64(n))
	if l.from == l.to {
		l.from, l.to = 0, 0
	}
}

func (l *Link) read(p []byte) (int, error) {
	if l.from < l.to {
		n := copy(p, l.in[l.from:l.to])
		l.use(n)
		return n, nil
	}
	n, err := l.conn.Read(p)
	l.received.Add(int64(n))
	return n, err
}

func linkError(err error) error {
	switch {
	case errors.Is(err, ErrTimeout): // more specific
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	case errors.Is(err, net.ErrClosed):
		return ErrClosed
	}
	return err
}
