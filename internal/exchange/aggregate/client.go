package aggregate

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Client is a trainer's side: it implements exchange.Reducer over a job's servers. One goroutine
// pushes segments in order, another pulls their sums in the same order, with at most 4 segments per
// server in flight.
type Client struct {
	mesh    transport.Mesh
	cfg     Config
	servers int
	kernels *simd.Kernels

	mu       sync.Mutex
	pushes   sync.Cond       // requests to push, or closing
	pulls    sync.Cond       // segments to pull, or the end
	slotFree sync.Cond       // a slot is free
	next     *pendingRequest // head of the queue to push
	newest   *pendingRequest // tail of the queue
	seq      uint32          // number of the next exchange
	pending  int             // requests in progress
	closing  bool
	ended    bool // pushing has ended

	slots          []segmentSlot // ring of segments in flight
	pushed, pulled uint64        // segments so far
	out, in        codecState
	recorder       opRecorder
	wait           waitState
	fault          atomic.Pointer[Error]
	work           sync.WaitGroup
	closed         sync.Once
	closeErr       error
}

// pendingRequest is an exchange between Start and Wait, in the ReducerState of its Request.
type pendingRequest struct {
	by     *Client
	op     *exchange.Request
	seq    uint32
	head   head
	code   compress.Quantiser
	layout layout
	sent   int64
	lost   buffer // this trainer's part of the sum error
	live   bool   // between Start and Wait
	entry  record.Op
	twice  bool // started again before Wait
	err    error
	end    time.Time
	done   chan struct{}   // holds a token from the end to Wait
	queued *pendingRequest // next to push
}

// segmentSlot is a segment that was pushed, with a sum that was not pulled yet.
type segmentSlot struct {
	f      *pendingRequest
	server int
	k      int // index of the segment at the server
	lo, hi int
	last   bool // last segment of its request
	recv   transport.Recv
	size   [sizeBytes]byte
	body   buffer
}

// codecState is the working memory of the push or the pull goroutine.
type codecState struct {
	coders coders
	body   buffer
	bytes  []byte // a payload
	index  []int32
	sparse compress.Sparse
	head   [headBytes]byte
	size   [sizeBytes]byte
}

// NewClient makes this rank's client of the servers of a mesh, without sending data. The caller
// closes the mesh, after the client. Errors: an invalid configuration, or one that does not fit the
// mesh.
func NewClient(mesh transport.Mesh, cfg Config) (*Client, error) {
	if err := cfg.fits(mesh, false); err != nil {
		return nil, err
	}
	servers := mesh.Size() - cfg.Trainers
	c := &Client{
		mesh: mesh, cfg: cfg.filled(), servers: servers, kernels: simd.Host(),
		slots: make([]segmentSlot, maxInFlight*servers), recorder: newScribe(cfg.Record),
	}
	c.wait.rec = cfg.Record
	c.pushes.L, c.pulls.L, c.slotFree.L = &c.mu, &c.mu, &c.mu
	c.work.Go(c.push)
	c.work.Go(c.pull)
	return c, nil
}

// Explain describes in one line how entries of op are exchanged.
func (c *Client) Explain(op *exchange.Request) string {
	return fmt.Sprintf("%d values over %d ranks and %d servers, which send sums back as entries where that is shorter", len(op.X), c.cfg.Trainers, c.servers)
}

// Servers returns the number of aggregation servers.
func (c *Client) Servers() int { return c.servers }

