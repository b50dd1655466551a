package service

import (
	"net"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/server/message"
)

// reply is an answer with reusable memory.
type reply struct {
	buf    message.Buffer
	frame  []byte
	values []float32 // values before encoding
}

func (r *reply) fail(h message.Head, cause error) {
	text := message.CutText(cause.Error())
	h.Count = len(text)
	r.frame = r.buf.Sized(message.Front + len(text))
	copy(r.frame[message.Front:], text)
	if err := message.PutFront(r.frame, message.TypeFailed, h); err != nil {
		panic(err) // text of 1 GiB
	}
}

type outbox struct {
	free *pool[reply]
	wake chan struct{} // holds a token if there may be output

	mu      sync.Mutex
	first   [][]byte // frames of greetings and gathers, or pieces of them
	queue   []*reply
	safe    uint64 // changes up to safe are durable
	acked   uint64 // acknowledged part of safe
	last    []byte // final frame, once closed
	closed  bool   // no more output will come
	stopped bool   // the writer has ended
}

func (o *outbox) init(replies int) {
	o.free, o.wake = newStock(replies, func(r *reply) int { return r.buf.Room() }), make(chan struct{}, 1)
}

func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) put(r *reply) {
	o.mu.Lock()
	stopped := o.stopped
	if !stopped {
		o.queue = append(o.queue, r)
	}
	o.mu.Unlock()
	if stopped {
		o.free.give(r)
		return
	}
	o.poke()
}

// send queues a frame of the greeting or of a gather, perhaps in pieces.
func (o *outbox) send(frame ...[]byte) {
	o.mu.Lock()
	o.first = append(o.first, frame...)
	o.mu.Unlock()
	o.poke()
}

// ack queues the acknowledgement of all changes up to a number.
func (o *outbox) ack(seq uint64) {
	o.mu.Lock()
	o.safe = max(o.safe, seq)
	o.mu.Unlock()
	o.poke()
}

// close ends the writer after all queued output and the frame last.
func (o *outbox) close(last []byte) {
	o.mu.Lock()
	o.last, o.closed = last, true
	o.mu.Unlock()
	o.poke()
}

// load moves queued output to frames and its replies to batch, and reports whether o is closed.
func (o *outbox) load(frames [][]byte, batch []*reply, ack []byte) ([][]byte, []*reply, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	frames = append(frames, o.first...)
	o.first = nil
	for _, r := range o.queue {
		frames = append(frames, r.frame)
	}
	batch = append(batch, o.queue...)
	o.queue = o.queue[:0]
	if o.safe > o.acked {
		o.acked = o.safe
		if err := message.PutFront(ack, message.TypeAck, message.Head{Number: o.safe}); err != nil {
			panic(err) // frame of fixed size
		}
		frames = append(frames, ack)
	}
	if o.closed && o.last != nil {
		frames = append(frames, o.last)
	}
	return frames, batch, o.closed
}

// stop discards the queue when the writer ends.
func (o *outbox) stop() {
	o.mu.Lock()
	o.stopped = true
	queue := o.queue
	o.queue = nil
	o.mu.Unlock()
	for _, r := range queue {
		o.free.give(r)
	}
}

// write writes the outbox until it is closed, and heartbeats when idle.
func (c *conn) write() {
	o, tick := &c.out, time.NewTicker(c.s.cfg.Times.Heartbeat)
	defer tick.Stop()
	defer o.stop()
	beat, ack := frameOf(message.TypeHeartbeat, nil), make([]byte, message.Front)
	var room [][]byte
	var batch []*reply
	for {
		frames, replies, last := o.load(room[:0], batch[:0], ack)
		room, batch = frames, replies
		if len(frames) == 0 {
			if last {
				return
			}
			select {
			case <-o.wake:
				continue
			case <-tick.C:
				frames = append(frames, beat)
				room = frames
			}
		}
		err := c.io.Write(net.Buffers(frames))
		for _, r := range replies {
			o.free.give(r)
		}
		if err != nil {
			c.link.Close() // ends the reader
			return
		}
		if last {
			return
		}
	}
}

// newest is a session's last applied change.
type newest struct {
	seq    uint64 // number; 0 for none
	ticket LSN
	sure   bool // durable, without a ticket
}

type acks struct {
	wake chan struct{}
	mu   sync.Mutex
	newest
}

// begin requests an acknowledgement of the session's last change, because an earlier connection may
// have ended before the acknowledgement. A change without a ticket was recovered by the engine, and
// is therefore durable.
func (a *acks) begin(last uint64) {
	if a.seq != last {
		a.newest = newest{seq: last, sure: true}
	}
	a.wake <- struct{}{}
}

// note records an applied change. Repeated changes have no effect.
func (a *acks) note(seq uint64, t LSN) {
	a.mu.Lock()
	if seq > a.seq {
		a.newest = newest{seq: seq, ticket: t}
	}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// acknowledge waits until changes are durable and acknowledges them, until wake is closed.
func (c *conn) acknowledge() {
	a, told := &c.safe, uint64(0)
	for range a.wake {
		a.mu.Lock()
		n := a.newest
		a.mu.Unlock()
		if n.seq == told {
			continue
		}
		if !n.sure {
			if err := c.engine.Durable(n.ticket); err != nil {
				c.mu.Lock()
				c.failure = c.failed(err)
				c.mu.Unlock()
				c.end()
				return
			}
		}
		told = n.seq
		c.out.ack(told)
	}
}
