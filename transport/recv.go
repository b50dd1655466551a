package transport

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// Recv is a posted receive: a request for a message, with memory for it. The caller owns the Recv
// and may post it again after Wait has returned; from the second use Post and Wait allocate no
// memory. The zero value is ready for use. Do not copy a Recv after the first use.
type Recv struct {
	in    *Inbox // inbox of the posted receive; nil if unused
	tag   Tag
	dst   []byte
	next  *Recv // next in the inbox's chain
	state recvState
	err   error
	ready atomic.Uint32 // pending, parked or completed
	done  chan struct{} // one token for a parked owner
	timer *time.Timer
}

// Values of Recv.ready. A channel wakes a goroutine that sleeps in Wait; a goroutine that polls
// reads the value, at a much lower cost.
const (
	pending   uint32 = iota
	parked           // the owner waits for a token
	completed        // owned by the caller again
)

// recvState is guarded by the inbox's mutex.
type recvState uint8

const (
	recvIdle      recvState = iota // unknown to all inboxes: complete, or never posted
	recvPosted                     // linked in the inbox's chain; no goroutine writes to dst
	recvFilling                    // out of the chain; one goroutine writes to dst
	recvWithdrawn                  // still being filled, while the owner has requested dst back
)

var errWithdrawn = errors.New("withdrawn")

// Wait blocks until the message is written to dst, an error occurs, or timeout passes. With a
// timeout <= 0 Wait returns immediately.
//
// After Wait the mesh never accesses dst. After a timeout the receive is cancelled; if its message
// arrives later, the next receive with the tag gets it.
func (r *Recv) Wait(timeout time.Duration) error {
	if r.in == nil {
		return errors.New("transport: Wait on a receive that was not posted")
	}
	if r.Done() {
		return r.finish()
	}
	d := r.in.driver
	if d != nil {
		if d.Poll(r, timeout); r.Done() {
			return r.finish()
		}
	}
	if timeout <= 0 {
		return r.expire(timeout)
	}
	if d != nil {
		d.Park()
		defer d.Unpark()
	}
	if r.park(timeout) {
		return r.finish()
	}
	return r.expire(timeout)
}

// Done reports whether Wait would return immediately.
func (r *Recv) Done() bool { return r.ready.Load() == completed }

// Tag returns the tag of the posted receive.
func (r *Recv) Tag() Tag { return r.tag }

// Len returns the length of the message in bytes.
func (r *Recv) Len() int { return len(r.dst) }

// park reports whether the receive completed within timeout, not counting pauses of this process.
func (r *Recv) park(timeout time.Duration) bool {
	if !r.ready.CompareAndSwap(pending, parked) {
		return true
	}
	patience := liveness.NewPatience(timeout, time.Now())
	if r.timer == nil {
		r.timer = time.NewTimer(patience.Wait())
	} else {
		r.timer.Reset(patience.Wait())
	}
	for {
		select {
		case <-r.done:
			r.timer.Stop()
			return true
		case <-r.timer.C:
			if patience.Spent(time.Now()) {
				return false
			}
			r.timer.Reset(patience.Wait())
		}
	}
}

// expire cancels the receive after a timeout. If the message has arrived in the meantime, it counts
// as received.
func (r *Recv) expire(timeout time.Duration) error {
	in, tag := r.in, r.tag
	if in.withdraw(r) {
		r.release()
		return in.timeout(tag, timeout)
	}
	if timeout > 0 || r.ready.CompareAndSwap(pending, parked) {
		<-r.done // soon: the writer into dst was interrupted
	}
	if err := r.finish(); err != errWithdrawn {
		return err
	}
	return in.timeout(tag, timeout)
}

func (r *Recv) finish() error {
	err := r.err
	r.release()
	return err
}

func (r *Recv) release() { r.in, r.dst, r.err, r.next, r.state = nil, nil, nil, nil, recvIdle }

// arm prepares r for posting. Posting a receive in use is a programming error: arm panics.
func (r *Recv) arm(in *Inbox, tag Tag, dst []byte) {
	if r.in != nil {
		panic(fmt.Sprintf("transport: receive %v posted again before Wait returned", r.tag))
	}
	if r.done == nil {
		r.done = make(chan struct{}, 1)
	}
	r.in, r.tag, r.dst, r.err = in, tag, dst, nil
	r.ready.Store(pending)
}

// complete marks r, which is no longer in the inbox, as finished, so that its owner continues. The
// caller must not use r afterwards.
func (r *Recv) complete(err error) {
	r.err = err
	if r.ready.Swap(completed) == parked {
		r.done <- struct{}{}
	}
}
