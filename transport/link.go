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

// readAhead is how much a link reads beyond a header that it waits for: enough
// that a small message costs one system call, and little enough that copying it
// out costs a large one nothing to speak of.
const readAhead = 16 << 10

// Link is one authenticated connection that carries frames. Any number of
// goroutines may write; one reads. Dial and ServerHandshake make them.
//
// Where TLS does not apply the bytes are not encrypted: who can read the network
// can read the gradients, but not join.
type Link struct {
	conn   net.Conn
	secure *SecureConn // conn, if that is encrypted

	// The reader's: conn's bytes in[from:to] are read but not used.
	in       [readAhead]byte
	from, to int
	received atomic.Int64

	// The writer's, guarded by lock, which holds a token while it is taken.
	lock   chan struct{}
	timers sync.Pool // of those who wait for lock
	head   [wire.HeaderSize]byte
	parts  [2][]byte
	vec    net.Buffers
	broken error // why nothing can be written any more
	sent   atomic.Int64
}

func newLink(conn net.Conn) *Link {
	return &Link{conn: conn, lock: make(chan struct{}, 1)}
}

// LocalAddr is this end's address.
func (l *Link) LocalAddr() net.Addr { return l.conn.LocalAddr() }

// RemoteAddr is the other end's address.
func (l *Link) RemoteAddr() net.Addr { return l.conn.RemoteAddr() }

// Detach returns the connection and what was read from it ahead of its use, for
// who goes on with them in place of the link. ahead is valid until then only if
// the link is not used again.
func (l *Link) Detach() (conn net.Conn, ahead []byte) { return l.conn, l.in[l.from:l.to] }

// Sent is the number of bytes written so far, headers and handshake included.
func (l *Link) Sent() int64 { return l.sent.Load() }

// Received is the number of bytes used so far, headers and handshake included.
// What the link has read ahead is not counted.
func (l *Link) Received() int64 { return l.received.Load() }

// Close closes the connection. Reads and writes that are under way fail with
// ErrClosed.
func (l *Link) Close() error { return l.conn.Close() }

// WriteFrame writes one frame; h.Length is taken from payload. It returns when
// the operating system has the bytes. The timeout also covers waiting for other
// writers. A frame that could only be written in part leaves the link unusable
// for writing.
func (l *Link) WriteFrame(h wire.Header, payload []byte, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	if err := l.acquire(timeout); err != nil {
		return err
	}
	err := l.write(h, payload, deadline, timeout)
	<-l.lock
	return err
}

// WriteEncoded writes frames that are encoded already, one after the other, in few
// system calls. It uses the slice of frames up. It fails when nothing could be written
// for as long as patience, which also bounds waiting for other writers; the link is
// then of no use for writing, unless nothing at all was written.
func (l *Link) WriteEncoded(frames net.Buffers, patience time.Duration) error {
	if err := l.acquire(patience); err != nil {
		return err
	}
	err := l.writeEncoded(frames, patience)
	l.vec = nil
	<-l.lock
	return err
}

// writeEncoded needs the lock.
func (l *Link) writeEncoded(frames net.Buffers, patience time.Duration) error {
	if l.broken != nil {
		return l.broken
	}
	l.vec = frames
	for total := int64(0); ; {
		l.conn.SetWriteDeadline(time.Now().Add(patience)) // fails only where the write will, too
		n, err := l.writeVec(patience)
		l.sent.Add(n)
		total += n
		late := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case err == nil:
			return nil
		case late && n > 0 && l.secure == nil:
			continue // slow, but it moves
		case late:
			err = fmt.Errorf("%w: nothing could be written for %v after %d bytes; the other end does not read", ErrTimeout, patience, total)
			if total == 0 && l.secure == nil {
				return err // the stream is as it was
			}
		}
		l.broken = linkError(err)
		return l.broken
	}
}

// writeVec writes vec. Under TLS, which cannot go on after a write that was given up, it has patience itself.
func (l *Link) writeVec(patience time.Duration) (int64, error) {
	if l.secure != nil {
		return l.secure.writeAll(l.vec, patience)
	}
	return l.vec.WriteTo(l.conn)
}

// CloseWrite closes the writing side, so that the other end reads EOF after the
// last frame. Later writes fail with cause.
func (l *Link) CloseWrite(timeout time.Duration, cause error) error {
	if err := l.acquire(timeout); err != nil {
		return err
	}
	defer func() { <-l.lock }()
	if l.broken == nil {
		l.broken = cause
	}
	if c, ok := l.conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // a fault shows at the next use
	}
	return nil
}

// acquire takes the writer's lock.
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

// write needs the lock.
func (l *Link) write(h wire.Header, payload []byte, deadline time.Time, timeout time.Duration) error {
	if l.broken != nil {
		return l.broken
	}
	h.Length = len(payload)
	if err := wire.PutHeader(&l.head, h); err != nil {
		return err
	}
	l.conn.SetWriteDeadline(deadline) // fails only where the write will, too
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
			return err // nothing is out: the stream is as it was
		}
	}
	l.broken = linkError(err)
	return l.broken
}

// SetReadDeadline bounds the reads to come and the one under way; the zero time
// lifts the bound. A read that fails because of it has lost nothing and can be
// taken up again.
func (l *Link) SetReadDeadline(t time.Time) error { return l.conn.SetReadDeadline(t) }

// ReadHeader reads the next header. It returns io.EOF when the other end has
// closed between two frames. The payload must be read before the next header.
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

// ReadPayload fills dst and returns how much of it is filled. After an ErrTimeout
// the rest can be read by another call.
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

// readFrame reads a whole frame, for links whose frames are few and small. A
// payload above limit is an error and nothing is allocated.
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

// fill reads more bytes ahead.
func (l *Link) fill() error {
	if l.from > 0 {
		l.to = copy(l.in[:], l.in[l.from:l.to])
		l.from = 0
	}
	n, err := l.conn.Read(l.in[l.to:])
	l.to += n
	switch {
	case n > 0:
		return nil // an error shows again at the next read
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

// read reads what comes, for the preface.
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

// linkError maps the faults of connections to this package's.
func linkError(err error) error {
	switch {
	case errors.Is(err, ErrTimeout): // which says more
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	case errors.Is(err, net.ErrClosed):
		return ErrClosed
	}
	return err
}
