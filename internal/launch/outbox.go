package launch

import (
	"io"
	"sync"
	"time"
)

// outbox writes frames of several goroutines, in a goroutine of its own: a write that hangs, because the other end is gone and all
// buffers are full, holds up nobody once the connection is cut.
type outbox struct {
	w      io.Writer
	queue  chan frame
	closed chan struct{} // it is cut, for why
	done   chan struct{} // nothing is written any more
	once   sync.Once
	cause  error
}

// frameLast is behind the last frame, and is not written.
const frameLast frameKind = 0

// queuedOut is how many frames may wait. Who sends more waits, as a process does whose output nobody reads.
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

// send queues a frame, whose body belongs to the outbox from now on. It waits for room until the connection is cut, and returns why
// that is then.
func (o *outbox) send(f frame) error {
	select {
	case <-o.closed:
		return o.cause
	case o.queue <- f:
		return nil
	}
}

// cut ends all sending, now and later.
func (o *outbox) cut(why error) {
	o.once.Do(func() {
		o.cause = why
		close(o.closed)
	})
}

// close waits a moment until what is queued is written.
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
