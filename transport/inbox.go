package transport

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// Inbox matches the messages of a peer with the receives posted for them. All meshes use Inbox
// internally; users of a mesh do not need the type.
//
// invariant[posted-receives]: a message with a posted receive is always written directly to the
// receive's dst, because Begin matches before choosing memory. A message without a posted receive
// is kept in a pooled buffer, up to Limit bytes per peer. Above Limit Begin waits until a receive
// frees space.
//
// Receives and messages are in a hash table of linked lists: to match them needs no memory and,
// with a few dozen operations in flight, no search.
type Inbox struct {
	rank, from int
	limit      int64
	pool       *BufferPool
	driver     Driver

	mu      sync.Mutex
	room    sync.Cond // signals freed space, a posted receive or a failure
	waiting int       // waiters on room
	posted  [chains]recvChain
	arrived [chains]messageChain
	held    int64 // bytes of pooled buffers in use
	err     error // reason why no more messages arrive, or nil
	shut    bool  // arrived messages are not delivered either
}

// Driver delivers the messages of an inbox on goroutines that wait for one. The methods must be
// safe for concurrent use.
type Driver interface {
	// Poll may deliver messages on the goroutine that waits for r until r is Done, while polling
	// costs less than sleeping, and at most for timeout. With a timeout <= 0 Poll delivers the
	// available messages.
	Poll(r *Recv, timeout time.Duration)
	// Park is called before a goroutine sleeps in Wait: from then on messages must arrive without
	// its help. Unpark is called when it continues.
	Park()
	Unpark()
	// Interrupt makes every writer to the dst of a receive call Divert soon.
	Interrupt()
}

// InboxConfig configures an inbox. The zero values mean no limit, a private pool and no driver.
type InboxConfig struct {
	// Rank is the owner of the inbox, and From is the peer that sends the messages.
	Rank, From int
	// Limit is the maximum number of bytes of messages without a receive. 0 means no limit.
	Limit int64
	// Pool is the buffer pool, shared by all inboxes of a mesh.
	Pool *BufferPool
	// Driver helps to deliver messages. nil means that they arrive without help of receivers.
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

// Post requests the message with tag. If the message has already arrived, Post copies it to dst.
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

// match returns r's message if it has arrived, or an error, or adds r to its chain. in.mu is held.
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

// Arrival is an arriving message with the memory for its payload.
type Arrival struct {
	tag  Tag
	recv *Recv    // destination is the owner's dst, or
	msg  *message // destination is a pooled buffer
}

// Bytes returns the memory for the payload, of the length given to Begin.
func (a *Arrival) Bytes() []byte {
	if a.recv != nil {
		return a.recv.dst
	}
	return a.msg.bytes()
}

// Begin announces a message of n bytes and returns its memory. If no receive for the message exists
// and its buffer would exceed the limit, Begin waits, at most for timeout unless timeout is
// negative. A receive of another length, or of another operation with the same number, fails; the
// message is then kept. Every successful Begin needs an End.
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

// TryBegin is Begin without waiting: if Begin would wait, ok is false and the inbox is unchanged.
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

// full reports whether a message of n bytes exceeds the limit. in.mu is held.
func (in *Inbox) full(n int) bool { return in.held+classBytes(n) > in.limit }

// begin assigns memory to a message: r's dst if r is not nil. in.mu is held.
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

// waitRoom waits until the message fits, or returns its receive if one is posted. in.mu is held.
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

// Divert is called by a writer that was interrupted after got bytes. If dst is no longer available,
// after a timeout or Shut, the rest of the message goes to a buffer.
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
	a.msg = in.pool.get(a.tag, len(r.dst)) // above the limit as well: a message cannot stay half read
	in.held += classBytes(len(r.dst))
	copy(a.msg.bytes(), r.dst[:got])
	a.recv = nil
	r.state = recvIdle
	r.complete(err)
}

// End completes the message, or, with an error, abandons the message.
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

// keep stores a message without a receive; if a receive was posted since Begin, keep returns it.
// With an error it does neither.
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

// settle marks r's dst as complete: an attempt to withdraw r then fails.
func (in *Inbox) settle(r *Recv) {
	in.mu.Lock()
	r.state = recvIdle
	in.mu.Unlock()
}

// withdraw cancels r. It returns false if r already has its message or will have it soon.
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

// Break reports that no more messages arrive, because of err. Messages that have arrived can still
// be received; all other receives fail. The first cause stays.
func (in *Inbox) Break(err error) { in.fail(err, false) }

// Shut fails every pending and later receive with err, including receives of arrived messages. Shut
// replaces the cause of a Break; the first Shut is kept.
func (in *Inbox) Shut(err error) {
	in.fail(err, true)
	if in.driver != nil {
		in.driver.Interrupt() // the rest of a partly written message may never arrive
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

// Err returns the first error of the inbox, or nil.
func (in *Inbox) Err() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.err
}

// free returns the space of n kept bytes. in.mu is held.
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

// timeout returns the error of a receive without a message in time.
func (in *Inbox) timeout(tag Tag, after time.Duration) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	err := fmt.Errorf("%w after %v", ErrTimeout, after)
	if in.waiting > 0 {
		err = fmt.Errorf("%w; nothing is read from this peer while %d bytes that it sent wait for their receives (limit %d)", err, in.held, in.limit)
	}
	return in.fault(tag, err)
}
