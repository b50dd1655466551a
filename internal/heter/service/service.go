// Package service is a heter-trainer on the network: trainers send it micro-batches of a model's
// cut, and a [heter.Device] computes them. Package internal/heter/client is the other end, and
// internal/heter/message defines the protocol.
//
// # Steps
//
// A micro-batch belongs to a step and waits until the previous step has ended. A step ends when all
// trainers have ended theirs: the gradients of micro-batches are summed with those of the other
// heter-trainers ([Config.Meet]), in an order that does not depend on time, and the parameters are
// updated. A step is therefore common to all trainers, as with servers in bsp mode. Trainers
// receive a Commit.
//
// # Losses
//
// Trainers detect lost heter-trainers. A lost trainer ends the job, so that all remaining
// heter-trainers receive the same reports. A trainer that has detected a loss sends the lost
// micro-batches of the step to other heter-trainers, and then repeats the end of the step, with the
// remaining members. When all trainers agree, the remaining members form a group and sum. A member
// that had already ended the step gives the other members its parameters, and ignores resent
// micro-batches of the step.
//
// Trainers search for replacements of lost heter-trainers. A replacement has a new incarnation, and
// becomes a member at the end of a step with connections from all trainers. Another member then
// sends the state; the replacement has no micro-batches before.
//
// # Stateless heter-trainers
//
// With [Config.Stateless] trainers have the stage's parameters, as for asynchronous modes of
// servers. A trainer sends parameters for a step, the device computes the trainer's micro-batches
// with these parameters, and the trainer collects the gradient sum. The heter-trainer is then
// stateless: no agreement is needed, a loss costs only the recomputation of the micro-batches in
// flight, and a replacement works immediately. Memory: the parameters and their gradients, for each
// trainer.
//
// # Accounting
//
// Micro-batches of a connection are numbered 1, 2, 3, …, and the end of a step has their count: a
// repeated, reordered or missing micro-batch ends the job with an error. A connection may have at
// most [Config.Micros] micro-batches in flight, with memory for each: more are rejected.
//
// # Liveness
//
// Both ends send a message at least every [cluster.Times.Heartbeat]. A trainer without a byte for
// [cluster.Times.DeadAfter], or without a goodbye, is lost, and named in the error for the other
// trainers.
package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/connpeek"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/transport"
)

// Config configures a heter-trainer.
type Config struct {
	Ticket  transport.Credentials
	Version string // program version; trainers of other versions are rejected

	Index, Count int // number of this heter-trainer, and of all
	Trainers     int

	// Open makes the stage from the first trainer's description (Client's Config.About), and the
	// device, which Serve closes. The stage's hash must equal the trainers'.
	Open func(about []byte) (*heter.Cut, heter.Device, error)
	// Meet forms a group of this and other heter-trainers for the lifetime of the context; nil for
	// a single heter-trainer.
	Meet func(context.Context, GroupSpec) (StepGroup, error)
	// Stateless reports that trainers have the stage's parameters, and send them for each step,
	// without agreement and Meet.
	Stateless bool
	// ContinueOnLoss makes a lost trainer count as one that has left. It is for stateless
	// heter-trainers only, because a step with others needs all trainers.
	ContinueOnLoss bool
	// Addrs are the addresses of the heter-trainers, by number, for GroupSpec.Place, or nil.
	Addrs []string

	// Micros is the maximum number of micro-batches in flight per connection, Samples the maximum
	// per micro-batch, and Bytes the maximum size of frames in flight, except for a single
	// micro-batch. 0: 8, 16,384 and 64 MiB.
	Micros, Samples, Bytes int
	// LinkOnly disables shared memory with trainers of this host, as do encrypted links.
	LinkOnly bool
	// Times are the trainers' time limits to connect and to be silent.
	Times cluster.Times
	// Report receives lines for users. It may be nil; many goroutines call it.
	Report func(line string)
}

// Stats are a heter-trainer's counters.
type Stats struct {
	MicroBatches, Samples int64
	Steps                 uint64
	// Busy is the device's computing time, Agreed that of sums and updates, Starved idle time.
	Busy, Agreed, Starved time.Duration
	Read, Written         int64 // bytes
	Shared                int64 // bytes through shared memory, both ways
}

// Server is a heter-trainer.
type Server struct {
	cfg  Config
	door *transport.AcceptLimiter
	desk *sharedmem.Broker // nil without shared memory

	opening sync.Mutex
	about   []byte // description that the device was opened with
	cut     *heter.Cut
	device  heter.Device
	values  int // parameters on the device
	state   int // values of the device's state

	// group and the next fields belong to the working goroutine.
	group        StepGroup // nil without a group
	incarnations []uint64  // incarnations of the group's members, by heter-trainer
	sums         orderedSum
	loaded       uint64 // version of the owner's parameters on the device; 0: none
	summing      *conn  // trainer of the device's gradient sum, or nil

	mu          sync.Mutex
	changed     sync.Cond
	queue       []*task
	step        uint64 // current step, from 1
	closing     stepCommit
	conns       []*conn // indexed by trainer
	leftCount   int     // trainers that have said goodbye
	incarnation uint64
	known       []uint64          // incarnations that may have micro-batches of the current step
	posted      map[string][]byte // endpoints of groups that this heter-trainer starts, by name
	owner       *conn             // trainer of the device's parameters, or nil
	joining     bool              // a replacement without state
	err         error
	figures     Stats
	regions     []*sharedRegions
}

// Validate returns all errors together.
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

// New returns a server that is not yet serving.
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
	s.sums.lanes, s.sums.trainers = cfg.Count, cfg.Trainers
	s.sums.reset()
	const strangers = 128
	s.door = transport.NewDoor(strangers, cfg.Report)
	return s, nil
}

var errAllLeft = errors.New("all trainers have left")

// Serve accepts trainers from l, which it closes, until all have left. A lost trainer, or any other
// obstacle to the step, is an error, also sent to the other trainers. A second call is not allowed.
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

// open makes the device for the first trainer, and compares the description for later ones.
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
	values, state := len(device.Values()), 0
	for _, x := range device.State() {
		state += len(x)
	}
	if err := device.Err(); err != nil {
		device.Close()
		err = fmt.Errorf("reading the state of a new device: %w", err)
		s.fail(err) // no other trainer would open another device
		return err
	}
	s.about, s.cut, s.device, s.values, s.state = bytes.Clone(about), cut, device, values, state
	return nil
}

// fail ends the server with the first error.
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
	if s.closing.cancel != nil { // the working goroutine may wait for lost members
		s.closing.cancel()
	}
	s.changed.Broadcast()
}

// missing ends the server with an error if some trainer has not connected in time.
func (s *Server) missing() {
	s.mu.Lock()
	var who []int
	if s.cfg.Stateless && s.joining { // earlier trainers may have left
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
			if err == nil { // otherwise the AcceptLimiter has reported it
				newConn(s, link).run()
			}
		})
	}
}

// count counts bytes through shared memory.
func (s *Server) count(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.figures.Shared += n
}

// add queues a task, and rejects a wrong step.
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

// seated returns the number of registered trainers. s.mu is held.
func (s *Server) seated() (n int) {
	for _, c := range s.conns {
		if c != nil {
			n++
		}
	}
	return n
}

// release removes a trainer that did not receive the welcome: it will retry.
func (s *Server) release(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.hello.Trainer] == c {
		s.conns[c.hello.Trainer] = nil
	}
}

func (s *Server) goodbye() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leftCount++
	s.changed.Broadcast()
}
