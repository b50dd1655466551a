// Package frames reads and writes frames of package wire between two processes that must not be
// silent for long, for connections of parameter servers and heter-trainers.
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
// A slow end is not dead: a read or write fails only after a silence without a single byte. A read
// counts silence only while this process runs.
type Conn struct {
	link    *transport.Link
	peer    string
	silence time.Duration

	interrupted atomic.Bool
}

// New returns a link's end; other is the other end's name in errors, such as "server".
func New(link *transport.Link, other string, silence time.Duration) *Conn {
	return &Conn{link: link, peer: other, silence: silence}
}

// SetSilence changes the limit of silence from the next read or write on, for use at a connection's
// start, by the only goroutine.
func (c *Conn) SetSilence(d time.Duration) { c.silence = d }

// Link is the connection's link.
func (c *Conn) Link() *transport.Link { return c.link }

// ErrInterrupted: Interrupt was called.
var ErrInterrupted = errors.New("interrupted")

// Interrupt makes Header return ErrInterrupted from now on, but lets a started message finish.
func (c *Conn) Interrupt() {
	c.interrupted.Store(true)
	_ = c.link.SetReadDeadline(time.Unix(1, 0)) // a closed link's reader knows
}

// ErrSilent: no sign of life from the other end within the limit.
var ErrSilent = errors.New("was silent")

// Header reads the next frame's header. Header returns io.EOF if the other end has closed between
// two frames.
func (c *Conn) Header() (wire.Header, error) {
	for silence := (liveness.Detector{Limit: c.silence}); ; {
		_ = c.link.SetReadDeadline(time.Now().Add(silence.Wait())) // fails only if the read will, too
		if c.interrupted.Load() {                                  // before or after the deadline is set: seen here or by the read
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

// ReadAll reads n bytes of the payload, for small n.
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

// Write writes whole frames in order, and consumes the slice.
func (c *Conn) Write(frames net.Buffers) error {
	return c.link.WriteEncoded(frames, c.silence)
}

// WriteFrame writes a frame, with the connection's time limit.
func (c *Conn) WriteFrame(t wire.Type, payload []byte) error {
	return c.link.WriteFrame(wire.Header{Type: t}, payload, c.silence)
}
