package message

import (
	"time"

	"github.com/ringo-ml/ringo/internal/frames"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// Conn is an end of a connection that reads and writes messages. A single goroutine reads, any
// number write.
type Conn struct {
	*frames.Conn
	peer   Side
	limits *Limits
	front  [HeadSize]byte // buffer of the reader
}

// NewConn returns the end of a link for side own. limits may change between two calls of Next.
func NewConn(link *transport.Link, own Side, limits *Limits, silence time.Duration) *Conn {
	other := Server - own
	return &Conn{Conn: frames.New(link, other.String(), silence), peer: other, limits: limits}
}

// ErrInterrupted is the error after Interrupt.
var ErrInterrupted = frames.ErrInterrupted

// ErrSilent is the error of a peer without a heartbeat for too long.
var ErrSilent = frames.ErrSilent

// Next reads up to the body of the next message, Heartbeats excluded, and returns the message's
// head, if any, and the length of the body, which the caller must read before the next call. It
// returns io.EOF if the peer has closed between two messages.
func (c *Conn) Next() (t wire.Type, h Head, body int, err error) {
	for {
		f, err := c.Header()
		if err != nil {
			return 0, h, 0, err
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

// expect checks a frame's header before reading more.
func (c *Conn) expect(f wire.Header) error {
	if !c.peer.sends(f.Type) {
		return malformed("a %s does not send %s frames", c.peer, Name(f.Type))
	}
	if f != (wire.Header{Type: f.Type, Length: f.Length}) {
		return malformed("a %s frame with a tag", Name(f.Type))
	}
	if most := c.limits.longest(f.Type); f.Length > most {
		return malformed("a %s frame of %d bytes, the limit is %d", Name(f.Type), f.Length, most)
	}
	return nil
}

// head reads a head and checks the length of the body.
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
