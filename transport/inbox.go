package transport

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// Inbox matches the messages of one peer with the receives posted for them. It
// is the part that meshes have in common; those who only use a mesh never see
// it.
//
// invariant[posted-receives]: a message whose receive is posted is written straight
// to its dst. One that comes first is kept in a pooled buffer, up to Limit bytes for
// the peer: beyond that whoever brings messages waits until a receive frees space.
//
// Receives and messages hang in short hash chains through themselves, so that
// matching neither allocates nor, with a few dozen in flight, searches.
type Inbox struct {
	rank, from int
	limit      int64
	pool       *BufferPool
	driver     Driver

	mu      sync.Mutex
	room    sync.Cond // space was freed, a receive was posted, or the inbox failed
	waiting int       // how many wait on room
	posted  [chains]recvChain
	arrived [chains]messageChain
	held    int64 // bytes of pooled buffers in use
	err     error // why nothing more will come, or nil
	shut    bool  // and what has come is not handed out either
}

// Driver brings an inbox its messages, and lets those who wait for them help.
// Its methods are called from any goroutine.
type Driver interface {
	// Poll may bring messages on the goroutine of a receive's owner until r is
	// Done, for as long as that is cheaper than parking and not beyond timeout.
	// With a timeout of zero or less it brings what is there.
	Poll(r *Recv, timeout time.Duration)
	// Park is called before an owner parks: from then on messages must come
	// without its help. Unpark is called when it goes on.
	Park()
	Unpark()
	// Interrupt makes whoever writes into a dst call Divert soon.
	Interrupt()
}

// InboxConfig says whose inbox it is. Zero values: no limit, a pool of its own,
// messages that come by themselves.
type InboxConfig struct {
	// Rank is whose inbox it is, and From the peer whose messages it takes.
	Rank, From int
	// Limit bounds the bytes kept for receives not yet posted.
	Limit int64
	// Pool is where the buffers come from; one serves all inboxes of a mesh.
	Pool *BufferPool
	// Driver brings the messages. Nil: nobody needs to be asked.
	Driver Driver
}

// NewInbox returns an empty inbox.
func NewInbox(cfg InboxConfig) *Inbox {
	in := &Inbox{rank: cfg.Rank, from: cfg.From, limit: cfg.Limit, pool: cfg.Pool, driver: cfg.Driver}
	if in.limit <= 0 {
		in.limit = 1<<63 - 1
	}
	if in.pool == nil {
		in.pool = new(BufferPool)
	}
	in.room.L = &in.mu
	return in
}

// Post asks for the message under tag. If it is already here it is copied by
// this call.
func (in *Inbox) Post(r *Recv, tag Tag, dst []byte) {
	r.arm(in, tag, dst)
	in.mu.Lock()
	m, err := in.match(r)
	in.mu.Unlock()
	if m != nil {
		copy(dst, m.bytes())
		in.pool.put(m)
	}
	if m != nil || err != nil {
		r.complete(err)
	}
}

// match finds the message for r, or the reason why there is none, or else links
// r. in.mu is held.
func (in *Inbox) match(r *Recv) (*message, error) {
	if in.shut {
		return nil, in.fault(r.tag, in.err)
	}
	if m := in.findArrived(r.tag); m != nil {
		if m.tag.Sig != r.tag.Sig {
			return nil, in.mismatch(r.tag, m.tag)
		}
		if m.n != len(r.dst) {
			return nil, in.lengthFault(r.tag, m.n, len(r.dst))
		}
		in.unlinkArrived(m)
		in.free(m.n)
		return m, nil
	}
	if in.err != nil {
		return nil, in.fault(r.tag, in.err)
	}
	if in.findPosted(r.tag) != nil {
		return nil, in.fault(r.tag, fmt.Errorf("a receive is already posted under this tag"))
	}
	in.linkPosted(r)
	if in.waiting > 0 {
		in.room.Broadcast()
	}
	return nil, nil
}

// Arrival is a message on its way in: where its bytes go.
type Arrival struct {
	tag  Tag
	recv *Recv    // straight to its owner, or
	msg  *message // into a pooled buffer
}

