package launch

import (
	"io"
	"sync"
	"time"
)

// outbox writes the frames of several goroutines from one goroutine. A write can hang when the peer
// is gone and all buffers are full; cutting the connection releases all senders.
type outbox struct {
	w      io.Writer
	queue  chan frame
	closed chan struct{} // closed by cut, with the cause
	done   chan struct{} // closed when writing has ended
	once   sync.Once
	cause  error
}

// frameLast follows the last frame, and is not written.
const frameLast frameKind = 0

// queuedOut limits the queued frames. Further senders block, like a process with unread output.
const queuedOut = 64

func newOutbox(w io.Writer) *outbox {
	o := &outbox{w: w, queue: make(chan frame, queuedOut), closed: make(chan struct{}), done: make(chan struct{})}
	go o.write()
	return o
}

func (o *outbox) write() {
	defer close(o.done)
	for {
		select {
		case <-o.closed:
			return
		case f := <-o.queue:
			if f.kind == frameLast {
				return
			}
			if err := writeFrame(o.w, f); err != nil {
				o.cut(err)
				return
			}
		}
	}
}

// send queues a frame and takes ownership of its body. send blocks while the queue is full, until
// the connection is cut, and then returns the cause.
func (o *outbox) send(f frame) error {
	select {
	case <-o.closed:
		return o.cause
	case o.queue <- f:
		return nil
	}
}

func (o *outbox) cut(why error) {
	o.once.Do(func() {
		o.cause = why
		close(o.closed)
	})
}

// close waits up to drainTime until all queued frames are written.
func (o *outbox) close() {
	late := time.AfterFunc(drainTime, func() { o.cut(io.ErrClosedPipe) })
	defer late.Stop()
	if o.send(frame{kind: frameLast}) == nil {
		select {
		case <-o.done:
		case <-o.closed:
		}
	}
}
