package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

type conn struct {
	s      *Server
	link   *transport.Link
	io     *message.Conn
	limits message.Limits
	ctx    context.Context // done when the connection must end
	cancel context.CancelFunc
	over   chan struct{} // closed after the end, when the session is free
	out    outbox
	safe   acks

	hello       message.Hello // valid once seated, as the next fields
	session     int           // number among all trainers' sessions
	seated      bool
	reconnected bool // the session had an earlier connection
	engine      Engine

	body        message.Buffer // change, used by the reader
	values      []float32      // decoded values
	plain       []float32      // gradients without counts
	coded       message.CodedDecoder
	pulls       *pool[pull]    // pulls being answered without a wait
	parking     chan *pull     // pulls for idle parkers
	helper      chan *pull     // pulls for the second answering goroutine
	pullsBefore sync.WaitGroup // pulls of the helper, which precede the next change
	parkers     sync.WaitGroup // goroutines of parker and help

	replaced atomic.Bool
	mu       sync.Mutex
	failure  error // error of the acknowledging goroutine
}

// errGoodbye ends the connection of a trainer that has left.
var errGoodbye = errors.New("it has left")

func newConn(s *Server, link *transport.Link) *conn {
	c := &conn{s: s, link: link, over: make(chan struct{}), pulls: newStock(s.cfg.Pulls, func(p *pull) int { return p.body.Room() }), parking: make(chan *pull), helper: make(chan *pull)}
	c.io = message.NewConn(link, message.Server, &c.limits, s.cfg.Times.DeadAfter)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.out.init(s.cfg.Replies)
	c.safe.wake = make(chan struct{}, 1)
	return c
}

// end ends the connection after the current message.
func (c *conn) end() {
	c.cancel()
	c.io.Interrupt()
}

// replace ends the connection immediately, in favour of a newer connection of the session.
func (c *conn) replace() {
	c.replaced.Store(true)
	c.end()
	c.link.Close()
}

// run handles the connection until all its goroutines have ended.
func (c *conn) run() {
	defer close(c.over)
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	err := c.greet()
	if err == nil {
		if c.reconnected {
			c.s.cfg.Report(c.s.prefixed("trainer %d has connected again from %v, session %d", c.hello.Trainer, c.link.RemoteAddr(), c.hello.Session))
		}
		err = c.serve()
	}
	c.cancel()
	last := c.last(err)
	if last == nil {
		c.link.Close() // no last frame
	}
	c.out.close(last)
	<-written
	if last != nil {
		c.drain()
	}
	c.link.Close()
	if c.hello.Reader {
		c.s.readers.Add(-1)
	}
	if c.hello.Reader && (err == io.EOF || err == message.ErrInterrupted) {
		return // an ordinary end
	}
	if !c.seated {
		c.s.cfg.Report(c.s.prefixed("a connection from %v: %v", c.link.RemoteAddr(), err))
		return
	}
	c.s.seats.leave(c, err)
	if err != errGoodbye { // the trainer reports its own leave
		c.s.cfg.Report(c.s.prefixed("the connection of trainer %d, session %d, has ended: %v", c.hello.Trainer, c.hello.Session, err))
	}
}

// drain reads and discards for a moment: closing with unread bytes could discard the last frame.
func (c *conn) drain() {
	const patience = time.Second
	_ = c.link.CloseWrite(patience, transport.ErrClosed)
	raw, _ := c.link.Detach()
	if raw.SetReadDeadline(time.Now().Add(patience)) == nil {
		_, _ = io.Copy(io.Discard, raw)
	}
}

// last returns the final frame, nil for none.
func (c *conn) last(err error) []byte {
	c.mu.Lock()
	if c.failure != nil {
		err = c.failure
	}
	c.mu.Unlock()
	f := (*message.Failure)(nil)
	switch {
	case c.replaced.Load() || err == errGoodbye:
		return nil
	case errors.As(err, &f):
	case errors.Is(err, message.ErrInterrupted):
		if f = c.s.reason(); f == nil || f.Reason == 0 {
			text := "the server ends"
			if f != nil {
				text = f.Text
			}
			return frameOf(message.TypeGoodbye, []byte(message.CutText(text)))
		}
	case isMalformed(err):
		f = &message.Failure{Reason: message.ReasonProtocol, Text: c.s.prefixed("%v", err)}
	default:
		return nil
	}
	return frameOf(message.TypeFailure, f.Append(nil))
}

