package service

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/frames"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// conn is the connection of a trainer, with a goroutine for reads and a goroutine for writes.
type conn struct {
	s      *Server
	io     *frames.Conn
	hello  message.Hello
	layout message.Layout
	number uint64       // last micro-batch
	bytes  atomic.Int64 // bytes of micro-batches in flight
	free   chan *task   // idle tasks
	out    chan *task   // completed tasks
	notes  chan notice
	over   chan struct{}
	text   chan string // failure that ends it
	key    sharedmem.Key
	shared atomic.Pointer[sharedRegions] // nil without shared memory
	// stopped is closed when the server has ended the connection.
	stopped  chan struct{}
	lost     sync.Once
	borrowed trainerParams
}

// notice is an unrequested message to a trainer.
type notice struct {
	typ     wire.Type
	payload []byte
}

func newConn(s *Server, link *transport.Link) *conn {
	n := s.cfg.Micros + 2 // plus an ask or collect, and one already answered
	c := &conn{
		s: s, io: frames.New(link, "trainer", s.cfg.Times.DeadAfter), free: make(chan *task, n), out: make(chan *task, n),
		notes: make(chan notice, 64), over: make(chan struct{}), text: make(chan string, 1), stopped: make(chan struct{}),
	}
	c.borrowed.written = make(chan error, 1)
	for range n {
		c.free <- &task{conn: c}
	}
	return c
}

func (c *conn) run() {
	link := c.io.Link()
	defer link.Close()
	defer func() { c.s.desk.Forget(c.key) }()
	f, err := c.io.Header()
	if err == nil && f.Type == message.TypeWhere {
		_ = c.tellWhere(f) // the peer retries after an error
		return
	}
	if err == nil {
		err = c.greet(f)
	}
	if err != nil {
		c.s.cfg.Report(fmt.Sprintf("heter-trainer %d: a connection from %v: %v", c.s.cfg.Index, link.RemoteAddr(), err))
		_ = c.io.WriteFrame(message.TypeFailure, textOf(err))
		return
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	err = c.read()
	if err == nil {
		c.s.goodbye()
	} else if !errors.Is(err, frames.ErrInterrupted) {
		c.lose(fmt.Errorf("trainer %d: %w", c.hello.Trainer, err))
	}
	close(c.over)
	<-written
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.figures.Read += link.Received()
	c.s.figures.Written += link.Sent()
}

// lose ends the server because of a lost trainer, or continues without it.
func (c *conn) lose(err error) {
	if !c.s.cfg.ContinueOnLoss {
		c.s.fail(err)
		return
	}
	c.lost.Do(func() {
		c.s.cfg.Report(fmt.Sprintf("heter-trainer %d: %v; it goes on with the others", c.s.cfg.Index, err))
		c.s.goodbye()
	})
}

// enqueueNotice queues a notice. A trainer that has left gets none. s.mu is held.
func (c *conn) enqueueNotice(n notice) {
	select {
	case c.notes <- n:
	case <-c.over:
	default:
		go c.s.fail(fmt.Errorf("trainer %d has left %d notices unread", c.hello.Trainer, cap(c.notes)))
	}
}

// end ends the connection with its cause, once. s.mu is held.
func (c *conn) end(err error) {
	close(c.stopped)
	if !errors.Is(err, errAllLeft) {
		select {
		case c.text <- err.Error():
		default:
		}
	}
	c.io.Interrupt()
}

func textOf(err error) []byte {
	text := []byte(err.Error())
	return text[:min(len(text), message.MaxText)]
}

// greet checks the hello and the hash of the trainer's stage.
func (c *conn) greet(f wire.Header) error {
	if f.Type != message.TypeHello || f.Length > message.MaxHello {
		return message.Malformed("a %s of %d bytes where a hello must come", message.Name(f.Type), f.Length)
	}
	b, err := c.io.ReadAll(f.Length)
	if err != nil {
		return err
	}
	if c.hello, err = message.ParseHello(b); err != nil {
		return err
	}
	cfg := &c.s.cfg
	if c.hello.Trainers != cfg.Trainers || c.hello.Index != cfg.Index || c.hello.Count != cfg.Count {
		return fmt.Errorf("trainer %d of %d looks for heter-trainer %d of %d; this is %d of %d, for %d trainers",
			c.hello.Trainer, c.hello.Trainers, c.hello.Index, c.hello.Count, cfg.Index, cfg.Count, cfg.Trainers)
	}
	if c.hello.Stateless != cfg.Stateless {
		return fmt.Errorf("trainer %d %s the part's parameters, and this heter-trainer is told otherwise: give all the same sync", c.hello.Trainer, map[bool]string{true: "lends", false: "does not lend"}[c.hello.Stateless])
	}
	if err := c.s.open(c.hello.About); err != nil {
		return fmt.Errorf("trainer %d: %w", c.hello.Trainer, err)
	}
	if cut := c.s.cut; c.hello.Hash != cut.Hash {
		const advice = "give both the same program, model and settings"
		if c.s.agrees() {
			return fmt.Errorf("trainer %d has another part of a model (sha256 %.4x…) than this heter-trainer and the trainers before it, which have that of %s (%.4x…): %s", c.hello.Trainer, c.hello.Hash, cut.Model, cut.Hash, advice)
		}
		return fmt.Errorf("%s (that of %s, sha256 %.4x…) than trainer %d (%.4x…): %s", message.OtherPart, cut.Model, cut.Hash, c.hello.Trainer, c.hello.Hash, advice)
	}
	if err := c.s.admitTrainer(c); err != nil {
		return err
	}
	c.layout = message.Layout{Cut: c.s.cut, Code: c.hello.Code}
	w := message.Welcome{
		Micros: cfg.Micros, Samples: cfg.Samples, Bytes: cfg.Bytes, Values: c.s.values, State: c.s.state, Incarnation: c.s.incarnation,
		Heartbeat: cfg.Times.Heartbeat, Silence: cfg.Times.DeadAfter, Start: c.s.device.Source(), Precision: heter.PrecisionOf(c.s.device),
	}
	w.ShmSocket, w.Key = c.offer()
	if err := c.io.WriteFrame(message.TypeWelcome, w.Append(nil)); err != nil {
		c.s.release(c)
		return fmt.Errorf("trainer %d: %w", c.hello.Trainer, err)
	}
	return nil
}

// agrees reports whether a trainer with this heter-trainer's stage has connected.
func (s *Server) agrees() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seated() > 0
}

