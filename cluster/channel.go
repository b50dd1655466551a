package cluster

import (
	"net"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/wire"
)

// channel carries control messages between a member and the coordinator. Any
// number of goroutines may send; one receives.
type channel interface {
	send(m message, timeout time.Duration) error
	receive(timeout time.Duration) (message, error) // timeout 0: until closed
	finish()                                        // nothing more will be sent
	close() error
	local() net.Addr
	traffic() (sent, received int64)
}

// frameControl is the type of the frames of a control connection.
const frameControl = wire.FirstFree

// linkChannel is a channel over an authenticated link.
type linkChannel struct {
	link      *transport.Link
	worldSize int
}

func newLinkChannel(l *transport.Link, worldSize int) *linkChannel {
	return &linkChannel{link: l, worldSize: worldSize}
}

func (c *linkChannel) send(m message, timeout time.Duration) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	return c.link.WriteFrame(wire.Header{Type: frameControl}, b, timeout)
}

func (c *linkChannel) receive(timeout time.Duration) (message, error) {
	if timeout > 0 {
		_ = c.link.SetReadDeadline(time.Now().Add(timeout)) // fails only on a closed link
		defer func() { _ = c.link.SetReadDeadline(time.Time{}) }()
	}
	h, err := c.link.ReadHeader()
	if err != nil {
		return message{}, err
	}
	if h.Type != frameControl || h.Length > maxMessage {
		return message{}, frameError(h)
	}
	b := make([]byte, h.Length)
	if _, err := c.link.ReadPayload(b); err != nil {
		return message{}, err
	}
	return decode(b, c.worldSize)
}

func (c *linkChannel) finish() { _ = c.link.CloseWrite(answerTimeout, transport.ErrClosed) }

func (c *linkChannel) close() error { return c.link.Close() }

func (c *linkChannel) local() net.Addr { return c.link.LocalAddr() }

func (c *linkChannel) traffic() (sent, received int64) { return c.link.Sent(), c.link.Received() }

// connection is the coordinator's end of one rank's channel. Messages are
// posted to a queue and written by a goroutine of its own, so that a rank that
// does not read holds up nobody.
type connection struct {
	ch      channel
	queue   chan message
	done    chan struct{}
	written chan struct{} // closed when write has returned
	once    sync.Once
}

func newConnection(ch channel) *connection {
	return &connection{ch: ch, queue: make(chan message, 32), done: make(chan struct{}), written: make(chan struct{})}
}

// post queues m. When the queue is full the rank has not read for half a
// minute: it then goes without a heartbeat, or, for anything else, loses its
// connection.
func (c *connection) post(m message) {
	select {
	case c.queue <- m:
	default:
		if m.Kind != kindBeat {
			_ = c.ch.close()
		}
	}
}

// finish has write flush the queue and end, and then read no longer than
// answerTimeout for the other end to close.
func (c *connection) finish() { c.once.Do(func() { close(c.done) }) }

// write sends what is posted until finish.
func (c *connection) write() {
	defer close(c.written)
	for {
		select {
		case m := <-c.queue:
			if c.ch.send(m, answerTimeout) != nil {
				_ = c.ch.close() // the reader sees it, too
				return
			}
		case <-c.done:
			c.flush()
			return
		}
	}
}

func (c *connection) flush() {
	for {
		select {
		case m := <-c.queue:
			if c.ch.send(m, answerTimeout) != nil {
				return
			}
		default:
			c.ch.finish()
			return
		}
	}
}
