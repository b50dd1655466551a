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

// smallFrame is the maximum of a frame copied into one buffer, cheaper than a gathering write.
const smallFrame = 4 << 10

// lendFrom is the minimum payload for zero-copy sends to be worthwhile.
const lendFrom = 32 << 10

// writer is a stream's sending side, for any number of goroutines; lock holds a writer's token.
type writer struct {
	stream *stream
	lock   chan struct{}
	timers sync.Pool        // timers of goroutines waiting for lock
	small  [smallFrame]byte // header, and a small payload after it
	parts  [3][]byte
	vec    [][]byte // unwritten rest of parts
	broken error    // reason why writes fail
	sent   atomic.Int64
}

func (w *writer) init(s *stream, sent int64) {
	w.stream, w.lock = s, make(chan struct{}, 1)
	w.sent.Store(sent)
}

// send writes one frame. send returns when the operating system has the bytes or, for a zero-copy
// payload, references the payload. The timeout starts at the first wait. A partly written frame
// makes the stream unusable for writing.
func (w *writer) send(h wire.Header, payload []byte, timeout time.Duration, lent bool) error {
	if err := w.acquire(timeout); err != nil {
		return err
	}
	err := w.write(h, payload, timeout, lent)
	<-w.lock
	return err
}

// finish writes the last frame and closes the writing side: the peer gets EOF. Later writes fail.
func (w *writer) finish(h wire.Header, payload []byte, timeout time.Duration, cause error) error {
	if err := w.acquire(timeout); err != nil {
		return err
	}
	defer func() { <-w.lock }()
	err := w.write(h, payload, timeout, false)
	w.halfClose(cause)
	return err
}

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

// write needs the writer's lock.
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
		w.stream.sock.takeBack() // otherwise the next frame would begin with bytes of this frame
	}
	if errors.Is(err, errDeadline) {
		err = fmt.Errorf("%w after %v with %d of %d bytes written; the other end does not read", transport.ErrTimeout, timeout, total-left, total)
		if left == total {
			return err // no byte was written
		}
	} else if err == errClosed {
		err = transport.ErrClosed
	}
	w.broken = err
	return err
}

// gather collects a frame in vec and returns the frame's length. The header is already in small.
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

// flush writes left bytes of vec, and returns the number not written. Only waits read the clock.
func (w *writer) flush(left int, timeout time.Duration, lent bool) (int, error) {
	var patience liveness.Deadline
	var deadline, idle time.Time // deadline of a part of the timeout
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
			hurried := now.Before(deadline) // earlier than the deadline: the mesh ends
			if hurried || !errors.Is(err, errDeadline) || patience.Spent(now) {
				return left, err
			}
			deadline = now.Add(patience.Wait())
		}
	}
}

// put writes from vec without waiting, with or without a copy.
func (w *writer) put(lent bool) (int, error) {
	if lent {
		return w.stream.sock.writeZeroCopy(w.vec)
	}
	return w.stream.sock.write(w.vec)
}

func (w *writer) advance(n int) {
	for n >= len(w.vec[0]) {
		n -= len(w.vec[0])
		w.vec = w.vec[1:]
	}
	w.vec[0] = w.vec[0][n:]
}

// awaitRoom waits until the connection may accept more bytes. The peer may be waiting for space
// too, so awaitRoom also reads the peer's data. No data has moved in either direction since idle. A
// peer that sends without reading delays the caller at most until the deadline or the mesh's end.
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