// read reads until the end; nil means a goodbye.
func (c *conn) read() error {
	for {
		f, err := c.io.Header()
		if err == io.EOF {
			return errors.New("it is lost: its connection ended without a goodbye")
		}
		if err != nil {
			return fmt.Errorf("it is lost: %w", err)
		}
		if f != (wire.Header{Type: f.Type, Length: f.Length}) {
			return message.Malformed("a %s frame with a tag", message.Name(f.Type))
		}
		end := false
		switch owns := !c.s.cfg.Stateless; { // depends on the owner of the parameters
		case owns && f.Type == message.TypeEnd:
			err = c.upTo(f, message.MaxEnd, c.ended)
		case owns && f.Type == message.TypeAsk:
			err = c.short(f, message.AskSize, c.asked)
		case owns && f.Type == message.TypePut:
			err = c.upTo(f, message.AskSize+4*message.MaxValues, c.put)
		case !owns && f.Type == message.TypePut:
			err = c.loan(f.Length)
		case !owns && f.Type == message.TypeEnd:
			err = c.upTo(f, message.MaxEnd, c.collect)
		default:
			end, err = c.always(f)
		}
		if end || err != nil {
			return err
		}
	}
}

// always handles the frames of both modes; end: it was the last frame.
func (c *conn) always(f wire.Header) (end bool, err error) {
	switch f.Type {
	case message.TypeHeartbeat:
		return false, c.short(f, 0, nil)
	case message.TypeMicroBatch:
		return false, c.micro(f.Length)
	case message.TypePlaced:
		return false, c.short(f, message.PlacedSize, c.placed)
	case message.TypeGoodbye:
		return true, c.short(f, 0, nil)
	case message.TypeFailure:
		return true, c.upTo(f, message.MaxText, func(text []byte) error { return fmt.Errorf("it has ended: %s", text) })
	}
	return true, message.Malformed("a trainer does not send %s frames", message.Name(f.Type))
}

func (c *conn) short(f wire.Header, size int, do func(b []byte) error) error {
	if f.Length != size {
		return message.Malformed("a %s of %d bytes, want %d", message.Name(f.Type), f.Length, size)
	}
	b, err := c.io.ReadAll(size)
	if err != nil || do == nil {
		return err
	}
	return do(b)
}

func (c *conn) upTo(f wire.Header, most int, do func(b []byte) error) error {
	if f.Length > most {
		return message.Malformed("a %s of %d bytes, want %d at most", message.Name(f.Type), f.Length, most)
	}
	return c.short(f, f.Length, do)
}

func (c *conn) micro(n int) error {
	if most := min(c.layout.RequestBytes(c.s.cfg.Samples), wire.MaxPayload); n > most {
		return message.Malformed("a micro-batch of %d bytes; one of %d samples, the most, has %d", n, c.s.cfg.Samples, most)
	}
	t, err := c.take()
	if err != nil {
		return err
	}
	if err := c.room(t, wire.HeaderSize+n); err != nil {
		return err
	}
	t.frame = bytesview.Sized(t.frame, n)
	if err := c.io.Read(t.frame); err != nil {
		return err
	}
	if t.head, err = c.layout.ParseMicro(t.frame, &t.buffer, c.s.cfg.Samples); err != nil {
		return err
	}
	t.answer, t.micro = message.TypeDone, &t.buffer
	return c.queue(t)
}

