// Package service is a heter-trainer on the network: trainers send it micro-batches of what crosses
// a model's cut, and a [heter.Device] computes them. Package internal/heter/client is the other
// end, internal/heter/message says what travels between them.
//
// # Steps
//
// A micro-batch belongs to a step and waits until the one before has ended. A step ends when all trainers have ended theirs: what
// the device has summed up is agreed on with the other heter-trainers ([Config.Meet]), and the parameters move. So a step is
// that of all trainers together, as with servers of mode bsp. Trainers are told that it is done (a Commit).
//
// # Losses
//
// Trainers find out which heter-trainer is lost: a trainer that is lost itself ends the job, so what all of them say together is what all
// heter-trainers that are left hear. One that has lost some says the end of its step anew, with who they are, and sends before what
// these had of the step. When all say the same, who is left forms a group and agrees. A member that had ended the step already, and the
// others had not, gives them its parameters; it takes no micro-batch of that step again.
//
// Trainers go on looking for one that they have lost. A heter-trainer that they find in its place is late: it has a life (a number) of its own,
// and becomes a member with the end of a step of which all trainers say that they are connected to that life. Others of the group give it
// their state then, and it has no micro-batch before.
//
// # Parameters that are lent
//
// With [Config.Stateless] trainers have the part's parameters, as they have all others where servers move them without all being in step. A trainer
// lends its own for a step, micro-batches of it are computed with these whichever trainer's come between, and the trainer collects their sum of
// gradients. So a heter-trainer has nothing that anybody needs: no two of them agree on anything, one that is lost costs the micro-batches of
// steps under way, which are computed elsewhere, and one that comes late works at once. Memory is that of the parameters, and of their
// gradients, for each trainer.
//
// # Accounting
//
// Micro-batches of a connection are numbered 1, 2, 3, …, and the end of a step says how many there were: one that came twice, out
// of turn or not at all ends the job by name. A connection has at most [Config.Micros] of them under way, and the memory for
// these is its own: who sends more is refused.
//
// # Who is there
//
// Both ends say something at least every [cluster.Times.Heartbeat]. A trainer that is silent for [cluster.Times.DeadAfter], or goes
// without a goodbye, is lost, and named in the error that ends the others.
package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/connpeek"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// Config says what a heter-trainer is.
type Config struct {
	Ticket  transport.Credentials
	Version string // of the program; trainers of other versions are refused

	Index, Count int // which of how many heter-trainers
	Trainers     int

	// Open makes the part of what the first trainer says of its model, Client's Config.About, and the device that computes it, which
	// Serve closes. The part's hash must be that of trainers.
	Open func(about []byte) (*heter.Cut, heter.Device, error)
	// Meet makes a group of some heter-trainers, of which this is one, that lives as long as the context; nil where there is one.
	Meet func(context.Context, GroupSpec) (StepGroup, error)
	// Stateless says that trainers have the part's parameters, and lend them for each of their steps: there is nothing to agree on, and no Meet.
	Stateless bool
	// ContinueOnLoss says that a trainer that is lost counts as one that has left. It is for Stateless: where all trainers make a step together none can be
	// done without.
	ContinueOnLoss bool
	// Addrs are where heter-trainers listen, by number, for GroupSpec.Place; nil where Meet does without.
	Addrs []string

	// Micros is how many micro-batches a connection may have under way, Samples how many one may have, and Bytes what the frames
	// of those under way may take, unless it is one alone. 0: 8, 16,384 and 64 MiB.
	Micros, Samples, Bytes int
	// LinkOnly says that no memory is shared with trainers of this host. It is not with those whose link is encrypted, either.
	LinkOnly bool
	// Times say how long trainers may take to come, and be silent.
	Times cluster.Times
	// Report gets a line about what a person should know. It may be nil; it is called by many goroutines.
	Report func(line string)
}

