package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// headLook is the interval at which a server that waits for a trainer to begin an exchange checks
// whether others have begun it.
const headLook = time.Second

// Server sums the pushes of a mesh's trainers and sends back the sums. The goroutine that calls Run
// adds; a further goroutine per trainer sends, so that no trainer waits for another to read.
type Server struct {
	mesh     transport.Mesh
	cfg      Config
	servers  int
	trainers []trainer
	kernels  *simd.Kernels
	wait     waitState
	note     opRecorder

	seq    uint32
	head   head // exchange in progress
	layout layout
	codes  []compress.Quantiser // codes known
	code   compress.Quantiser   // code of the exchange

	coders  coders
	acc     buffer   // a segment's sum
	part    buffer   // next addend
	present []uint64 // entries of a segment's sum, a bit each
	whole   bool     // all entries present
	sparse  compress.Sparse

	sums    [maxInFlight]sum // ring of recent sums
	made    uint64           // number of sums so far
	senders sync.WaitGroup
	fault   atomic.Pointer[Error]

	exchanges, received, sent, queued atomic.Int64
}

// trainer is a server's state of a trainer.
type trainer struct {
	recv    transport.Recv // receive of the head, or of a sparse body
	posted  bool
	head    [headBytes]byte
	decoded head // decoded
	came    bool // the next exchange's head has arrived
	hasLeft bool // left without an error
	body    buffer
	of      size // size of body
	slots   [maxInFlight]segment
	toSend  chan *sum
}

// segment is a posted receive of a trainer's segment, or of its size.
type segment struct {
	recv   transport.Recv
	posted bool
	body   buffer
	size   [sizeBytes]byte
}

// Stats counts a server's work since its start.
type Stats struct {
	Exchanges      int64 // completed
	Received, Sent int64 // bytes of payload
	Queued         int64 // current number of unsent sums, once per trainer
}

// NewServer makes this member of the mesh a server, without sending data. The caller closes the
// mesh. Errors: a configuration that is invalid or does not fit the mesh.
func NewServer(mesh transport.Mesh, cfg Config) (*Server, error) {
	if err := cfg.fits(mesh, true); err != nil {
		return nil, err
	}
	return &Server{
		mesh: mesh, cfg: cfg.filled(), servers: mesh.Size() - cfg.Trainers,
		trainers: make([]trainer, cfg.Trainers), kernels: simd.Host(), codes: append(Codes(), cfg.Codes...),
		note: newScribe(cfg.Record), wait: waitState{rec: cfg.Record},
	}, nil
}

// Index is the server's number, from 0.
func (s *Server) Index() int { return s.mesh.Rank() - s.cfg.Trainers }

// Stats returns the server's counters. Any goroutine may call it at any time.
func (s *Server) Stats() Stats {
	return Stats{Exchanges: s.exchanges.Load(), Received: s.received.Load(), Sent: s.sent.Load(), Queued: s.queued.Load()}
}

// Waiting returns the server's wait for a late trainer; ok is false without a wait. Any goroutine
// may call it at any time.
func (s *Server) Waiting() (collective.Wait, bool) { return s.wait.load("exchange") }

// Run serves until all trainers have left without an error, and then returns nil. An error, an
// *Error, has aborted the mesh, so that every member ends. When ctx ends, so does Run, with its
// cause. Call Run once.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.mesh.Abort(context.Cause(ctx)) })
	defer stop()
	for t := range s.trainers {
		s.trainers[t].toSend = make(chan *sum, maxInFlight)
		s.senders.Go(func() { s.send(t) })
	}
	if err := s.serveAll(); err != nil {
		s.fail(s.seq, s.doing(), err)
		s.withdraw()
	}
	for t := range s.trainers {
		close(s.trainers[t].toSend)
	}
	s.senders.Wait()
	if fault := s.fault.Load(); fault != nil {
		return fault
	}
	return nil
}

func (s *Server) serveAll() error {
	for {
		over, err := s.next()
		if err == nil && !over {
			s.recordHead(s.head)
			err = s.serve()
		}
		s.wait.op.End(s.note.rec.Now(), -1, err != nil)
		s.wait.op = record.Op{}
		if err != nil || over {
			return err
		}
		s.seq++
		s.exchanges.Add(1)
	}
}

// recordHead records the next exchange, once.
func (s *Server) recordHead(h head) {
	if !s.wait.op.Recorded() {
		s.wait.op = s.note.serve(h, s.seq)
	}
}

// doing describes the exchange in progress, or returns "".
func (s *Server) doing() string {
	if s.layout.servers == 0 {
		return ""
	}
	return s.head.String()
}

// fail sets the server's error, unless it has one, and aborts the mesh.
func (s *Server) fail(seq uint32, what string, err error) {
	fault := &Error{Op: "serve", Seq: seq, Exchange: what, Rank: s.mesh.Rank(), Peer: transport.Culprit(err, s.mesh.Rank()), Trainers: s.cfg.Trainers, Err: err}
	if s.fault.CompareAndSwap(nil, fault) {
		s.mesh.Abort(fault)
	}
}

