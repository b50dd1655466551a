package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// link is a session's connection to a server, renewed after failures. The goroutine run connects
// and reads; another goroutine writes.
type link struct {
	c               *Client
	session, server int
	addr            string
	ready           chan struct{} // closed once connected
	wake            chan struct{} // has a token if output may be queued
	limits          message.Limits
	plain           []float32 // gradients without counts, for the calling goroutine

	// aside and decoded are used only by the goroutine that reads.
	aside   message.Buffer // bodies not read directly into dst
	decoded []float32

	mu           sync.Mutex
	changed      sync.Cond     // signals changes of the next fields, for waiting calls
	err          error         // permanent error
	queue        []*outMessage // unanswered messages in order of creation
	sent         int           // messages before this index have been sent on this connection
	idle         []*outMessage // free messages
	changes      int           // changes in the queue
	pulls        int           // pulls in the queue
	number       uint64        // number of the last change
	clock        uint64        // last acknowledged Clock
	request      uint64        // number of the last pull
	pulling      int           // maximum pulls in flight
	activePulls  int           // pulls in flight
	leaving      bool          // send Goodbye when idle
	conn         *message.Conn
	lastGather   []byte   // frame with the last gather's result; nil: none
	confirmed    bool     // the server of this connection has lastGather
	saved        uint64   // number of the server's newest checkpoint of the job
	earlierBytes [2]int64 // bytes sent and received on earlier connections
}

func newLink(c *Client, session, server int, addr string) *link {
	k := &link{c: c, session: session, server: server, addr: addr, ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	k.changed.L = &k.mu
	k.limits.Trainers = c.cfg.Trainers
	for i, t := range c.cfg.Schema.Sparse {
		k.limits.Dims = append(k.limits.Dims, t.Dim)
		k.limits.Counts = append(k.limits.Counts, c.counts[i])
	}
	for _, d := range c.cfg.Schema.Dense {
		k.limits.Arrays = append(k.limits.Arrays, d.Len)
	}
	return k
}

func (k *link) fault(op string, step uint64, err error) error {
	trainer := k.c.cfg.Trainer
	if k.c.cfg.Reader {
		trainer = -1
	}
	return &Error{Op: op, Trainer: trainer, Session: k.session, Server: k.server, Addr: k.addr, Step: step, Err: err}
}

func (k *link) wakeWriter() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run connects and serves connections until the client ends.
func (k *link) run() {
	cause := errors.New("it was never reached")
	for first := true; ; first = false {
		conn, w, err := k.reach(cause)
		if err == nil && !first {
			k.c.count.reconnects.Add(1)
		}
		if err == nil {
			err = k.begin(conn, w)
		}
		if err != nil {
			if lost := (*Error)(nil); !errors.As(err, &lost) {
				err = k.fault("connecting", 0, err)
			}
			k.c.fail(err)
			return
		}
		if first {
			close(k.ready)
		}
		cause = k.converse(conn, w)
		switch {
		case k.over():
			return
		case isFinal(cause):
			k.c.fail(k.fault("the connection", 0, cause))
			return
		case errors.Is(cause, message.ErrSilent) && !k.c.cfg.Watched:
			k.c.fail(k.lost(fmt.Sprintf("no sign of life for %v", w.Silence)))
			return
		}
	}
}

// lost returns the error for a lost server, with the step of the oldest waiting message.
func (k *link) lost(why string) error {
	op, step := "connecting", uint64(0)
	k.mu.Lock()
	if len(k.queue) > 0 {
		h := k.queue[0].head
		op, step = k.describe(k.queue[0].t, h), h.Step
	}
	k.mu.Unlock()
	return k.fault(op, step, &transport.ServerLostError{Process: fmt.Sprintf("%s %d", failure.ParameterServer, k.server), Addr: k.addr, Reason: why})
}

// over reports whether the link needs no connection any more.
func (k *link) over() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err != nil || k.leaving
}

// isFinal reports errors that a retry would only repeat.
func isFinal(err error) bool {
	f := (*message.Failure)(nil)
	if errors.As(err, &f) {
		return true
	}
	return transport.Permanent(err) || slices.ContainsFunc([]error{
		message.ErrMalformed, message.ErrProtocol, wire.ErrMagic, wire.ErrVersion, wire.ErrChecksum, wire.ErrTooLong,
	}, func(fault error) bool { return errors.Is(err, fault) })
}

