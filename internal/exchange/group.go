package exchange

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/usage"
)

// GroupReducer is a Reducer over a group of ranks.
//
// Dense float32, float16 and bfloat16 are operations of the group, which may progress
// simultaneously. All other exchanges take several operations. A goroutine starts these
// sequentially on a duplicate of the group, so that their order depends only on the order of Start.
type GroupReducer struct {
	g       *collective.Group
	dup     *collective.Group // duplicate of g; nil until needed
	cfg     Config
	kernels *simd.Kernels

	mu         sync.Mutex
	wake       sync.Cond
	head, tail *requestState // queue of the goroutine
	closed     bool
	running    sync.WaitGroup

	workers *workers // nil: each rank is a worker

	// State of the goroutine that carries out exchanges, until its end.
	rank, size int
	memory
}

// requestState is a GroupReducer's state of an operation.
type requestState struct {
	by      *GroupReducer
	op      *Request
	started bool // between Start and Wait
	twice   bool // Start was called in between

	work   *collective.Work // operation in flight on g
	halves []collective.Float16
	brains []collective.BFloat16

	queued   bool // owned by the goroutine, with the fields below, until done
	next     *requestState
	done     chan struct{} // holds a token from the end until Wait
	end      time.Time
	err      error
	part     partition
	partial  partial
	sumError []float32 // compression error of this rank's chunk
}

// NewGroupReducer makes a Reducer over g without sending data. The caller closes g, after the
// Reducer. Ranks make groups over several ranks of one mesh in the same order. Errors: a bad
// configuration, all errors together.
func NewGroupReducer(g *collective.Group, cfg Config) (*GroupReducer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	if cfg.Rebalance == 0 {
		cfg.Rebalance = defaultRebalance
	}
	e := &GroupReducer{g: g, cfg: cfg, kernels: simd.Host(), rank: g.Rank(), size: g.Size()}
	e.wake.L = &e.mu
	e.memory.init(e.size)
	if cfg.Workers != nil {
		e.workers = newWorkers(*cfg.Workers, e.size, e.rank)
	}
	return e, nil
}

// Prepare makes the memory for sums over virtual workers of the slice grads. All ranks call it
// before the first exchange with Config.Workers.
func (e *GroupReducer) Prepare(grads []float32) error {
	if e.workers == nil {
		return nil
	}
	return e.workers.prepare(e.g, grads)
}

// Start begins op; see Reducer.
func (e *GroupReducer) Start(op *Request) {
	h, _ := op.ReducerState.(*requestState)
	if h == nil || h.by != e {
		h = &requestState{by: e, op: op, done: make(chan struct{}, 1)}
		op.ReducerState = h
	}
	if h.started {
		h.twice = true
		return
	}
	if h.op = op; e.workers != nil && e.addWorker(h) {
		return
	}
	h.started, h.twice, h.work, h.queued, h.err = true, false, nil, false, nil
	err := check(op)
	if e.mu.Lock(); err == nil && e.closed {
		err = errors.New("the reducer was closed")
	}
	e.mu.Unlock()
	if err != nil {
		h.end, h.err = time.Now(), e.fault(op, "start", err)
		return
	}
	op.Sent, op.SumError = Result{Entries: len(op.X), Dense: true}, op.SumError[:0]
	if e.size == 1 {
		e.alone(h)
		return
	}
	switch {
	case op.Sparse != nil || !native(op.Code):
		e.enqueue(h)
	case e.workers != nil && !e.workers.simple():
		e.startTree(h)
	case op.Code == nil || op.Code.Code() == compress.CodeFP32:
		op.Sent.Algorithm = e.g.Choice("allreduce", 4*len(op.X))
		op.Bucket.start(e.g)
		h.work = collective.StartAllReduce(e.g, op.X, collective.Sum)
		e.g.For(-1, 0)
	default:
		op.Bucket.start(e.g)
		e.startHalves(h)
		e.g.For(-1, 0)
	}
}

func check(op *Request) error {
	if op.Lo < 0 || op.MaxEntries < 0 {
		return fmt.Errorf("Request.Lo is %d and Request.MaxEntries %d: want 0 or more", op.Lo, op.MaxEntries)
	}
	if op.Sparse == nil {
		return nil
	}
	if op.Sparse.Len != len(op.X) {
		return fmt.Errorf("a sparse vector of length %d for a bucket of %d", op.Sparse.Len, len(op.X))
	}
	return op.Sparse.Validate()
}