// Start begins an exchange. See exchange.Reducer.
func (c *Client) Start(op *exchange.Request) {
	f, _ := op.ReducerState.(*pendingRequest)
	if f == nil || f.by != c {
		f = &pendingRequest{by: c, done: make(chan struct{}, 1)}
		op.ReducerState = f
	}
	if f.live {
		f.twice = true
		return
	}
	f.op, f.live, f.sent, f.err, f.queued = op, true, 0, nil, nil
	op.SumError = op.SumError[:0]
	bad := f.plan(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	f.seq = c.seq
	if c.closing { // no goroutine would push f
		f.err, f.end = c.wrap("exchange", f, c.mesh.Rank(), transport.ErrClosed), time.Now()
		f.done <- struct{}{}
		return
	}
	c.seq++
	c.pending++
	f.entry = c.recorder.begin(f)
	if bad != nil {
		c.fail(c.wrap("push", f, c.mesh.Rank(), bad))
	}
	if c.next == nil {
		c.next = f
	} else {
		c.newest.queued = f
	}
	c.newest = f
	c.pushes.Signal()
}

// plan determines the head and the layout of op, or its error.
func (f *pendingRequest) plan(c *Client) error {
	op := f.op
	f.code = op.Code
	if f.code == nil {
		f.code = compress.FP32{}
	}
	f.head = head{kind: kindDense, code: f.code.Code(), block: f.code.Block(), lo: op.Lo, n: len(op.X), segment: c.cfg.SegmentBytes / 4}
	if op.Sparse != nil {
		f.head.kind, f.head.segment = kindSparse, min(maxValues, sparseFactor*f.head.segment)
	}
	f.layout = f.head.layout(c.servers)
	f.head.segment = f.layout.segment // rounded to whole blocks
	var b [headBytes]byte
	f.head.encode(&b)
	_, err := decodeHead(&b)
	switch {
	case len(op.X) > compress.MaxLen || op.Lo < 0:
		err = fmt.Errorf("a bucket of %d values at place %d of the arena: want at most %d values, at place 0 or later", len(op.X), op.Lo, compress.MaxLen)
	case op.Sparse != nil && op.Sparse.Len != len(op.X):
		err = fmt.Errorf("a sparse vector of length %d for a bucket of %d", op.Sparse.Len, len(op.X))
	case op.Sparse != nil:
		err = op.Sparse.Validate()
	}
	if err != nil {
		f.layout = newLayout(0, 1, 1, c.servers)
	}
	return err
}

// Wait waits for an exchange. See exchange.Reducer. Errors are an *Error, except for a sum that its
// code cannot store: then every rank gets an *exchange.ValueError, and other exchanges continue.
func (c *Client) Wait(op *exchange.Request) (time.Time, error) {
	f, _ := op.ReducerState.(*pendingRequest)
	if f == nil || f.by != c || !f.live {
		return time.Time{}, errors.New("aggregate: Wait for an exchange that was not started, or was waited for already")
	}
	<-f.done
	f.live = false
	if f.twice && f.err == nil {
		f.err = c.wrap("exchange", f, c.mesh.Rank(), errors.New("it was started again before Wait"))
	}
	f.twice = false
	return f.end, f.err
}

func (c *Client) finish(f *pendingRequest) {
	if fault := c.fault.Load(); fault != nil && f.err == nil {
		f.err = fault
		if fault.Seq != f.seq || fault.Op == "leave" {
			f.err = c.wrap("exchange", f, fault.Peer, fault)
		}
	}
	op := f.op
	op.Sent = exchange.Result{Algorithm: Algorithm, Bytes: f.sent, Entries: len(op.X), Dense: op.Sparse == nil}
	if op.Sparse != nil {
		op.Sent.Entries = op.Sparse.Count()
	}
	f.end = time.Now()
	f.entry.End(c.recorder.rec.At(f.end), f.sent, f.err != nil)
	c.mu.Lock()
	c.pending--
	c.mu.Unlock()
	f.done <- struct{}{}
}

// Algorithm is the name of a Client's exchanges in exchange.Result.
const Algorithm = "servers"

// fail sets the client's first error, and aborts the mesh: operations of all members end.
func (c *Client) fail(err *Error) {
	if c.fault.CompareAndSwap(nil, err) {
		c.mesh.Abort(err)
	}
}

func (c *Client) wrap(op string, f *pendingRequest, peer int, err error) *Error {
	return &Error{Op: op, Seq: f.seq, Exchange: f.head.String(), Rank: c.mesh.Rank(), Peer: transport.Culprit(err, peer), Trainers: c.cfg.Trainers, Err: err, Bucket: f.op.Bucket}
}

// member is a server's rank in the mesh.
func (c *Client) member(server int) int { return c.cfg.Trainers + server }

// Waiting returns this rank's present wait for a server; ok is false without one. Any goroutine may
// call it at any time.
func (c *Client) Waiting() (collective.Wait, bool) { return c.wait.load("exchange") }

// Close announces to the servers that this trainer leaves and returns after the client's
// goroutines. Exchanges in progress fail on all members. The mesh stays open.
func (c *Client) Close() error {
	c.closed.Do(func() { c.closeErr = c.close() })
	return c.closeErr
}

func (c *Client) close() error {
	c.mu.Lock()
	busy := c.pending > 0
	seq := c.seq
	c.mu.Unlock()
	if busy {
		c.fail(&Error{Op: "leave", Seq: seq, Rank: c.mesh.Rank(), Peer: c.mesh.Rank(), Trainers: c.cfg.Trainers, Err: transport.ErrClosed})
	}
	c.mu.Lock()
	c.closing = true
	c.pushes.Broadcast()
	c.mu.Unlock()
	c.work.Wait()
	if c.fault.Load() != nil {
		return nil // returned by Wait already
	}
	var b [headBytes]byte
	head{kind: kindLeave}.encode(&b)
	var errs []error
	for s := range c.servers {
		if err := c.mesh.Send(c.member(s), headTag(seq), b[:], c.cfg.Timeout); err != nil {
			peer := c.member(s)
			errs = append(errs, &Error{Op: "leave", Seq: seq, Rank: c.mesh.Rank(), Peer: transport.Culprit(err, peer), Trainers: c.cfg.Trainers, Err: err})
		}
	}
	return errors.Join(errs...)
}
