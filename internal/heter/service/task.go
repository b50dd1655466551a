package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/wire"
)

// task is a request of a trainer: a micro-batch to compute, or values to read or write.
type task struct {
	conn   *conn
	answer wire.Type // kind of the answer
	head   message.Head
	micro  *heter.MicroBatch // points to buffer or shared
	buffer heter.MicroBatch
	shared heter.MicroBatch // tensors in shared memory
	back   []byte           // slot for results in shared memory
	ask    message.Ask
	step   uint64
	frame  []byte // received bytes, for values without the head; then the answer
	bytes  int    // size of the received frame, as in conn.bytes
}

// next returns a ready task or, with nil, the end of a step.
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

// do runs a task and returns it to its connection.
func (s *Server) do(t *task) error {
	switch t.answer {
	case message.TypeValues:
		if s.cfg.Stateless {
			return s.collected(t)
		}
		t.frame = s.readState(t.ask, t.frame)
		if err := s.device.Err(); err != nil {
			return fmt.Errorf("step %d: reading the state: %w", t.step, err)
		}
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
	} else if t.step < s.step { // resent because of a loss, but already in the step's sum
		t.micro.Loss, t.micro.Terms, t.micro.Correct = 0, 1, 0
		t.conn.out <- t
		return nil
	} else if !t.micro.Eval {
		s.device.Reset()
	}
	if err := panics.Do(func() error { return s.device.Run(t.micro) }); err != nil {
		return fmt.Errorf("step %d: micro-batch %d of trainer %d: %w", t.step, t.head.Number, t.conn.hello.Trainer, err)
	}
	if !s.cfg.Stateless && !t.micro.Eval {
		if err := s.sums.add(t.micro.Index, t.conn.hello.Trainer, s.device.Gradients()); err != nil {
			return fmt.Errorf("step %d: %w", t.step, err)
		}
	}
	if err := s.device.Err(); err != nil {
		return fmt.Errorf("step %d: micro-batch %d of trainer %d: %w", t.step, t.head.Number, t.conn.hello.Trainer, err)
	}
	s.mu.Lock()
	s.figures.MicroBatches++
	s.figures.Samples += int64(t.micro.N)
	t.conn.borrowed.waiting--
	s.mu.Unlock()
	t.conn.out <- t // never blocks: capacity for all tasks in flight
	return nil
}