// Stats are what a heter-trainer has done.
type Stats struct {
	MicroBatches, Samples int64
	Steps                 uint64
	// Busy is the time in which the device computed, Agreed that of agreeing and updating, and Starved that without anything to do.
	Busy, Agreed, Starved time.Duration
	Read, Written         int64 // bytes
	Shared                int64 // bytes that went through memory that a trainer has, too, there and back
}

// Server is one heter-trainer.
type Server struct {
	cfg  Config
	door *transport.AcceptLimiter
	desk *sharedmem.Broker // nil: no memory is shared

	opening sync.Mutex
	about   []byte // of who has opened the device
	cut     *heter.Cut
	device  heter.Device

	// These are those of the goroutine that works.
	group        StepGroup // nil: there is none
	incarnations []uint64  // of its members, by heter-trainer
	sum          []float32
	loaded       uint64 // which of the owner's values the device has; 0: none
	summing      *conn  // whose sum of gradients it has; nil: nobody's

	mu          sync.Mutex
	changed     sync.Cond
	queue       []*task
	step        uint64 // under way, from 1
	closing     stepCommit
	conns       []*conn // by trainer
	leftCount   int     // trainers that have said goodbye
	incarnation uint64
	known       []uint64          // lives of those that may have had micro-batches of the step under way
	posted      map[string][]byte // by name of a meeting that this one begins, its notice
	owner       *conn             // whose values the device has, where trainers lend them; nil: nobody's. Who works writes it
	joining     bool              // this one stands in for one that was lost, and has no state yet
	err         error
	figures     Stats
	regions     []*sharedRegions
}

// Validate reports all faults together.
func (c Config) Validate() error {
	var errs []error
	if c.Ticket == nil || c.Open == nil {
		errs = append(errs, errors.New("want a ticket, and what makes a device"))
	}
	if c.Count < 1 || c.Index < 0 || c.Index >= c.Count || c.Trainers < 1 {
		errs = append(errs, fmt.Errorf("heter-trainer %d of %d for %d trainers", c.Index, c.Count, c.Trainers))
	}
	if c.Count > 1 && c.Meet == nil && !c.Stateless {
		errs = append(errs, fmt.Errorf("%d heter-trainers, and nothing by which they agree", c.Count))
	}
	if c.ContinueOnLoss && !c.Stateless {
		errs = append(errs, errors.New("trainers that may be lost, and have a step in common"))
	}
	if c.Addrs != nil && len(c.Addrs) != c.Count {
		errs = append(errs, fmt.Errorf("%d heter-trainers with %d addresses", c.Count, len(c.Addrs)))
	}
	if c.Micros < 0 || c.Samples < 0 || c.Bytes < 0 {
		errs = append(errs, fmt.Errorf("%d micro-batches of %d samples and %d bytes: want no negative numbers", c.Micros, c.Samples, c.Bytes))
	}
	return errors.Join(append(errs, c.Times.Validate())...)
}

// New returns a server that does nothing yet.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("heter: %w", err)
	}
	or := func(x *int, usual int) {
		if *x == 0 {
			*x = usual
		}
	}
	or(&cfg.Micros, 8)
	or(&cfg.Samples, 16<<10)
	or(&cfg.Bytes, 64<<20)
	cfg.Times = cfg.Times.WithDefaults()
	if cfg.Report == nil {
		cfg.Report = func(string) {}
	}
	s := &Server{cfg: cfg, step: 1, closing: stepCommit{ends: make([]message.End, cfg.Trainers)}, conns: make([]*conn, cfg.Trainers), posted: map[string][]byte{}, incarnation: 1 + rand.Uint64N(math.MaxUint64)}
	s.changed.L = &s.mu
	const strangers = 128
	s.door = transport.NewDoor(strangers, cfg.Report)
	return s, nil
}

// errAllLeft ends Serve in good order.
var errAllLeft = errors.New("all trainers have left")

