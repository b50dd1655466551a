package cluster

import (
	"bytes"
	"net"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// channel carries control messages to or from the coordinator: many senders, a single receiver.
type channel interface {
	send(m message, timeout time.Duration) error
	receive(timeout time.Duration) (message, error) // timeout 0: until closed
	finish()                                        // ends sending
	close() error
	within() bool // whether both ends are on this host
	traffic() (sent, received int64)
}

// frameControl is the type of the frames of a control connection.
const frameControl = wire.FirstFree

// linkChannel is a channel over an authenticated link. It keeps the last message of each direction:
// most heartbeats repeat the one before, and are then neither encoded nor decoded.
type linkChannel struct {
	link      *transport.Link
	worldSize int

	mu    sync.Mutex
	sent  message // last sent message without lists
	frame []byte  // encoded sent; never written again

	in           []byte // last short received frame, in reused memory
	next         []byte
	lastReceived message // decoded in
}

// keptFrame is the maximum size of a kept frame, in bytes.
const keptFrame = 4 << 10

func newLinkChannel(l *transport.Link, worldSize int) *linkChannel {
	return &linkChannel{link: l, worldSize: worldSize}
}

func (c *linkChannel) send(m message, timeout time.Duration) error {
	b, err := c.encoded(m)
	if err != nil {
		return err
	}
	return c.link.WriteFrame(wire.Header{Type: frameControl}, b, timeout)
}

// encoded returns encode(m), without encoding again if m equals the last message.
func (c *linkChannel) encoded(m message) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frame != nil && m.same(&c.sent) {
		return c.frame, nil
	}
	b, err := encode(m)
	if err == nil && len(b) <= keptFrame && m.same(&m) {
		c.sent, c.frame = m, b
	}
	return b, err
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
	b := c.next
	if cap(b) < h.Length {
		if b = make([]byte, h.Length); h.Length <= keptFrame {
			c.next = b
		}
	}
	b = b[:h.Length]
	if _, err := c.link.ReadPayload(b); err != nil {
		return message{}, err
	}
	if len(b) == 0 || !bytes.Equal(b, c.in) {
		m, err := decode(b, c.worldSize)
		if err != nil || len(b) > keptFrame {
			return m, err
		}
		c.in, c.next, c.lastReceived = b, c.in, m
	}
	return c.lastReceived, nil
}

func (c *linkChannel) finish() { _ = c.link.CloseWrite(answerTimeout, transport.ErrClosed) }

func (c *linkChannel) close() error { return c.link.Close() }

func (c *linkChannel) within() bool {
	own, _, err := net.SplitHostPort(c.link.LocalAddr().String())
	other, _, bad := net.SplitHostPort(c.link.RemoteAddr().String())
	return err == nil && bad == nil && own == other
}

func (c *linkChannel) traffic() (sent, received int64) { return c.link.Sent(), c.link.Received() }

// connection is the coordinator's end of a rank's channel. A goroutine writes queued messages, so a
// rank that does not read delays no other rank.
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

// post queues m. If the queue is full, the rank has not read for half a minute: post then drops a
// heartbeat, and closes the connection for any other message.
func (c *connection) post(m message) {
	select {
	case c.queue <- m:
	default:
		if m.Kind != kindHeartbeat {
			_ = c.ch.close()
		}
	}
}

// finish makes write flush the queue and end. Reads continue for at most answerTimeout.
func (c *connection) finish() { c.once.Do(func() { close(c.done) }) }

func (c *connection) write() {
	defer close(c.written)
	for {
		select {
		case m := <-c.queue:
			if c.ch.send(m, answerTimeout) != nil {
				_ = c.ch.close() // the reader gets an error too
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