func (c *conn) queue(t *task) error {
	if c.number++; t.head.Number != c.number {
		return message.Malformed("micro-batch %d where %d must come: each comes once and in turn", t.head.Number, c.number)
	}
	t.step = t.head.Step
	if c.s.cfg.Stateless {
		if err := c.lendable(t); err != nil {
			return err
		}
	}
	return c.s.add(t)
}

// room counts the bytes of a micro-batch before it is read. A single micro-batch may have any size.
func (c *conn) room(t *task, bytes int) error {
	t.bytes = bytes
	if all := c.bytes.Add(int64(bytes)); all > int64(bytes) && all > int64(c.s.cfg.Bytes) {
		return message.Malformed("micro-batches of %d bytes under way, the limit is %d", all, c.s.cfg.Bytes)
	}
	return nil
}

func (c *conn) take() (*task, error) {
	select {
	case t := <-c.free:
		return t, nil
	default:
		return nil, message.Malformed("more than %d micro-batches under way", c.s.cfg.Micros)
	}
}

func (c *conn) ended(b []byte) error {
	e, err := c.counted(b)
	if err != nil {
		return err
	}
	return c.s.end(c.hello.Trainer, e)
}

// counted reads the end of a step, and checks that all its micro-batches have arrived.
func (c *conn) counted(b []byte) (message.End, error) {
	e, err := message.ParseEnd(b)
	if err == nil && e.Count != c.number {
		err = message.Malformed("the end of step %d after %d micro-batches, %d have come", e.Step, e.Count, c.number)
	}
	return e, err
}

func (c *conn) asked(b []byte) error {
	a, err := message.ParseAsk(b, c.s.state)
	if err != nil {
		return err
	}
	return c.wants(message.TypeValues, a, nil)
}

func (c *conn) put(b []byte) error {
	n := min(len(b), message.AskSize)
	a, err := message.ParsePiece(b[:n], len(b), c.s.state)
	if err == nil && a.Step != 1 {
		err = message.Malformed("values to begin with, of step %d", a.Step)
	}
	if err != nil {
		return err
	}
	return c.wants(message.TypeTaken, a, b[n:])
}

// wants queues a read of the state or, with values, a write.
func (c *conn) wants(answer wire.Type, a message.Ask, values []byte) error {
	t, err := c.take()
	if err != nil {
		return err
	}
	t.micro, t.answer, t.ask, t.step, t.bytes, t.frame = nil, answer, a, a.Step, 0, append(t.frame[:0], values...)
	return c.s.add(t)
}

// write writes results and heartbeats until the end. The last frame has a failure's cause.
func (c *conn) write() {
	beat := time.NewTicker(c.s.cfg.Times.Heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case t := <-c.out:
			for len(c.notes) > 0 && err == nil { // notices first
				n := <-c.notes
				err = c.io.WriteFrame(n.typ, n.payload)
			}
			if err == nil {
				err = c.answer(t)
			}
		case n := <-c.notes:
			err = c.io.WriteFrame(n.typ, n.payload)
		case <-beat.C:
			err = c.io.WriteFrame(message.TypeHeartbeat, nil)
		case <-c.over:
			select {
			case text := <-c.text:
				_ = c.io.WriteFrame(message.TypeFailure, textOf(errors.New(text)))
				_ = c.io.Link().CloseWrite(time.Second, transport.ErrClosed)
				c.drain()
			default:
			}
			return
		}
		if err != nil {
			c.io.Interrupt()
			c.lose(fmt.Errorf("trainer %d is lost: %w", c.hello.Trainer, err))
		}
	}
}

// drain reads and discards for a moment: closing with unread bytes could discard the last frame.
func (c *conn) drain() {
	nc, _ := c.io.Link().Detach()
	if nc.SetReadDeadline(time.Now().Add(time.Second)) == nil {
		_, _ = io.Copy(io.Discard, nc)
	}
}

func (c *conn) answer(t *task) error {
	if c.s.cfg.Stateless && t.answer == message.TypeValues {
		return c.writeSum(t)
	}
	var err error
	switch t.answer {
	case message.TypeDone:
		t.frame = bytesview.Sized(t.frame, c.layout.ResultBytes(t.micro.N, t.micro.Eval))
		err = c.layout.Done(t.frame, t.micro, t.head.Number)
	case message.TypeSharedResult:
		t.frame = bytesview.Sized(t.frame, message.HeadSize)
		err = c.layout.Return(t.frame, t.back, t.micro, t.head.Number)
	}
	if err != nil {
		return fmt.Errorf("micro-batch %d: %w", t.head.Number, err)
	}
	var head [wire.HeaderSize]byte
	if err := wire.PutHeader(&head, wire.Header{Type: t.answer, Length: len(t.frame)}); err != nil {
		return err
	}
	c.bytes.Add(-int64(t.bytes)) // before the trainer can read the result and send the next one
	err = c.io.Write(net.Buffers{head[:], t.frame})
	c.free <- t
	return err
}
