package collective

import (
	"errors"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Work is a started operation. Its slices belong to the operation until Wait
// returns; after that the Work belongs to the group again and must not be used.
type Work struct {
	g         *Group
	kind      kind
	elem      element
	op        ReduceOp
	algorithm algorithm
	root      int
	x         []byte // all of it: the operand, or what is gathered or scattered
	src       []byte // this rank's part, where parts are gathered
	dst       []byte // the result, where it is not x
	ends      []int  // where each rank's part ends in x, in bytes, if parts differ; of AllToAllV in dst
	outs      []int  // AllToAllV: where what goes to each rank ends in x, in bytes
	seq       uint32
	sig       signature
	err       error
	sent      int64         // bytes of payload by this rank
	end       int64         // by the recorder's clock, unless unknown
	done      chan struct{} // holds one token from the end of the operation until Wait
	next      *Work         // in the queue, or in the group's free list
	started   bool          // between start and Wait
	ranInline bool          // it ran on its caller's goroutine and has ended
	onWorker  bool          // it runs on a worker's

	separateOuts [][]byte                        // of AllGatherTo: the results, in place of x
	apply        func(lo, hi int, sum []float32) // of a shared update
	second       uint64                          // where its parameters lie

	scope       *rankSet // whom the algorithm runs on
	group       uint32   // of the messages' tags
	base        uint32   // added to the numbers of messages, to tell phases apart
	byRank      bool     // the chunks of x are the parts of the ranks
	zeroCopy    bool     // send lends
	inputCopied bool     // x is a copy of the operand, which a reduce may write to

	entry    record.Op       // see scribe
	hasRing  bool            // entry is
	hasStart bool            // the clock was looked at when it began, or first waited: begun
	begun    int64           // by the recorder's clock
	waits    *record.Waiting // in entry: who of the mesh is waited for
	unseen   record.Waiting  // in its place where that has no room
	stamped  bool            // waits counts from this operation's start, which its first wait takes

	recvs     [slots]transport.Recv
	pending   [slots]bool // which of recvs have been posted and not waited for
	scratch   []byte      // where what is to be added arrives
	held      []byte      // what an operation that leaves its operand alone has reduced so far
	copied    []byte      // and what it has of a whole host
	talk      func()      // runs a Send or Receive that is not waited for at once
	forceMesh bool        // a Send is to go over the mesh
	noTimeout bool        // a Receive waits however long it takes

	number       uint64        // among those by direct algorithms, or of two ranks
	shows        []peerOperand // what the ranks have arrived with
	steps        int           // of these that this rank has finished; hierarchical
	dsts, srcs   [][]byte      // tables of operands
	dst32, src32 [][]float32
	dst16, src16 [][]uint16
	block        []byte
}

// newWork returns a Work that is not in use, or a new one.
func (g *Group) newWork(k kind, e element) *Work {
	w := g.spare.Swap(nil)
	if w == nil {
		w = g.reuse()
	}
	w.kind, w.elem, w.started = k, e, true
	return w
}

func (g *Group) reuse() *Work {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.free
	if w == nil {
		w = &Work{g: g, done: make(chan struct{}, 1)}
		w.waits = &w.unseen
		w.talk = w.runP2P
		return w
	}
	g.free, w.next = w.next, nil
	return w
}

// recycle gives w back. The last one is kept where taking it needs no lock.
func (g *Group) recycle(w *Work) {
	if g.spare.CompareAndSwap(nil, w) {
		return
	}
	g.mu.Lock()
	w.next, g.free = g.free, w
	g.mu.Unlock()
}

// Wait blocks until the operation has ended and returns its fault, an
// *OpError, or nil. It must be called exactly once: a second call is an error,
// and once the group has used the Work for another operation, a fault that is
// not noticed.
func (w *Work) Wait() error {
	_, err := w.WaitEnd()
	return err
}

// Done tells whether Wait would return at once, after waiting so long for that. It may be called any number of times before Wait.
func (w *Work) Done(within time.Duration) bool {
	if w.ranInline || !w.started || len(w.done) > 0 {
		return true
	}
	if within <= 0 {
		return false
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-w.done:
		w.done <- struct{}{} // its place is free: it is for Wait
		return true
	case <-timer.C:
		return false
	}
}

// WaitEnd is Wait, and also returns when the operation ended, which may have
// been long before.
func (w *Work) WaitEnd() (time.Time, error) {
	end, _, err := w.WaitSent()
	return end, err
}

// WaitSent is WaitEnd, and also returns how many bytes of payload this rank sent for
// the operation; none where ranks share memory.
func (w *Work) WaitSent() (end time.Time, bytes int64, err error) {
	if !w.started {
		return time.Time{}, 0, errors.New("collective: Wait was called twice on the same Work")
	}
	if !w.ranInline {
		<-w.done
	}
	g, bytes, err := w.g, w.sent, w.err
	if w.end != record.Unknown {
		end = g.scribe.rec.Time(w.end)
	}
	if bytes != 0 {
		g.sent.Add(bytes)
		w.sent = 0
	}
	w.started, w.ranInline, w.onWorker, w.byRank, w.zeroCopy, w.forceMesh, w.noTimeout, w.err, w.x, w.src, w.dst, w.op, w.root, w.apply, w.second = false, false, false, false, false, false, false, nil, nil, nil, nil, Sum, 0, nil, 0
	w.ends, w.outs = w.ends[:0], w.outs[:0]
	clear(w.separateOuts)
	w.separateOuts = w.separateOuts[:0]
	g.recycle(w)
	return end, bytes, err
}

// timeout bounds each of its waits.
func (w *Work) timeout() time.Duration {
	if w.noTimeout {
		return forever
	}
	return w.g.cfg.Timeout
}

// forever is longer than any job, and can be added to a time.
const forever = 100 * 365 * 24 * time.Hour

// refuse ends an operation that was never started.
func (w *Work) refuse(err error) *Work {
	w.err, w.end, w.ranInline = err, w.g.scribe.rec.Now(), true
	return w
}

// bytes is what the operation counts in the group's window.
func (w *Work) bytes() int { return max(w.whole(), len(w.src), len(w.dst)) }

// run carries the operation out. Whatever the outcome, neither the mesh nor this
// rank touches its slices afterwards; what lies in an arena a peer that has not
// noticed a fault yet may still write to.
func (w *Work) run() error {
	g := w.g
	if fault := g.fault.Load(); fault != nil {
		w.skipTurn()
		return w.wrap(fault)
	}
	err := w.toParts()
	if err == nil {
		return nil
	}
	cause := g.fail(w.wrap(err))
	for i := range w.pending {
		if w.pending[i] {
			_ = w.recvs[i].Wait(g.cfg.Timeout) // at once: the mesh is aborted
			w.pending[i] = false
		}
	}
	return w.wrap(cause)
}

func (w *Work) execute() error {
	if w.g.size == 1 {
		copy(w.x, w.src)
		copy(w.dst, w.x)
		return nil
	}
	w.scope, w.base, w.group = &w.g.all, 0, w.g.cfg.ID
	if w.kind.pairs() {
		w.group |= pairGroup
	}
	if w.kind.pairs() {
		if w.pairPlace() < 0 {
			w.stamp()
		}
		return implementation(w.kind, byRules)(w)
	}
	if w.algorithm == byDirect {
		if err := w.aborted(); err != nil {
			return err
		}
	} else {
		w.stamp()
	}
	return implementation(w.kind, w.algorithm)(w)
}

// toParts is execute for operations whose results may lie apart. Only the direct algorithm writes them there itself: others send and
// receive several parts in one message, so for them they lie one behind the other first.
func (w *Work) toParts() error {
	if len(w.separateOuts) == 0 || w.algorithm == byDirect && w.g.size > 1 {
		return w.execute()
	}
	w.x = make([]byte, w.whole())
	if err := w.execute(); err != nil {
		return err
	}
	for r, part := range w.separateOuts {
		copy(part, w.x[r*len(part):])
	}
	return nil
}

// aborted returns an error if the mesh was aborted, which in shared memory
// nothing but a long wait would notice.
func (w *Work) aborted() error {
	next := w.g.ranks[(w.g.rank+1)%w.g.size]
	if err := w.g.mesh.Fault(next); errors.Is(err, transport.ErrAborted) {
		return &transport.Error{Op: "receive", Rank: w.g.mesh.Rank(), Peer: next, Tag: w.tag(0), Err: err}
	}
	return nil
}