// Serve lets trainers in who come to l, which it closes, until all have left. A trainer that is lost, or anything else that keeps the
// step from going on, is an error, and the others are told of it. It is called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) (Stats, error) {
	var all sync.WaitGroup
	inner, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(inner, func() { _ = l.Close(); s.fail(context.Cause(ctx)) })()
	s.share(inner)
	all.Go(func() { s.accept(inner, l, &all) })
	late := time.AfterFunc(s.cfg.Times.Join, func() { s.missing() })
	err := s.work(inner)
	late.Stop()
	s.fail(err)
	s.leaveGroup()
	cancel()
	_ = l.Close()
	all.Wait()
	s.unshare()
	if s.device != nil {
		s.device.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.err, errAllLeft) {
		return s.figures, nil
	}
	return s.figures, fmt.Errorf("heter-trainer %d: %w", s.cfg.Index, s.err)
}

// open makes the device, unless another trainer has, who must have said the same.
func (s *Server) open(about []byte) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.device != nil {
		if !bytes.Equal(s.about, about) {
			return errors.New("it says otherwise than other trainers what its model is built for: give all the same data and settings")
		}
		return nil
	}
	cut, device, err := s.cfg.Open(about)
	if err != nil {
		return err
	}
	s.about, s.cut, s.device = bytes.Clone(about), cut, device
	return nil
}

// fail ends the server, for the first reason that it is given.
func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || err == nil {
		return
	}
	s.err = err
	for _, c := range s.conns {
		if c != nil {
			c.end(err)
		}
	}
	if s.closing.cancel != nil { // the goroutine that works may wait for others, who may not come any more
		s.closing.cancel()
	}
	s.changed.Broadcast()
}

// missing ends the server if not all trainers have come.
func (s *Server) missing() {
	s.mu.Lock()
	var who []int
	if s.cfg.Stateless && s.joining { // others may have left before
		s.mu.Unlock()
		return
	}
	for i, c := range s.conns {
		if c == nil {
			who = append(who, i)
		}
	}
	s.mu.Unlock()
	if who != nil {
		s.fail(fmt.Errorf("trainers %v have not come within %v", who, s.cfg.Times.Join))
	}
}

// accept lets connections in.
func (s *Server) accept(ctx context.Context, l net.Listener, all *sync.WaitGroup) {
	connpeek.SpeakFirst(l)
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				s.fail(fmt.Errorf("accepting connections: %w", err))
			}
			return
		}
		stranger := s.door.Admit(nc)
		if stranger == nil {
			continue
		}
		all.Go(func() {
			hello := transport.Hello{Version: s.cfg.Version, Purpose: transport.Heter, Rank: s.cfg.Index, WorldSize: s.cfg.Trainers}
			link, _, err := stranger.Accept(ctx, s.cfg.Ticket, hello, nil)
			if err == nil { // else the door has reported it
				newConn(s, link).run()
			}
		})
	}
}

// task is something that a trainer wants: a micro-batch computed, or values read or written.
type task struct {
	conn   *conn
	answer wire.Type // what kind it has
	head   message.Head
	micro  *heter.MicroBatch // own or near
	buffer heter.MicroBatch
	shared heter.MicroBatch // its tensors lie in shared memory
	back   []byte           // where results are wanted there
	ask    message.Ask
	step   uint64
	frame  []byte // as it came, of values these alone, and then the answer
	bytes  int    // of the frame that came, as conn.bytes counts them
}

// next waits for what can be done: a task of the step under way, or of one that is over or, with nil, a step's end.
func (s *Server) next() (*task, message.End, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.err != nil:
			return nil, message.End{}, s.err
		case s.leftCount == s.cfg.Trainers, s.joining && s.leftCount > 0 && s.leftCount == s.seated():
			return nil, message.End{}, errAllLeft
		}
		if i := s.ready(); i >= 0 {
			t := s.queue[i]
			s.queue = slices.Delete(s.queue, i, i+1)
			return t, message.End{}, nil
		}
		if e, all := s.agreedEnd(); all {
			return nil, e, nil
		}
		s.changed.Wait()
	}
}