// withdraw waits until the aborted mesh no longer uses the server's memory.
func (s *Server) withdraw() {
	for t := range s.trainers {
		tr := &s.trainers[t]
		if tr.posted {
			_ = tr.recv.Wait(s.cfg.Timeout) // immediate: the mesh is aborted
			tr.posted = false
		}
		for k := range tr.slots {
			if sl := &tr.slots[k]; sl.posted {
				_ = sl.recv.Wait(s.cfg.Timeout)
				sl.posted = false
			}
		}
	}
}

// next waits until all trainers have begun the next exchange, or left; over reports that all left.
func (s *Server) next() (over bool, err error) {
	s.layout = layout{} // no exchange yet
	for t := range s.trainers {
		if tr := &s.trainers[t]; !tr.hasLeft {
			tr.came = false
			s.postHead(t)
		}
	}
	for t := range s.trainers {
		if err := s.awaitHead(t); err != nil {
			return false, err
		}
	}
	s.wait.over(nil)
	return s.agree()
}

func (s *Server) postHead(t int) {
	tr := &s.trainers[t]
	tr.posted = true
	s.mesh.Post(&tr.recv, t, headTag(s.seq), tr.head[:])
}

// awaitHead waits for a trainer's head. Before any trainer has begun, the wait has no deadline,
// because trainers compute. Afterwards Timeout applies.
func (s *Server) awaitHead(t int) error {
	var since time.Time // some trainer has begun
	for tr := &s.trainers[t]; !tr.came && !tr.hasLeft; {
		look := min(headLook, s.cfg.Timeout)
		if err := s.askHead(t, look); err != nil {
			return err
		}
		if tr.came || tr.hasLeft {
			break
		}
		if some, err := s.begun(); err != nil {
			return err
		} else if !some {
			continue
		}
		if since.IsZero() {
			since = time.Now()
			s.recordHead(s.begunAs())
			s.wait.from(t, s.seq, since.Add(-look/2))
		}
		if waited := time.Since(since); waited > s.cfg.Timeout {
			return &transport.Error{Op: "receive", Rank: s.mesh.Rank(), Peer: t, Tag: headTag(s.seq), Err: fmt.Errorf("%w after %v: others have begun", transport.ErrTimeout, s.cfg.Timeout)}
		}
	}
	return nil
}

// askHead waits for a trainer's head for the duration long.
func (s *Server) askHead(t int, long time.Duration) error {
	tr := &s.trainers[t]
	err := tr.recv.Wait(long)
	tr.posted = false
	switch {
	case err == nil:
		s.received.Add(headBytes)
		if tr.decoded, err = decodeHead(&tr.head); err != nil {
			return fmt.Errorf("what rank %d sent: %w", t, err)
		}
		tr.hasLeft = tr.decoded.kind == kindLeave
		tr.came = !tr.hasLeft
	case errors.Is(err, transport.ErrGoodbye):
		tr.hasLeft, tr.decoded = true, head{kind: kindLeave}
	case transport.TimedOut(err):
		s.postHead(t)
	default:
		return err
	}
	return nil
}

// begun reports whether any trainer has begun the next exchange.
func (s *Server) begun() (bool, error) {
	for t := range s.trainers {
		tr := &s.trainers[t]
		if !tr.came && !tr.hasLeft {
			if err := s.askHead(t, 0); err != nil {
				return false, err
			}
		}
		if tr.came {
			return true, nil
		}
	}
	return false, nil
}

// begunAs returns the head that a trainer has sent to begin the exchange.
func (s *Server) begunAs() head {
	for t := range s.trainers {
		if s.trainers[t].came {
			return s.trainers[t].decoded
		}
	}
	return head{}
}

// agree compares the trainers' heads and plans the exchange.
func (s *Server) agree() (over bool, err error) {
	first := s.trainers[0].decoded
	for t := range s.trainers {
		switch said := s.trainers[t].decoded; {
		case said == first:
		case said.kind == kindLeave:
			return false, s.early(t, 0)
		case first.kind == kindLeave:
			return false, s.early(0, t)
		default:
			return false, &MismatchError{Ranks: [2]int{0, t}, Exchanges: [2]string{first.String(), said.String()}}
		}
	}
	if first.kind == kindLeave {
		return true, nil
	}
	s.head, s.layout = first, first.layout(s.servers)
	s.code, err = s.find(first)
	return false, err
}

// early returns the error for a trainer that left although `by` has begun the next exchange.
func (s *Server) early(trainer, by int) error {
	in := fmt.Sprintf("exchange %d (%v)", s.seq, s.trainers[by].decoded)
	return &transport.LostError{Rank: trainer, Reason: failure.Early("it left the job", failure.Rank(by), in)}
}

// find returns the code of an exchange.
func (s *Server) find(h head) (compress.Quantiser, error) {
	for _, q := range s.codes {
		if q.Code() == h.code && q.Block() == h.block {
			return q, nil
		}
	}
	return nil, fmt.Errorf("values of %s: this server does not know the code: name it in its Config.Codes", codeName(h.code, h.block))
}
