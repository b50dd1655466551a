package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// smallFrame is the largest frame that is copied into one piece: cheaper than to
// have the system gather it.
const smallFrame = 4 << 10

// lendFrom is from when on lending a payload may cost less than copying it.
const lendFrom = 32 << 10

// writer is the sending side of a stream. Any number of goroutines send; lock
// holds a token while one of them writes.
type writer struct {
	stream *stream
	lock   chan struct{}
	timers sync.Pool        // of those who wait for lock
	small  [smallFrame]byte // the header, and a small payload behind it
	parts  [3][]byte
	vec    [][]byte // what is left of parts
	broken error    // why nothing can be written any more
	sent   atomic.Int64
}

func (w *writer) init(s *stream, sent int64) {
	w.stream, w.lock = s, make(chan struct{}, 1)
	w.sent.Store(sent)
}

// send writes one frame and returns when the operating system has it, or, if the
// payload is lent, knows where it lies. The timeout counts from when it first has
// to wait. A frame that could only be written in part leaves the stream unusable
// for writing.
func (w *writer) send(h wire.Header, payload []byte, timeout time.Duration, lent bool) error {
	if err := w.acquire(timeout); err != nil {
		return err
	}
	err := w.write(h, payload, timeout, lent)
	<-w.lock
	return err
}

// finish writes the last frame and closes the writing side, so that the other
// end reads EOF after it. Later writes fail with cause.
func (w *writer) finish(h wire.Header, payload []byte, timeout time.Duration, cause error) error {
	if err := w.acquire(timeout); err != nil {
		return err
	}
	defer func() { <-w.lock }()
	err := w.write(h, payload, timeout, false)
	w.halfClose(cause)
	return err
}

// closeWrite closes the writing side without a last frame.
func (w *writer) closeWrite(timeout time.Duration, cause error) {
	if w.acquire(timeout) == nil {
		w.halfClose(cause)
		<-w.lock
	}
}

func (w *writer) halfClose(cause error) {
	if w.broken == nil {
		w.broken = cause
	}
	w.stream.sock.closeWrite()
}

func (w *writer) acquire(timeout time.Duration) error {
	select {
	case w.lock <- struct{}{}:
		return nil
	default:
	}
	patience := liveness.NewPatience(timeout, time.Now())
	t, _ := w.timers.Get().(*time.Timer)
	if t == nil {
		t = time.NewTimer(patience.Wait())
	} else {
		t.Reset(patience.Wait())
	}
	defer func() { t.Stop(); w.timers.Put(t) }()
	for {
		select {
		case w.lock <- struct{}{}:
			return nil
		case <-t.C:
		}
		if patience.Spent(time.Now()) {
			return fmt.Errorf("%w after %v, waiting for another frame to be written", transport.ErrTimeout, timeout)
		}
		t.Reset(patience.Wait())
	}
}

// write needs the lock.
func (w *writer) write(h wire.Header, payload []byte, timeout time.Duration, lent bool) error {
	if w.broken != nil {
		return w.broken
	}
	h.Length = len(payload)
	if err := wire.PutHeader((*[wire.HeaderSize]byte)(w.small[:]), h); err != nil {
		return err
	}
	total := w.gather(h, payload)
	left, err := w.flush(total, timeout, lent)
	w.parts = [3][]byte{}
	w.sent.Add(int64(total - left))
	if err == nil {
		return nil
	}
	if lent {
		w.stream.sock.takeBack() // or the next frame would begin with this one's bytes
	}
	if errors.Is(err, errDeadline) {
		err = fmt.Errorf("%w after %v with %d of %d bytes written; the other end does not read", transport.ErrTimeout, timeout, total-left, total)
		if left == total {
			return err // nothing is out: the stream is as it was
		}
	} else if err == errClosed {
		err = transport.ErrClosed
	}
	w.broken = err
	return err
}

// gather puts what makes up a frame into vec and returns its length. The header
// is in small already.
func (w *writer) gather(h wire.Header, payload []byte) int {
	head, sum := wire.HeaderSize, 0
	if h.Type == wire.Summed {
		sum = wire.SumSize
	}
	total := head + len(payload) + sum
	if total <= smallFrame {
		copy(w.small[head:], payload)
		head += len(payload)
	}
	if sum > 0 {
		binary.LittleEndian.PutUint32(w.small[head:], wire.Sum(0, payload))
	}
	if total <= smallFrame {
		w.parts[0] = w.small[:total]
		w.vec = w.parts[:1]
	} else {
		w.parts = [3][]byte{w.small[:head], payload, w.small[head : head+sum]}
		w.vec = w.parts[:2+sum/wire.SumSize]
	}
	return total
}

// flush writes what is in vec, left bytes, and returns how many it could not. No
// clock is read unless it has to wait.
func (w *writer) flush(left int, timeout time.Duration, lent bool) (int, error) {
	var patience liveness.Deadline
	var deadline, idle time.Time // deadline: of a part of the timeout
	for {
		n, err := w.put(lent)
		left -= n
		switch {
		case left == 0:
			return 0, nil
		case err == nil:
			w.advance(n)
			idle = time.Time{}
			continue
		case err != errAgain:
			return left, err
		}
		if deadline.IsZero() {
			now := time.Now()
			patience = liveness.NewPatience(timeout, now)
			deadline = now.Add(patience.Wait())
		}
		if err := w.stream.awaitRoom(deadline, &idle); err != nil {
			now := time.Now()
			hurried := now.Before(deadline) // the mesh ends
			if hurried || !errors.Is(err, errDeadline) || patience.Spent(now) {
				return left, err
			}
			deadline = now.Add(patience.Wait())
		}
	}
}

// put writes or lends what is in vec as far as there is room.
func (w *writer) put(lent bool) (int, error) {
	if lent {
		return w.stream.sock.writeZeroCopy(w.vec)
	}
	return w.stream.sock.write(w.vec)
}

// advance takes n written bytes from vec.
func (w *writer) advance(n int) {
	for n >= len(w.vec[0]) {
		n -= len(w.vec[0])
		w.vec = w.vec[1:]
	}
	w.vec[0] = w.vec[0][n:]
}

// awaitRoom returns when the connection may take more. The peer may be waiting
// for room too, so what it sends is read meanwhile. Since idle nothing has moved
// in either direction. A peer that sends without reading keeps nobody here beyond
// the deadline, nor once the mesh has ended.
func (s *stream) awaitRoom(deadline time.Time, idle *time.Time) error {
	before := s.received.Load()
	if s.take() {
		s.poll(nil)
		s.release()
	}
	now := time.Now()
	if s.received.Load() != before || idle.IsZero() {
		*idle = now
	}
	spins := now.Sub(*idle) < longSpin && !s.peer.mesh.manners.crowded
	if spins && now.Before(deadline) && s.peer.mesh.down.Load() == nil && !gaveWay(now) {
		return nil
	}
	*idle = time.Time{}
	s.peer.Park()
	defer s.peer.Unpark()
	return s.sock.awaitWrite(deadline)
}
