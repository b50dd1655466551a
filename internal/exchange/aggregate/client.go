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

// Client is a trainer's side: it implements exchange.Reducer over a job's
// servers. One goroutine pushes segments in order, another pulls their sums in the
// same order; between the two at most 4 segments for each server are under way.
type Client struct {
	mesh    transport.Mesh
	cfg     Config
	servers int
	kernels *simd.Kernels

	mu       sync.Mutex
	pushes   sync.Cond       // there is something to push, or the client is closing
	pulls    sync.Cond       // likewise to pull
	slotFree sync.Cond       // a slot is free
	next     *pendingRequest // to push
	newest   *pendingRequest // the last of these
	seq      uint32          // of the next exchange
	pending  int             // flights that have not ended
	closing  bool
	ended    bool // nothing more will be pushed

	slots          []segmentSlot // segments under way, a ring
	pushed, pulled uint64        // how many there were
	out, in        codecState
	recorder       opRecorder
	wait           waitState
	fault          atomic.Pointer[Error]
	work           sync.WaitGroup
	closed         sync.Once
	closeErr       error
}

// pendingRequest is an exchange between Start and Wait, kept in its Op.
type pendingRequest struct {
	by     *Client
	op     *exchange.Request
	seq    uint32
	head   head
	code   compress.Quantiser
	layout layout
	sent   int64
	lost   buffer // of sums, what this trainer keeps
	live   bool   // between Start and Wait
	entry  record.Op
	twice  bool // it was started again before Wait
	err    error
	end    time.Time
	done   chan struct{}   // one token from its end to Wait
	queued *pendingRequest // the next one to push
}

// segmentSlot is a segment that was pushed and not pulled.
type segmentSlot struct {
	f      *pendingRequest
	server int
	k      int // number of the segment among the server's
	lo, hi int
	last   bool // of its flight
	recv   transport.Recv
	size   [sizeBytes]byte
	body   buffer
}

// codecState is what a goroutine that pushes or pulls works with.
type codecState struct {
	coders coders
	body   buffer
	bytes  []byte // a payload
	index  []int32
	sparse compress.Sparse
	head   [headBytes]byte
	size   [sizeBytes]byte
}

// NewClient makes this rank's client of the servers of a mesh. It sends nothing;
// the mesh stays its owner's to close, after the client. Errors: a bad
// configuration, or one that does not fit the mesh.
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

// Explain says in one line how entries of op are exchanged.
func (c *Client) Explain(op *exchange.Request) string {
	return fmt.Sprintf("%d values over %d ranks and %d servers, which send sums back as entries where that is shorter", len(op.X), c.cfg.Trainers, c.servers)
}

// Servers is how many servers the client has.
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
	if c.closing { // nobody would push it
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

// plan finds out what op is and how it is cut, or what is wrong with it.
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
	f.head.segment = f.layout.segment // in whole blocks
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

// Wait waits for an exchange. See exchange.Reducer. Faults are an *Error, but for a
// sum that its code has no room for, which is an *exchange.ValueError on every rank
// and ends nothing else.
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

// finish ends f.
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

// Algorithm is the name of what a Client does, in exchange.Result.
const Algorithm = "servers"

// fail makes err the client's fault, unless there is one, and ends the mesh's
// operations with it: those of all other members too.
func (c *Client) fail(err *Error) {
	if c.fault.CompareAndSwap(nil, err) {
		c.mesh.Abort(err)
	}
}

func (c *Client) wrap(op string, f *pendingRequest, peer int, err error) *Error {
	return &Error{Op: op, Seq: f.seq, Exchange: f.head.String(), Rank: c.mesh.Rank(), Peer: transport.Culprit(err, peer), Trainers: c.cfg.Trainers, Err: err, Bucket: f.op.Bucket}
}

// member is a server's number in the mesh.
func (c *Client) member(server int) int { return c.cfg.Trainers + server }

// Waiting returns this rank's wait for a server; ok is false while it waits for
// none. It may be called at any time from any goroutine.
func (c *Client) Waiting() (collective.Wait, bool) { return c.wait.load("exchange") }

// Close tells the servers that this trainer leaves and returns when the client's
// goroutines have ended. Exchanges that are under way fail, here and everywhere.
// The mesh is left open.
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
		return nil // whoever waited knows
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
