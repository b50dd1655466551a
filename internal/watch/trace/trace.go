// Package trace makes a timeline of all ranks of what their recorders record, which ui.perfetto.dev and
// chrome://tracing open.
//
//	t, err := trace.New(recorder, trace.Config{Steps: 100})
//	defer t.Close()
//	err = t.Align(group) // before the first step, on every rank
//	for each step {
//		recorder.BeginStep(step)
//		begun := recorder.Now()
//		… // forward
//		recorder.Span(record.Forward, 0, begun, recorder.Now())
//	}
//	err = t.Write(group, file) // after the last step, on every rank
//
// A nil Timeline follows nothing, so that nobody asks whether there is one.
package trace

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Track is what a rank does, as a row of the timeline shows it.
type Track = record.Phase

// The tracks, in the order in which a rank's rows stand below each other.
const (
	Data       = record.Data
	Forward    = record.Forward
	Backward   = record.Backward
	Compress   = record.Compress
	Exchange   = record.Exchange
	Update     = record.Update
	Evaluation = record.Evaluation
	Checkpoint = record.Checkpoint
	tracks     = Checkpoint + 1
)

// DefaultSpans is how many spans a rank keeps if Config does not say: 9 MiB.
const DefaultSpans = 1 << 17

// maxSpans bounds what a rank may keep, and so what rank 0 takes from each.
const maxSpans = 1 << 20

// Config bounds what a Timeline keeps. The first spans are kept and the later
// ones counted.
type Config struct {
	// Steps is how many steps are kept: nothing is from the next one on. 0 means all.
	Steps int
	// Spans is how many spans are kept, at most 1 Mi; 0 means DefaultSpans. Memory
	// for them, 72 bytes each, is taken at once, and as much again by Write.
	Spans int
}

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.Steps < 0 {
		errs = append(errs, fmt.Errorf("%d steps to trace: want at least 1, or 0 for all", c.Steps))
	}
	if c.Spans < 0 || c.Spans > maxSpans {
		errs = append(errs, fmt.Errorf("%d spans to keep: want 1 to %d, or 0 for %d", c.Spans, maxSpans, DefaultSpans))
	}
	return errors.Join(errs...)
}

// Timeline keeps the phases of one rank that its recorder records, as spans. Its methods may be called on a nil
// Timeline, which does nothing. It is used by one goroutine.
type Timeline struct {
	rec    *record.Recorder
	reader *record.Reader
	limit  int // steps; 0 is none
	stop   func()

	mu      sync.Mutex
	closed  bool
	spans   []span // never grows beyond its capacity
	step    int64  // that of the last event
	begun   int    // steps
	dropped int64  // spans that were not kept
	clocks  []reading
}

// span is one box of the timeline. Times are in nanoseconds.
type span struct {
	name, detail  string
	start, length int64
	bytes         int64 // of an exchange; -1 for none
	step          int64 // -1 for what is of none
	track         Track
}

// New makes a Timeline of what rec records from now on, until Write or Close. Errors: a bad configuration.
func New(rec *record.Recorder, cfg Config) (*Timeline, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if cfg.Spans == 0 {
		cfg.Spans = DefaultSpans
	}
	t := &Timeline{rec: rec, reader: rec.FollowPhases(), limit: cfg.Steps, step: rec.Step(), spans: make([]span, 0, cfg.Spans)}
	t.follow()
	return t, nil
}

// follow reads whenever the recorder's ring begins to fill. A quarter of it is 1,024 phases: many steps, which leaves the
// goroutine that reads time to get a turn where computing takes every core. What it is too late for all the same is
// counted with what Config left out.
func (r *Timeline) follow() {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-r.reader.Ready():
				r.drain()
			}
		}
	}()
	r.stop = sync.OnceFunc(func() {
		close(end)
		<-ended
		r.drain()
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.reader.Close()
	})
}

// Close ends the timeline: what is recorded later is not in it. After Write it does nothing.
func (r *Timeline) Close() {
	if r != nil {
		r.stop()
	}
}

// drain takes what has been recorded since the last time.
func (r *Timeline) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var events [64]record.Event
	for !r.closed {
		n, missed := r.reader.Next(events[:])
		r.dropped += missed
		for i := range events[:n] {
			r.add(&events[i])
		}
		if n == 0 {
			return
		}
	}
}

// add keeps a phase. A step begins with the first event of it.
func (r *Timeline) add(e *record.Event) {
	if e.Kind != record.PhaseKind || e.Phase >= tracks {
		return
	}
	if e.Step != r.step {
		r.step = e.Step
		r.begun++
	}
	if len(r.spans) == cap(r.spans) || r.limit > 0 && r.begun > r.limit {
		r.dropped++
		return
	}
	s := span{
		name: r.rec.Text(e.Name), detail: r.rec.Text(e.Algorithm), start: e.Begun, length: max(0, e.Done-e.Begun),
		bytes: e.Sent, step: e.Step, track: e.Phase,
	}
	if s.name == "" {
		s.name = boxes[e.Phase]
	}
	if e.Phase > Update {
		s.step = -1
	}
	r.spans = append(r.spans, s)
}

// boxes are what the boxes of phases without a name of their own are called.
var boxes = [tracks]string{"data", "forward", "backward", "compress", "exchange", "update", "evaluation", "checkpoint"}

// SpanCounts is how many spans this rank has kept, and how many it has not because
// Config's bounds were reached.
func (r *Timeline) SpanCounts() (spans int, dropped int64) {
	if r == nil {
		return 0, 0
	}
	r.drain()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spans), r.dropped
}
