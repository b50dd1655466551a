package collective

import (
	"errors"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Work is a started operation. Its slices belong to the operation until Wait returns. After Wait
// the Work belongs to the group again and must not be used.
type Work struct {
	g *Group
	operands
	algorithmState
	bookkeeping
	timing
}

// operands are the caller's arguments: the operation, its slices and its options.
type operands struct {
	kind      kind
	elem      element
	op        ReduceOp
	algorithm algorithm
	root      int
	x         []byte // whole operand, or the slice that is gathered or scattered
	src       []byte // this rank's part, if parts are gathered
	dst       []byte // result, if it is not x
	ends      []int  // end of each rank's part in x, in bytes, if parts differ; of AllToAllV in dst
	outs      []int  // AllToAllV: end of the part for each rank in x, in bytes

	separateOuts [][]byte                        // AllGatherTo: results, instead of x
	apply        func(lo, hi int, sum []float32) // Apply of a sharded update
	second       uint64                          // offset of the sharded update's parameters in the arena

	forceMesh bool // a Send uses the mesh
	noTimeout bool // a Receive waits without limit
}

// algorithmState is the state of the running algorithm. Its buffers are reused by later operations.
type algorithmState struct {
	scope       *rankSet // ranks of the current phase
	group       uint32   // group number in message tags
	base        uint32   // first message number of the current phase
	byRank      bool     // the chunks of x are the parts of the ranks
	zeroCopy    bool     // sends are zero-copy
	inputCopied bool     // x is a copy of the operand, which a reduce may overwrite

	recvs   [slots]transport.Recv
	pending [slots]bool // recvs that are posted and not awaited
	scratch []byte      // received values, to be added
	partial []byte      // partial result of an operation that preserves its operand
	copied  []byte      // partial result of a host

	number       uint64        // number among direct operations, or among the operations of a pair of ranks
	arrivals     []peerOperand // operand that each rank has published
	steps        int           // hierarchical steps that this rank has finished
	dsts, srcs   [][]byte      // tables of operands
	dst32, src32 [][]float32
	dst16, src16 [][]uint16
	block        []byte
}

// bookkeeping is the operation's state between its start and the return of the Work to the group.
type bookkeeping struct {
	seq       uint32
	sig       signature
	err       error
	sent      int64         // payload bytes sent by this rank
	done      chan struct{} // one token from the end of the operation until Wait
	next      *Work         // next in the queue, or in the group's free list
	started   bool          // between start and Wait
	ranInline bool          // ended on its caller's goroutine
	onWorker  bool          // runs on a worker's goroutine
	runPair   func()        // runs a Send or Receive in the background
}

// timing is the operation's entry in the recorder: see opRecorder.
type timing struct {
	end      int64 // end by the recorder's clock, or record.Unknown
	entry    record.Op
	hasRing  bool            // entry is in the group's lane, which has no start time
	hasStart bool            // begun is set
	begun    int64           // start or first wait, by the recorder's clock
	waits    *record.Waiting // wait state of entry: the mesh rank awaited
	ownWaits record.Waiting  // waits points here if the recorder had no space
	stamped  bool            // the first wait counts from the start, which was just recorded
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
		w = &Work{g: g, bookkeeping: bookkeeping{done: make(chan struct{}, 1)}}
		w.waits = &w.ownWaits
		w.runPair = w.runP2P
		return w
	}
	g.free, w.next = w.next, nil
	return w
}

// recycle returns w to the group. The last Work is stored without a lock.
func (g *Group) recycle(w *Work) {
	if g.spare.CompareAndSwap(nil, w) {
		return
	}
	g.mu.Lock()
	w.next, g.free = g.free, w
	g.mu.Unlock()
}

// Wait blocks until the operation has ended and returns its error, an *OpError, or nil. It must be
// called exactly once: a second call is an error, which is not detected once the group has reused
// the Work for another operation.
func (w *Work) Wait() error {
	_, err := w.WaitEnd()
	return err
}

// Done waits at most within for the end of the operation, and reports whether Wait would return
// immediately. It may be called any number of times before Wait.
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
		w.done <- struct{}{} // wakes Wait; the channel has space
		return true
	case <-timer.C:
		return false
	}
}

// WaitEnd is Wait, and also returns when the operation ended, possibly long before the call.
func (w *Work) WaitEnd() (time.Time, error) {
	end, _, err := w.WaitSent()
	return end, err
}

// WaitSent is WaitEnd, and also returns the payload bytes that this rank sent for the operation; 0
// in shared memory.
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
	w.release()
	g.recycle(w)
	return end, bytes, err
}

// release drops the references to the caller's slices, so that the next operation can use w.
func (w *Work) release() {
	w.op, w.root, w.x, w.src, w.dst, w.ends, w.outs = Sum, 0, nil, nil, nil, w.ends[:0], w.outs[:0]
	clear(w.separateOuts)
	w.separateOuts, w.apply, w.second, w.forceMesh, w.noTimeout = w.separateOuts[:0], nil, 0, false, false
	w.byRank, w.zeroCopy = false, false
	w.err, w.started, w.ranInline, w.onWorker = nil, false, false, false
}

// timeout returns the longest wait for one rank.
func (w *Work) timeout() time.Duration {
	if w.noTimeout {
		return forever
	}
	return w.g.cfg.Timeout
}

// forever is longer than any job, and can be added to a time.
const forever = 100 * 365 * 24 * time.Hour

// refuse ends an operation with err before the operation starts.
func (w *Work) refuse(err error) *Work {
	w.err, w.end, w.ranInline = err, w.g.scribe.rec.Now(), true
	return w
}

// bytes returns the size by which the operation counts in the group's window.
func (w *Work) bytes() int { return max(w.whole(), len(w.src), len(w.dst)) }

// run performs the operation. Afterwards neither the mesh nor this rank uses its slices; but after
// an error, a rank that has not noticed the error may still write to slices in shared memory.
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
			_ = w.recvs[i].Wait(g.cfg.Timeout) // immediate: the mesh is aborted
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

// toParts executes operations whose results may be separate slices. Only the direct algorithm
// writes to separate slices; the other algorithms send several parts in one message, and therefore
// need a contiguous result first.
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

// aborted returns an error if the mesh was aborted. An operation in shared memory would otherwise
// notice this only in a long wait.
func (w *Work) aborted() error {
	next := w.g.ranks[(w.g.rank+1)%w.g.size]
	if err := w.g.mesh.Fault(next); errors.Is(err, transport.ErrAborted) {
		return &transport.Error{Op: "receive", Rank: w.g.mesh.Rank(), Peer: next, Tag: w.tag(0), Err: err}
	}
	return nil
}