// reach connects, with growing delays between retries, within the maximum absence of a server.
// cause is the end of the previous connection.
func (k *link) reach(cause error) (*message.Conn, message.Welcome, error) {
	const shortest, longest = 10 * time.Millisecond, time.Second
	limit, clock := k.c.cfg.Reconnect, k.c.clock
	last, begun, there := error(nil), clock.Now(), time.Duration(0)
	for pause := shortest; ; pause = min(2*pause, longest) {
		past := clock.Now().Sub(begun)
		left := min(limit-(past-there), k.c.cfg.Timeout-past)
		switch {
		case left <= 0 && there > 0:
			return nil, message.Welcome{}, k.lost(fmt.Sprintf("it has not opened its tables in %s, of which it was away for %s (%v), after: %v", quantity.Duration(past), quantity.Duration(past-there), last, cause))
		case left <= 0:
			return nil, message.Welcome{}, k.lost(fmt.Sprintf("it could not be reached for %v (%v), after: %v", limit, last, cause))
		}
		ctx, cancel := context.WithTimeout(k.c.ctx, left)
		conn, w, lived, err := k.try(ctx)
		there += lived // a server that opens its tables is not absent, even if it restarts
		switch {
		case err == nil || isFinal(err):
			cancel()
			return conn, w, err
		case ctx.Err() == nil || last == nil:
			last = err // more informative than a timeout
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2)) // jitter between sessions
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		cancel()
		if k.c.ctx.Err() != nil {
			return nil, w, k.c.Err()
		}
	}
}

// try makes a connection and introduces the session. If that fails, lived is how long the server
// was present before.
func (k *link) try(ctx context.Context) (_ *message.Conn, w message.Welcome, lived time.Duration, err error) {
	cfg := &k.c.cfg
	nc, err := cfg.Dial(ctx, k.addr)
	if err != nil {
		return nil, w, 0, err
	}
	if c, ok := nc.(*net.TCPConn); ok { // errors appear at the first use
		c.SetReadBuffer(cfg.SocketBytes)
		c.SetWriteBuffer(cfg.SocketBytes)
	}
	mine := transport.Hello{Version: cfg.Version, Purpose: transport.Service, Rank: cfg.Trainer, WorldSize: cfg.Trainers}
	l, _, err := transport.ClientHandshake(ctx, nc, cfg.Ticket.Under(cfg.TLS), mine)
	if err != nil {
		return nil, w, 0, err
	}
	// A server that opens its tables sends heartbeats and may take long.
	since := k.c.clock.Now()
	patience, cancel := context.WithTimeout(k.c.ctx, cfg.Timeout)
	defer cancel()
	stop := context.AfterFunc(patience, func() { l.Close() })
	conn := message.NewConn(l, message.Trainer, &k.limits, transport.HandshakeTimeout)
	w, err = k.introduce(conn)
	if !stop() && err == nil {
		err = context.Cause(patience)
	}
	if err != nil {
		l.Close()
		return nil, w, k.c.clock.Now().Sub(since), err
	}
	return conn, w, 0, nil
}

// introduce exchanges hello and welcome.
func (k *link) introduce(conn *message.Conn) (w message.Welcome, err error) {
	cfg := &k.c.cfg
	hello := message.Hello{
		Trainer: cfg.Trainer, Trainers: cfg.Trainers, Session: k.session, Sessions: cfg.Sessions, Server: k.server, Servers: len(cfg.Servers),
		Incarnation: k.c.process, Hash: k.c.hash, Job: cfg.Job, Settings: cfg.Settings, Reader: cfg.Reader,
	}
	hello.From, hello.Clock = k.from()
	if err := conn.WriteFrame(message.TypeHello, hello.Append(nil)); err != nil {
		return w, err
	}
	for {
		t, _, n, err := conn.Next()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return w, err
		}
		b, err := conn.ReadAll(n)
		if err != nil {
			return w, err
		}
		switch t {
		case message.TypeNeedSchema:
			err = conn.WriteFrame(message.TypeSchema, k.c.json)
		case message.TypeWelcome:
			return message.ParseWelcome(b)
		default:
			err = parting(t, b)
		}
		if err != nil {
			return w, err
		}
	}
}