// work does what there is to do until the server ends.
func (s *Server) work(ctx context.Context) error {
	for at := time.Now(); ; {
		t, e, err := s.next()
		begun := time.Now()
		if err != nil {
			return err
		}
		if t == nil {
			err = s.commitStep(ctx, e)
		} else {
			err = s.do(t)
		}
		now := time.Now()
		s.mu.Lock()
		s.figures.Starved += begun.Sub(at)
		if t == nil {
			s.figures.Agreed += now.Sub(begun)
		} else {
			s.figures.Busy += now.Sub(begun)
		}
		s.mu.Unlock()
		if at = now; err != nil {
			return err
		}
	}
}

// do does a task and hands it back to its connection.
func (s *Server) do(t *task) error {
	switch t.answer {
	case message.TypeValues:
		if s.cfg.Stateless {
			s.collected(t)
			return nil
		}
		t.frame = s.values(t.ask, t.frame)
		t.conn.out <- t
		return nil
	case message.TypeTaken:
		if err := s.begin(t.ask, t.frame); err != nil {
			return err
		}
		t.frame = t.ask.Append(t.frame[:0])
		t.conn.out <- t
		return nil
	}
	if s.cfg.Stateless {
		s.loadParams(t)
	} else if t.step < s.step { // one that was lost elsewhere, of a step whose sum has it
		t.micro.Loss, t.micro.Terms, t.micro.Correct = 0, 1, 0
		t.conn.out <- t
		return nil
	}
	if err := panics.Do(func() error { return s.device.Run(t.micro) }); err != nil {
		return fmt.Errorf("step %d: micro-batch %d of trainer %d: %w", t.step, t.head.Number, t.conn.hello.Trainer, err)
	}
	s.mu.Lock()
	s.figures.MicroBatches++
	s.figures.Samples += int64(t.micro.N)
	t.conn.borrowed.waiting--
	s.mu.Unlock()
	t.conn.out <- t // there is room for as many as are under way
	return nil
}

// count counts bytes that go through shared memory.
func (s *Server) count(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.figures.Shared += n
}

// add queues a task. One of a step that is over, or that does not follow, is malformed.
func (s *Server) add(t *task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.closing.ends[t.conn.hello.Trainer]
	if !s.cfg.Stateless && t.step != last.Step+1 && !(last.Open && t.step == last.Step) {
		return message.Malformed("trainer %d is at step %d and sends for step %d", t.conn.hello.Trainer, last.Step+1, t.step)
	}
	if s.queue = append(s.queue, t); t.micro != nil {
		t.conn.borrowed.waiting++
	}
	s.changed.Broadcast()
	return nil
}

// admitTrainer seats a trainer.
func (s *Server) admitTrainer(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := s.seated()
	switch {
	case s.err != nil:
		return s.err
	case !s.cfg.Stateless && s.joining && !c.hello.Joining && others > 0:
		return fmt.Errorf("%s by another trainer than trainer %d", message.ReplacementPrefix, c.hello.Trainer)
	case !s.cfg.Stateless && (others > 0 && s.joining != c.hello.Joining || c.hello.Joining && s.step > 1):
		return fmt.Errorf("trainer %d says otherwise than others whether this heter-trainer is the first in its place", c.hello.Trainer)
	case s.conns[c.hello.Trainer] != nil:
		return fmt.Errorf("trainer %d is connected already: does another process say that it is this trainer?", c.hello.Trainer)
	}
	s.conns[c.hello.Trainer], s.joining = c, s.joining || c.hello.Joining
	return nil
}

// seated is how many trainers have come. s.mu is held.
func (s *Server) seated() (n int) {
	for _, c := range s.conns {
		if c != nil {
			n++
		}
	}
	return n
}

// release takes the seat back from a trainer that has not learnt that it has one: it will try again.
func (s *Server) release(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.hello.Trainer] == c {
		s.conns[c.hello.Trainer] = nil
	}
}

// goodbye notes that a trainer has left.
func (s *Server) goodbye() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leftCount++
	s.changed.Broadcast()
}
