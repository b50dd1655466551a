package collective

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// Work is a started operation. Its slices belong to the operation until Wait
// returns; after that the Work belongs to the group again and must not be used.
type Work struct {
	g    *Group
	kind kind
	elem element
	op   Op
	how  method
	root int
	x    []byte // the operand, the result
	src  []byte // AllGather's and AllGatherV's own part
	ends []int  // AllGatherV: where each rank's part ends in x, in bytes
	seq  uint32
	sig  signature
	err  error
	end  time.Time
	done chan struct{} // holds one token from the end of the operation until Wait
	next *Work         // in the queue, or in the group's free list
	live bool          // between start and Wait

	peer  atomic.Int32 // who of the mesh is waited for, plus one; 0: nobody
	since atomic.Int64 // and since when, nanoseconds after g.epoch

	recvs   [posted]transport.Recv
	pending [posted]bool // which of recvs have been posted and not waited for
	scratch []byte       // where what is to be added arrives

	number               uint64   // among those by direct algorithms
	dsts, srcs           [][]byte // tables of operands
	dstFloats, srcFloats [][]float32
	block                []byte
}

// posted is how many receives an operation posts ahead.
const posted = 4

// kind is a collective operation.
type kind uint8

const (
	kindAllReduce kind = iota
	kindBroadcast
	kindAllGather
	kindBarrier
	kindAllGatherV
	kinds
)

var kindNames = [kinds]string{"allreduce", "broadcast", "allgather", "barrier", "allgatherv"}

func (k kind) String() string { return kindNames[k] }

// reduces says that the operation has a reduction, rooted that it has a root.
func (k kind) reduces() bool { return k == kindAllReduce }
func (k kind) rooted() bool  { return k == kindBroadcast }

// newWork returns a Work from the free list, or a new one.
func (g *Group) newWork(k kind, e element) *Work {
	g.mu.Lock()
	w := g.free
	if w != nil {
		g.free, w.next = w.next, nil
	}
	g.mu.Unlock()
	if w == nil {
		w = &Work{g: g, done: make(chan struct{}, 1)}
	}
	w.kind, w.elem, w.live = k, e, true
	return w
}

// Wait blocks until the operation has ended and returns its fault, an
// *OpError, or nil. It must be called exactly once: a second call is an error,
// and once the group has used the Work for another operation, a fault that is
// not noticed.
func (w *Work) Wait() error {
	_, err := w.WaitEnd()
	return err
}

// WaitEnd is Wait, and also returns when the operation ended, which may have
// been long before.
func (w *Work) WaitEnd() (time.Time, error) {
	if !w.live {
		return time.Time{}, errors.New("collective: Wait was called twice on the same Work")
	}
	<-w.done
	g, err, end := w.g, w.err, w.end
	w.live, w.err, w.x, w.src, w.op, w.root = false, nil, nil, nil, Sum, 0
	w.ends = w.ends[:0]
	g.mu.Lock()
	w.next, g.free = g.free, w
	g.mu.Unlock()
	return end, err
}

// refuse ends an operation that was never started.
func (w *Work) refuse(err error) *Work {
	w.err, w.end = err, time.Now()
	w.done <- struct{}{}
	return w
}

// bytes is what the operation counts in the group's window.
func (w *Work) bytes() int { return len(w.x) }

// run carries the operation out. Whatever the outcome, the mesh does not touch
// its slices afterwards.
func (w *Work) run() error {
	g := w.g
	g.mu.Lock()
	fault := g.fault
	g.mu.Unlock()
	if fault != nil {
		return w.wrap(fault)
	}
	err := w.execute()
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
		return nil
	}
	return carrier(w.kind, w.how)(w)
}

// tag names message i of the operation between two ranks.
func (w *Work) tag(i int) transport.Tag {
	return transport.Tag{Group: w.g.cfg.ID, Seq: w.seq, Part: uint32(i), Sig: uint64(w.sig)}
}

// post asks for message i from a rank of the group; the receive is number i modulo posted.
func (w *Work) post(i, from int, dst []byte) {
	w.pending[i%posted] = true
	w.g.mesh.Post(&w.recvs[i%posted], w.g.ranks[from], w.tag(i), dst)
}

// wait waits for message i, which was posted.
func (w *Work) wait(i, from int) error {
	w.waitsFor(from)
	err := w.recvs[i%posted].Wait(w.g.cfg.Timeout)
	w.pending[i%posted] = false
	w.peer.Store(0)
	return err
}

// send sends message i.
func (w *Work) send(i, to int, p []byte) error {
	w.waitsFor(to)
	err := w.g.mesh.Send(w.g.ranks[to], w.tag(i), p, w.g.cfg.Timeout)
	w.peer.Store(0)
	return err
}

func (w *Work) waitsFor(peer int) {
	w.since.Store(int64(time.Since(w.g.epoch)))
	w.peer.Store(int32(w.g.ranks[peer]) + 1)
}

// room returns place for n bytes to arrive in for each posted receive.
func (w *Work) room(n int) {
	const line = 64
	n = (n + line - 1) &^ (line - 1)
	if len(w.scratch) < posted*n {
		w.scratch = make([]byte, posted*n)
	}
}

// space is where message i of n bytes arrives to be added.
func (w *Work) space(i, n int) []byte {
	stride := len(w.scratch) / posted
	return w.scratch[i%posted*stride:][:n:n]
}