// isMalformed distinguishes a peer's protocol errors from network errors.
func isMalformed(err error) bool {
	for _, fault := range []error{message.ErrMalformed, message.ErrProtocol, wire.ErrMagic, wire.ErrVersion, wire.ErrChecksum, wire.ErrTooLong} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

func frameOf(t wire.Type, payload []byte) []byte {
	b, err := message.AppendFrame(nil, t, payload)
	if err != nil {
		panic(err) // payload of 1 GiB
	}
	return b
}

// greet identifies the session, makes c its connection, and sends the welcome.
func (c *conn) greet() error {
	b, err := c.expect(message.TypeHello)
	if err != nil {
		return err
	}
	if c.hello, err = message.ParseHello(b); err != nil {
		return err
	}
	if c.hello.Reader {
		return c.greetReader()
	}
	c.session = c.hello.Trainer*c.hello.Sessions + c.hello.Session
	if err := c.sameJob(); err != nil {
		return err
	}
	if err := c.learnSchema(); err != nil {
		return err
	}
	c.engine, c.limits = c.s.engine, c.s.limits
	if err := c.sit(); err != nil {
		return err
	}
	last, err := c.engine.Join(c.session, c.hello.From, c.hello.Clock)
	if err != nil {
		return c.failed(fmt.Errorf("trainer %d, session %d: %w", c.hello.Trainer, c.hello.Session, err))
	}
	c.safe.begin(last)
	c.out.send(frameOf(message.TypeWelcome, c.s.cfg.welcome(last).Append(nil)))
	return nil
}

// expect reads a message of the given type, without a head.
func (c *conn) expect(t wire.Type) ([]byte, error) {
	got, _, n, err := c.io.Next()
	if err != nil {
		return nil, err
	}
	if got != t {
		return nil, fmt.Errorf("%w: a %s in place of the %s", message.ErrMalformed, message.Name(got), message.Name(t))
	}
	return c.io.ReadAll(n)
}

func (c *conn) mismatch(format string, args ...any) error {
	return &message.Failure{Reason: message.ReasonMismatch, Text: c.s.prefixed(format, args...)}
}

func (c *conn) sameJob() error {
	cfg, h := &c.s.cfg, c.hello
	if h.Job != cfg.Job {
		return c.mismatch("trainer %d is of job %q, this server is of %q", h.Trainer, h.Job, cfg.Job)
	}
	if cfg.Settings[message.PathSync] == message.SyncGeo && h.Settings[message.PathSync] == "" {
		return c.mismatch("trainer %d has not said that it pushes moves: in geo mode servers add what is pushed to the parameters, by no rule, and gradients would make them worse. Let it push gradients to servers of mode bsp, async or ssp, or keep copies and push by how much these have moved (internal/server/trainer does, with GeoSteps), and say so by the setting %q, %q",
			h.Trainer, message.PathSync, message.SyncGeo)
	}
	conflict := (*setting.ConflictError)(nil)
	if errors.As(c.s.agreed.Join(fmt.Sprintf("trainer %d", h.Trainer), h.Settings), &conflict) {
		return &message.Failure{Reason: message.ReasonSettings, Text: conflict.Error(), Over: conflict.Over}
	}
	if h.Server != cfg.Index || h.Servers != cfg.Servers {
		return c.mismatch("trainer %d takes this for server %d of %d, it is %d of %d: do all have the same list of servers?",
			h.Trainer, h.Server, h.Servers, cfg.Index, cfg.Servers)
	}
	if h.Trainers != cfg.Trainers || h.Sessions != cfg.Sessions {
		return c.mismatch("trainer %d is one of %d with %d sessions each, this server waits for %d with %d each: give all the same numbers",
			h.Trainer, h.Trainers, h.Sessions, cfg.Trainers, cfg.Sessions)
	}
	return nil
}

// sit makes c the session's connection, after the session's earlier connection has ended.
func (c *conn) sit() error {
	for {
		old, err := c.s.seats.take(c)
		if err != nil {
			return err
		}
		if old == nil {
			c.seated = true
			return nil
		}
		c.s.count.replaced.Add(1)
		old.replace()
		select {
		case <-old.over:
		case <-c.ctx.Done():
			return message.ErrInterrupted
		}
	}
}

// failed converts an error of the engine into a failure message.
func (c *conn) failed(err error) *message.Failure {
	f := &message.Failure{Reason: message.ReasonFailed, Text: c.s.prefixed("%v", err)}
	if e := c.s.ready(); e != nil {
		select {
		case <-e.Failed():
			if trainer, lost := c.s.seats.firstLost(); lost {
				f.Reason, f.Trainer = message.ReasonLost, trainer
			}
		default:
		}
	}
	return f
}

func (c *conn) serve() error {
	var acknowledging sync.WaitGroup
	acknowledging.Go(c.acknowledge)
	c.parkers.Go(c.help)
	err := c.read()
	c.cancel()
	c.parkers.Wait()
	close(c.safe.wake)
	acknowledging.Wait()
	return err
}

func (c *conn) read() error {
	for {
		t, h, n, err := c.io.Next()
		switch {
		case err != nil:
			return err
		case c.hello.Reader && !mayRead(t, h):
			err = fmt.Errorf("%w: a reader sends a %s", message.ErrMalformed, message.Name(t))
		case message.Sequenced(t):
			err = c.change(t, h, n)
		case t == message.TypePullRows || t == message.TypePullDense:
			err = c.pull(t, h, n)
		case t == message.TypeGather:
			err = c.meet(h, n)
		case t == message.TypeGathered:
			err = c.learn(h, n)
		case t == message.TypeSave:
			c.s.saves.order(c, h)
		case t == message.TypeGoodbye:
			c.s.seats.goodbye(c.session)
			return errGoodbye
		default:
			err = fmt.Errorf("%w: a %s in the middle", message.ErrMalformed, message.Name(t))
		}
		if err != nil {
			return err
		}
	}
}

func (c *conn) change(t wire.Type, h message.Head, n int) error {
	body := c.body.Sized(n)
	if err := c.io.Read(body); err != nil {
		return err
	}
	entry := c.begin(t, h, n)
	c.pullsBefore.Wait()
	ticket, err := c.apply(t, h, body)
	c.s.book.End(entry, err != nil)
	if err != nil {
		if isMalformed(err) {
			return err
		}
		return c.failed(fmt.Errorf("%s number %d of trainer %d, session %d, step %d: %w", message.Name(t), h.Number, c.hello.Trainer, c.hello.Session, h.Step, err))
	}
	c.s.count.changes.Add(1)
	c.safe.note(h.Number, ticket)
	return nil
}

func (c *conn) begin(t wire.Type, h message.Head, n int) record.Op {
	if c.hello.Reader {
		return record.Op{} // records are of trainers
	}
	return c.s.book.Begin(t, h, n, c.hello.Trainer, c.hello.Session)
}

func (c *conn) apply(t wire.Type, h message.Head, body []byte) (LSN, error) {
	switch t {
	case message.TypeClock:
		ticket, err := c.engine.Clock(c.session, h.Number, h.Step, math.Float64frombits(h.At))
		c.s.parked.look(c.s)
		return ticket, err
	case message.TypeLeave:
		ticket, err := c.engine.Leave(c.session, h.Number)
		if err == nil {
			c.s.seats.departed(c.session)
			c.s.meetings.leave(c.hello.Trainer)
			c.s.parked.look(c.s)
		}
		return ticket, err
	}
	if t == message.TypePushRows {
		c.s.count.rowsPushed.Add(int64(h.Count))
		keys := bytesview.As[uint64](body[:message.KeySize*h.Count])
		values, err := c.decodeRows(h, body[message.KeySize*h.Count:])
		if err != nil {
			return LSN{}, err
		}
		return c.engine.PushRows(c.session, h.Number, h.Table, h.Step, keys, values)
	}
	if h.Code == message.Coded {
		lo, values, err := c.decodeCoded(h, body)
		if err != nil {
			return LSN{}, err
		}
		return c.engine.PushDense(c.session, h.Number, h.Table, h.Step, lo, values)
	}
	values, err := c.decode(h.Code, body, h.Count)
	if err != nil {
		return LSN{}, err
	}
	if t == message.TypeSetDense {
		return c.engine.SetDense(c.session, h.Number, h.Table, int(h.At), values)
	}
	return c.engine.PushDense(c.session, h.Number, h.Table, h.Step, int(h.At), values)
}

func (c *conn) decodeRows(h message.Head, body []byte) (values []float32, err error) {
	dim, counts := c.limits.Dims[h.Table], c.limits.CountsOf(h.Table)
	if counts == 0 {
		return c.decode(h.Code, body, h.Count*dim)
	}
	c.values = bytesview.Sized(c.values, h.Count*(dim+counts))
	c.plain, err = h.Code.DecodeRows(c.values, body, dim, counts, c.plain)
	return c.values, err
}

// decode returns n values; float32 values are not copied.
func (c *conn) decode(code message.Code, body []byte, n int) ([]float32, error) {
	if code == message.FP32 {
		return bytesview.As[float32](body), nil
	}
	c.values = bytesview.Sized(c.values, n)
	return c.values, code.Decode(c.values, body)
}

// decodeCoded returns the values of a coded push in this server's range, from lo of the whole array
// on; values without an entry are zeros.
func (c *conn) decodeCoded(h message.Head, body []byte) (lo int, values []float32, err error) {
	s, err := c.coded.Decode(body)
	if err != nil {
		return 0, nil, err
	}
	n, at := c.limits.Arrays[h.Table], int(h.At)
	if s.Len > c.limits.Values || s.Len > n-at {
		return 0, nil, fmt.Errorf("%w: a coded push of %d values at %d of array %d, which has %d: at most %d at once", message.ErrMalformed, s.Len, at, h.Table, n, c.limits.Values)
	}
	from, to := schema.Cut(n, c.s.cfg.Servers, c.s.cfg.Index)
	lo, to = max(from, at), min(to, at+s.Len)
	if lo > to {
		return 0, nil, fmt.Errorf("%w: a coded push of values %d to %d, none on this server", message.ErrMalformed, at, at+s.Len)
	}
	c.values = bytesview.Sized(c.values, to-lo)
	clear(c.values)
	for i, p := range s.Index {
		if to := uint(int(p) + at - lo); to < uint(len(c.values)) {
			c.values[to] += s.Value[i] // 0 for -0, as in a sum
		}
	}
	return lo, c.values, nil
}
