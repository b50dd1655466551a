// Package frames reads and writes frames of package wire between two processes that show each other signs of life: what the
// connections of parameter servers and of heter-trainers have in common.
package frames

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// Conn is an end of a connection. One goroutine reads; any number may write.
//
// An end that is slow is not dead: a read or write fails only when the silence passes in
// which not a byte moves. A read counts it in time in which this process ran.
type Conn struct {
	link    *transport.Link
	peer    string
	silence time.Duration

	interrupted atomic.Bool
}

// New returns the end of a link whose other end is called by a word in errors, such as "server".
func New(link *transport.Link, other string, silence time.Duration) *Conn {
	return &Conn{link: link, peer: other, silence: silence}
}

// SetSilence changes the limit of silence, from the next read or write on. It is for
// the beginning of a connection, while one goroutine has it.
func (c *Conn) SetSilence(d time.Duration) { c.silence = d }

// Link is what it reads and writes.
func (c *Conn) Link() *transport.Link { return c.link }

// ErrInterrupted: Interrupt was called.
var ErrInterrupted = errors.New("interrupted")

// Interrupt makes Header return ErrInterrupted, now and later, but lets a message that
// has begun come to its end.
func (c *Conn) Interrupt() {
	c.interrupted.Store(true)
	_ = c.link.SetReadDeadline(time.Unix(1, 0)) // of a closed link the reader knows
}

// ErrSilent: the other end has shown no sign of life for as long as it may.
var ErrSilent = errors.New("was silent")

// Header reads the next frame's, which is all that a frame has before its payload. It returns io.EOF when the other end has closed
// between two frames.
func (c *Conn) Header() (wire.Header, error) {
	for silence := (liveness.Detector{Limit: c.silence}); ; {
		_ = c.link.SetReadDeadline(time.Now().Add(silence.Wait())) // fails only where the read will, too
		if c.interrupted.Load() {                                  // before or after the deadline was set: this sees it, or the read does
			return wire.Header{}, ErrInterrupted
		}
		f, err := c.link.ReadHeader()
		late := errors.Is(err, transport.ErrTimeout)
		if late && c.interrupted.Load() {
			return f, ErrInterrupted
		}
		if !late || silence.Missed(false) {
			return f, c.readError(err)
		}
	}
}

// Read fills dst with bytes of the payload.
func (c *Conn) Read(dst []byte) error {
	for silence := (liveness.Detector{Limit: c.silence}); len(dst) > 0; {
		n, err := c.link.ReadPayload(dst)
		if err == nil {
			return nil
		}
		if !errors.Is(err, transport.ErrTimeout) {
			return c.readError(err)
		}
		if n > 0 {
			silence.Reset()
		} else if silence.Missed(false) {
			return c.readError(err)
		}
		dst = dst[n:]
		_ = c.link.SetReadDeadline(time.Now().Add(silence.Wait()))
	}
	return nil
}

// ReadAll reads n bytes of the payload, for those that are few.
func (c *Conn) ReadAll(n int) ([]byte, error) {
	b := make([]byte, n)
	return b, c.Read(b)
}

func (c *Conn) readError(err error) error {
	if errors.Is(err, transport.ErrTimeout) {
		return fmt.Errorf("the %s %w for %v: %w", c.peer, ErrSilent, c.silence, err)
	}
	return err
}

// Write writes whole frames, one after the other. The slice of frames is used up.
func (c *Conn) Write(frames net.Buffers) error {
	return c.link.WriteEncoded(frames, c.silence)
}

// WriteFrame writes one frame.
func (c *Conn) WriteFrame(t wire.Type, payload []byte) error {
	return c.link.WriteFrame(wire.Header{Type: t}, payload, c.silence)
}