// native reports whether an operation can sum a code's values.
func native(q compress.Quantiser) bool {
	return q == nil || q.Code() <= compress.CodeBF16
}

// alone is the exchange of a single rank.
func (e *GroupReducer) alone(h *requestState) {
	op := h.op
	op.Sent.Algorithm = "none"
	if op.Sparse != nil {
		if e.vectors = append(e.vectors[:0], op.Sparse); e.workers != nil {
			e.vectors = append(e.vectors[:0], h.partial.vectors...)
		}
		op.Sent.Entries, op.Sent.Dense = meanEntries(e.vectors), false
		e.sum(op.X, e.vectors)
	}
	h.end = time.Now()
}

// Wait waits for op; see Reducer. Errors are *Error; for a sum that its code cannot store the
// *Error wraps a *ValueError.
func (e *GroupReducer) Wait(op *Request) (end time.Time, err error) {
	h, _ := op.ReducerState.(*requestState)
	if h == nil || h.by != e || !h.started {
		return time.Time{}, e.fault(op, "wait", errors.New("it was not started, or waited for already"))
	}
	switch {
	case h.work != nil:
		e.finish(h)
	case h.queued:
		if <-h.done; h.partial.gather != nil {
			e.finishGather(h)
		}
	}
	h.started = false
	if h.twice && h.err == nil {
		h.err = e.fault(op, "start", errors.New("it was started again before Wait"))
	}
	return h.end, h.err
}

// finish waits for an operation of the group.
func (e *GroupReducer) finish(h *requestState) {
	var err error
	h.end, h.op.Sent.Bytes, err = h.work.WaitSent()
	h.work = nil
	if err == nil && h.op.Code != nil && h.op.Code.Code() != compress.CodeFP32 {
		err = e.fromHalves(h)
	}
	if err != nil {
		h.err = e.fault(h.op, "allreduce", err)
	}
}

// enqueue queues h for the goroutine, which the first call starts.
func (e *GroupReducer) enqueue(h *requestState) {
	if e.dup == nil {
		own, err := e.g.Dup()
		if err != nil {
			h.end, h.err = time.Now(), e.fault(h.op, "start", err)
			return
		}
		e.dup = own
		e.running.Go(e.run)
	}
	h.queued = true
	e.mu.Lock()
	if e.head == nil {
		e.head = h
	} else {
		e.tail.next = h
	}
	e.tail = h
	e.mu.Unlock()
	e.wake.Signal()
}

// run carries out queued requests until the group is closed.
func (e *GroupReducer) run() {
	usage.Phase("exchange")
	for h := e.take(); h != nil; h = e.take() {
		before := e.dup.Sent()
		what := ""
		err := panics.Do(func() (err error) { // panics of a custom code or selector
			what, err = e.carry(h)
			return err
		})
		if err != nil {
			var inside *collective.OpError
			if !errors.As(err, &inside) { // no other rank has noticed
				_ = e.dup.Fail(e.fault(h.op, what, err))
			}
			h.err = e.fault(h.op, what, err)
		}
		h.op.Sent.Bytes = e.dup.Sent() - before
		h.end = time.Now()
		h.done <- struct{}{}
	}
}

// take waits for the queue's head; nil once the group is closed and the queue empty.
func (e *GroupReducer) take() *requestState {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.head == nil && !e.closed {
		e.wake.Wait()
	}
	h := e.head
	if h != nil {
		e.head, h.next = h.next, nil
	}
	return h
}

// carry carries out an exchange that needs several operations of the group. what names the failed
// operation for errors.
func (e *GroupReducer) carry(h *requestState) (what string, err error) {
	h.op.Bucket.start(e.dup)
	if e.workers != nil && h.op.Sparse == nil {
		return "tree", e.startGather(h)
	}
	if e.workers != nil {
		return AllGather, e.gatherEntries(h)
	}
	if h.op.Sparse == nil {
		h.op.Sent.Algorithm = "chunks"
		return "chunks", e.chunks(h)
	}
	return e.sparse(h)
}

// Close ends the duplicate group, see Reducer, and returns after its goroutine. The original group
// stays open.
func (e *GroupReducer) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.wake.Broadcast()
	var err error
	if e.dup != nil {
		err = e.dup.Close()
	}
	e.running.Wait()
	e.workers.close()
	return err
}