// Bytes is where the message's payload is to be written, of the length given to
// Begin.
func (a *Arrival) Bytes() []byte {
	if a.recv != nil {
		return a.recv.dst
	}
	return a.msg.bytes()
}

// Begin announces a message of n bytes. It waits while the message is neither
// asked for nor fits under the limit, but not beyond timeout unless that is
// negative. A receive of another length or of another operation under the same
// number fails, and the message is kept.
// Every Begin without an error needs an End.
func (in *Inbox) Begin(tag Tag, n int, timeout time.Duration) (Arrival, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := in.takePosted(tag)
	if r == nil && in.full(n) {
		var err error
		if r, err = in.waitRoom(tag, n, timeout); err != nil {
			return Arrival{}, err
		}
	}
	return in.begin(tag, n, r)
}

// TryBegin is Begin for who must not wait: ok is false, and nothing has
// happened, where Begin would.
func (in *Inbox) TryBegin(tag Tag, n int) (a Arrival, ok bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := in.takePosted(tag)
	if r == nil && in.err == nil && in.full(n) {
		return Arrival{}, false, nil
	}
	a, err = in.begin(tag, n, r)
	return a, true, err
}

// full reports whether a message of n bytes cannot be kept. in.mu is held.
func (in *Inbox) full(n int) bool { return in.held+classBytes(n) > in.limit }

// begin gives a message its place, in r if that is not nil. in.mu is held.
func (in *Inbox) begin(tag Tag, n int, r *Recv) (Arrival, error) {
	if in.err != nil {
		if r != nil {
			r.complete(in.fault(tag, in.err))
		}
		return Arrival{}, in.err
	}
	if r != nil && len(r.dst) != n {
		r.complete(in.lengthFault(tag, n, len(r.dst)))
		r = nil
	}
	if r != nil {
		r.state = recvFilling
		return Arrival{tag: tag, recv: r}, nil
	}
	if in.came(tag) {
		return Arrival{}, fmt.Errorf("message %v came twice", tag)
	}
	in.held += classBytes(n)
	return Arrival{tag: tag, msg: in.pool.get(tag, n)}, nil
}

// waitRoom waits until the message may be kept or its receive is posted, which
// it then returns. in.mu is held.
func (in *Inbox) waitRoom(tag Tag, n int, timeout time.Duration) (*Recv, error) {
	in.waiting++
	defer func() { in.waiting-- }()
	expired := timeout == 0
	if timeout > 0 {
		patience := liveness.NewPatience(timeout, time.Now())
		var t *time.Timer
		t = time.AfterFunc(patience.Wait(), func() {
			in.mu.Lock()
			defer in.mu.Unlock()
			if expired = patience.Spent(time.Now()); !expired {
				t.Reset(patience.Wait())
				return
			}
			in.room.Broadcast()
		})
		defer t.Stop()
	}
	for in.err == nil && in.full(n) {
		if r := in.takePosted(tag); r != nil {
			return r, nil
		}
		if expired {
			return nil, fmt.Errorf("%w after %v: rank %d holds %d bytes from this rank that it has not asked for (limit %d)",
				ErrTimeout, timeout, in.rank, in.held, in.limit)
		}
		in.room.Wait()
	}
	return in.takePosted(tag), nil
}

// Divert is for a writer that was interrupted after got bytes. If the receive's
// owner wants its dst back, or the inbox was shut, the rest of the message goes to
// a pooled buffer.
func (in *Inbox) Divert(a *Arrival, got int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := a.recv
	if r == nil || r.state != recvWithdrawn && !in.shut {
		return
	}
	err := errWithdrawn
	if in.shut {
		err = in.fault(a.tag, in.err)
	}
	a.msg = in.pool.get(a.tag, len(r.dst)) // even beyond the limit: it cannot be left half read
	in.held += classBytes(len(r.dst))
	copy(a.msg.bytes(), r.dst[:got])
	a.recv = nil
	r.state = recvIdle
	r.complete(err)
}

