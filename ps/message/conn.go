package message

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/awake"
	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/wire"
)

// Conn is an end of a connection that reads and writes messages. One goroutine
// reads; any number may write.
//
// An end that is slow is not dead: a read or write fails only when Silence passes in
// which not a byte moves. A read counts it in time in which this process ran.
type Conn struct {
	link    *transport.Link
	other   Side
	limits  *Limits
	silence time.Duration
	front   [HeadSize]byte // of the reader

	interrupted atomic.Bool
}

// NewConn returns the end of a link that a side holds. The limits may be changed
// between two calls of Next.
func NewConn(link *transport.Link, own Side, limits *Limits, silence time.Duration) *Conn {
	return &Conn{link: link, other: Server - own, limits: limits, silence: silence}
}

// SetSilence changes the limit of silence, from the next read or write on. It is for
// the beginning of a connection, while one goroutine has it.
func (c *Conn) SetSilence(d time.Duration) { c.silence = d }

// Link is what it reads and writes.
func (c *Conn) Link() *transport.Link { return c.link }

// ErrInterrupted: Interrupt was called.
var ErrInterrupted = errors.New("interrupted")

// Interrupt makes Next return ErrInterrupted, now and later, but lets a message that
// has begun come to its end.
func (c *Conn) Interrupt() {
	c.interrupted.Store(true)
	_ = c.link.SetReadDeadline(time.Unix(1, 0)) // of a closed link the reader knows
}

// ErrSilent: the other end has shown no sign of life for as long as it may.
var ErrSilent = errors.New("was silent")

// Next reads up to the body of the next message that is not a Heartbeat, and returns
// its head, if it has one, and how many bytes of the body follow. They must be read
// before Next is called again. It returns io.EOF when the other end has closed
// between two messages.
func (c *Conn) Next() (t wire.Type, h Head, body int, err error) {
	for {
		f, err := c.header()
		if err != nil {
			return 0, h, 0, c.readError(err)
		}
		if err := c.expect(f); err != nil {
			return f.Type, h, 0, err
		}
		if f.Type == TypeHeartbeat {
			continue
		}
		if !headed(f.Type) {
			return f.Type, h, f.Length, nil
		}
		h, body, err = c.head(f)
		return f.Type, h, body, err
	}
}

// header reads the next frame's.
func (c *Conn) header() (wire.Header, error) {
	for silence := (awake.Silence{Limit: c.silence}); ; {
		_ = c.link.SetReadDeadline(time.Now().Add(silence.Wait())) // fails only where the read will, too
		if c.interrupted.Load() {                                  // before or after the deadline was set: this sees it, or the read does
			return wire.Header{}, ErrInterrupted
		}
		f, err := c.link.ReadHeader()
		late := errors.Is(err, transport.ErrTimeout)
		if late && c.interrupted.Load() {
			return f, ErrInterrupted
		}
		if !late || silence.Missed() {
			return f, err
		}
	}
}

// expect checks a frame's header before anything of it is read.
func (c *Conn) expect(f wire.Header) error {
	if !c.other.sends(f.Type) {
		return malformed("a %s does not send %s frames", c.other, Name(f.Type))
	}
	if f != (wire.Header{Type: f.Type, Length: f.Length}) {
		return malformed("a %s frame with a tag", Name(f.Type))
	}
	if most := c.limits.longest(f.Type); f.Length > most {
		return malformed("a %s frame of %d bytes, the limit is %d", Name(f.Type), f.Length, most)
	}
	return nil
}

// head reads a head and checks the length of what follows it.
func (c *Conn) head(f wire.Header) (h Head, body int, err error) {
	if f.Length < HeadSize {
		return h, 0, malformed("a %s frame of %d bytes", Name(f.Type), f.Length)
	}
	if err := c.Read(c.front[:]); err != nil {
		return h, 0, err
	}
	if h, err = ParseHead(&c.front); err != nil {
		return h, 0, err
	}
	if body, err = c.limits.Check(f.Type, h); err != nil {
		return h, 0, err
	}
	if body != f.Length-HeadSize {
		return h, 0, malformed("a %s frame with %d bytes behind its head, which stands for %d", Name(f.Type), f.Length-HeadSize, body)
	}
	return h, body, nil
}

// Read fills dst with bytes of the body.
func (c *Conn) Read(dst []byte) error {
	for silence := (awake.Silence{Limit: c.silence}); len(dst) > 0; {
		n, err := c.link.ReadPayload(dst)
		if err == nil {
			return nil
		}
		if !errors.Is(err, transport.ErrTimeout) {
			return c.readError(err)
		}
		if n > 0 {
			silence.Heard()
		} else if silence.Missed() {
			return c.readError(err)
		}
		dst = dst[n:]
		_ = c.link.SetReadDeadline(time.Now().Add(silence.Wait()))
	}
	return nil
}

// ReadAll reads a body of n bytes that Next has announced, for those that are few.
func (c *Conn) ReadAll(n int) ([]byte, error) {
	b := make([]byte, n)
	return b, c.Read(b)
}

func (c *Conn) readError(err error) error {
	if errors.Is(err, transport.ErrTimeout) {
		return fmt.Errorf("the %s %w for %v: %w", c.other, ErrSilent, c.silence, err)
	}
	return err
}

// Write writes whole frames, one after the other. The slice of frames is used up.
func (c *Conn) Write(frames net.Buffers) error {
	return c.link.WriteEncoded(frames, c.silence)
}

// WriteFrame writes one frame without a head.
func (c *Conn) WriteFrame(t wire.Type, payload []byte) error {
	return c.link.WriteFrame(wire.Header{Type: t}, payload, c.silence)
}