// errEnds is the error of a server that says goodbye; a more precise error of another server
// replaces it.
var errEnds = errors.New("the server has ended")

// parting returns the error for a server's last frame.
func parting(t wire.Type, b []byte) error {
	switch t {
	case message.TypeFailure:
		f, err := message.ParseFailure(b)
		if err != nil {
			return err
		}
		return f
	case message.TypeGoodbye:
		return fmt.Errorf("%w: %s", errEnds, message.Text(b))
	}
	return fmt.Errorf("%w: a %s where none may come", message.ErrMalformed, message.Name(t))
}

// from returns the number of the first unacknowledged change, and the step of the last Clock before
// that change.
func (k *link) from() (number, clock uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.number - uint64(k.changes) + 1, k.clock
}

// begin starts to use a new connection: it sends unanswered messages again, in order.
func (k *link) begin(conn *message.Conn, w message.Welcome) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		conn.Link().Close()
		return k.err
	}
	fresh := k.number == 0
	if !fresh && w.Last > k.number || w.Last+1 < k.number-uint64(k.changes)+1 {
		conn.Link().Close()
		return fmt.Errorf("the server has changes up to number %d of this session, this trainer has made %d and %d are not acknowledged: does another process say that it is this trainer?",
			w.Last, k.number, k.changes)
	}
	if fresh {
		k.number = w.Last // changes up to w.Last are from an earlier process of this trainer
	}
	k.limits.Keys, k.limits.Values = w.Keys, w.Values
	k.pulling = min(w.Pulls, k.c.cfg.Pulls)
	conn.SetSilence(w.Silence)
	k.conn, k.sent, k.activePulls = conn, 0, 0
	k.confirmed = k.lastGather == nil
	for _, it := range k.queue {
		again := it.delivered
		it.delivered = it.change && it.head.Number <= w.Last
		if again && !it.delivered {
			k.c.count.resent.Add(1)
		}
	}
	k.wakeWriter()
	return nil
}

// converse reads a connection until its end, and returns the cause. Another goroutine writes.
func (k *link) converse(conn *message.Conn, w message.Welcome) error {
	stop, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		k.write(conn, w, stop)
	}()
	err := k.receive(conn)
	close(stop)
	conn.Link().Close()
	<-written
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn = nil
	k.changed.Broadcast()
	k.earlierBytes[0] += conn.Link().Sent()
	k.earlierBytes[1] += conn.Link().Received()
	return err
}

func (k *link) traffic() (sent, received int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sent, received = k.earlierBytes[0], k.earlierBytes[1]
	if k.conn != nil {
		sent += k.conn.Link().Sent()
		received += k.conn.Link().Received()
	}
	return sent, received
}

// abandon ends the link: all waiting calls fail.
func (k *link) abandon(cause error) {
	k.mu.Lock()
	if k.err == nil {
		k.err = cause
	}
	queue := k.queue
	k.queue, k.sent, k.changes, k.pulls, k.activePulls = nil, 0, 0, 0, 0
	if k.conn != nil {
		k.conn.Link().Close()
	}
	k.changed.Broadcast()
	k.mu.Unlock()
	for _, it := range queue {
		if it.pull != nil {
			it.pull.part(cause)
		}
	}
}

// flush blocks until all changes are acknowledged.
func (k *link) flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.changed.Broadcast()
	})
	defer stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.changes > 0 && k.err == nil {
		if ctx.Err() != nil {
			return k.fault(fmt.Sprintf("waiting for the acknowledgement of %d changes", k.changes), 0, context.Cause(ctx))
		}
		k.changed.Wait()
	}
	return k.err
}

// goodbye confirms to the server that the trainer has the acknowledgement of its leave. Without a
// goodbye the server only waits for some time, so that an error has no consequence.
func (k *link) goodbye(ctx context.Context) {
	k.mu.Lock()
	k.leaving = true
	up := k.conn != nil
	k.mu.Unlock()
	k.wakeWriter()
	if up {
		stop := context.AfterFunc(ctx, func() { k.abandon(context.Cause(ctx)) })
		defer stop()
		k.ended()
	}
}

// ended waits for the end of the connection: the server closes it after a goodbye.
func (k *link) ended() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.conn != nil && k.err == nil {
		k.changed.Wait()
	}
}
