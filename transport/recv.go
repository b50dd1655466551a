package transport

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// Recv is one posted receive. The caller owns it, may keep it and post it again
// once Wait has returned; after its first use neither Post nor Wait allocates.
// The zero value is ready. It must not be copied after its first use.
type Recv struct {
	in    *Inbox // where it is posted, nil when it is not in use
	tag   Tag
	dst   []byte
	next  *Recv // in the inbox's chain
	state recvState
	err   error
	ready atomic.Uint32 // pending, parked or completed
	done  chan struct{} // one token for an owner who has parked
	timer *time.Timer
}

// Values of Recv.ready. Only an owner who has parked is woken through a
// channel: the one who still polls sees the value, which costs much less.
const (
	pending   uint32 = iota
	parked           // the owner waits for a token
	completed        // the receive is its owner's again
)

// recvState is guarded by the inbox's mutex.
type recvState uint8

const (
	recvIdle      recvState = iota // not known to any inbox: complete, or never posted
	recvPosted                     // in the inbox's chain; nobody writes to dst
	recvFilling                    // out of the chain; one goroutine writes to dst
	recvWithdrawn                  // still being filled, but its owner wants dst back
)

var errWithdrawn = errors.New("withdrawn")

// Wait blocks until the message has been written to the posted dst, until a
// fault, or until timeout has passed. A timeout of zero or less only asks.
//
// After Wait the mesh no longer touches dst, whatever the outcome. A receive
// that timed out is withdrawn; its message, should it still come, is kept for
// the next receive that is posted under the tag.
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

// Done reports whether Wait would return at once.
func (r *Recv) Done() bool { return r.ready.Load() == completed }

// Tag is the tag of the message that r was posted for.
func (r *Recv) Tag() Tag { return r.tag }

// Len is the length of that message in bytes.
func (r *Recv) Len() int { return len(r.dst) }

// park reports whether the receive completed within the timeout, of which time in which
// this process was suspended does not count.
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

// expire takes dst back from the mesh. A message that has come in the meantime
// counts.
func (r *Recv) expire(timeout time.Duration) error {
	in, tag := r.in, r.tag
	if in.withdraw(r) {
		r.release()
		return in.timeout(tag, timeout)
	}
	if timeout > 0 || r.ready.CompareAndSwap(pending, parked) {
		<-r.done // soon: whoever fills dst has been told to let go
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

// arm readies r for a posting. A receive that is still in use is a fault of the
// caller that no error could be delivered to.
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

// complete hands r back to its owner. The caller must have taken r out of the
// inbox; it must not touch r afterwards.
func (r *Recv) complete(err error) {
	r.err = err
	if r.ready.Swap(completed) == parked {
		r.done <- struct{}{}
	}
}