// End says that the message is complete, or, with an error, that it never will
// be.
func (in *Inbox) End(a Arrival, err error) {
	if a.recv != nil {
		if err != nil {
			err = in.fault(a.tag, err)
		}
		in.settle(a.recv)
		a.recv.complete(err)
		return
	}
	if r := in.keep(a, err); r != nil {
		copy(r.dst, a.msg.bytes())
		in.settle(r)
		r.complete(nil)
	} else if err == nil {
		return
	}
	in.pool.put(a.msg)
}

// keep files a message that came into a pooled buffer, or returns the receive
// that was posted meanwhile. After an error it only gives the space back.
func (in *Inbox) keep(a Arrival, err error) *Recv {
	in.mu.Lock()
	defer in.mu.Unlock()
	var r *Recv
	if err == nil {
		r = in.takePosted(a.tag)
	}
	if r != nil && len(r.dst) != a.msg.n {
		r.complete(in.lengthFault(a.tag, a.msg.n, len(r.dst)))
		r = nil
	}
	if r != nil {
		r.state = recvFilling
	}
	if r != nil || err != nil {
		in.free(a.msg.n)
		return r
	}
	in.linkArrived(a.msg)
	return nil
}

// settle ends the filling of r, so that a withdrawal that comes now finds it
// complete.
func (in *Inbox) settle(r *Recv) {
	in.mu.Lock()
	r.state = recvIdle
	in.mu.Unlock()
}

// withdraw takes r back for its owner and reports whether it was still waiting
// for its message. If not, r completes soon.
func (in *Inbox) withdraw(r *Recv) bool {
	in.mu.Lock()
	state := r.state
	switch state {
	case recvPosted:
		in.unlinkPosted(r)
	case recvFilling:
		r.state = recvWithdrawn
	}
	in.mu.Unlock()
	if state == recvFilling && in.driver != nil {
		in.driver.Interrupt()
	}
	return state == recvPosted
}

// Break says that nothing more will come, because of err. What has arrived can
// still be received; every other receive fails. The first cause is kept.
func (in *Inbox) Break(err error) { in.fail(err, false) }

// Shut makes every pending and later receive fail with err, those of arrived
// messages too. It replaces the cause of a Break; the first Shut is kept.
func (in *Inbox) Shut(err error) {
	in.fail(err, true)
	if in.driver != nil {
		in.driver.Interrupt() // the rest of a message that is being written may never come
	}
}

func (in *Inbox) fail(err error, shut bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.shut || in.err != nil && !shut {
		return
	}
	in.err, in.shut = err, shut
	for c := range in.posted {
		for r := in.posted[c].first; r != nil; {
			next := r.next
			in.unlinkPosted(r)
			r.complete(in.fault(r.tag, err))
			r = next
		}
	}
	in.room.Broadcast()
}

// Err returns the cause of the first Shut or Break, or nil.
func (in *Inbox) Err() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.err
}

// free gives n bytes of kept messages back. in.mu is held.
func (in *Inbox) free(n int) {
	in.held -= classBytes(n)
	if in.waiting > 0 {
		in.room.Broadcast()
	}
}

func (in *Inbox) fault(tag Tag, err error) error {
	return &Error{Op: "receive", Rank: in.rank, Peer: in.from, Tag: tag, Err: err}
}

func (in *Inbox) lengthFault(tag Tag, message, dst int) error {
	return in.fault(tag, fmt.Errorf("%w: the message has %d bytes, the receive was posted for %d; do all ranks run the same program with the same sizes?",
		ErrLength, message, dst))
}

func (in *Inbox) mismatch(mine, theirs Tag) error {
	return in.fault(mine, &MismatchError{Mine: mine.Sig, Theirs: theirs.Sig})
}

// timeout describes a receive whose message did not come in time.
func (in *Inbox) timeout(tag Tag, after time.Duration) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	err := fmt.Errorf("%w after %v", ErrTimeout, after)
	if in.waiting > 0 {
		err = fmt.Errorf("%w; nothing is read from this peer while %d bytes that it sent wait for their receives (limit %d)", err, in.held, in.limit)
	}
	return in.fault(tag, err)
}
