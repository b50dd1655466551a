// Package trace writes a timeline of all ranks for ui.perfetto.dev and chrome://tracing.
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
// A nil Timeline ignores all calls, so callers need no check.
package trace

import (
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// tracks is the number of phases with a row in the timeline: the first ones.
const tracks = record.Checkpoint + 1

// DefaultSpans is the default number of spans per rank: 9 MiB.
const DefaultSpans = 1 << 17

// maxSpans limits the spans of a rank, and so the spans that rank 0 accepts.
const maxSpans = 1 << 20

// Config limits a Timeline. The first spans are kept and later spans counted.
type Config struct {
	// Steps is the number of steps kept; later steps are dropped. 0 means all.
	Steps int
	// Spans is the number of spans kept, at most 1 Mi; 0 means DefaultSpans. Their memory, 72 bytes
	// each, is allocated immediately, and the same amount again by Write.
	Spans int
}

// Validate returns all errors of c.
func (c Config) Validate() error {
	var bad faults.List
	bad.If(c.Steps < 0, "%d steps to trace: want at least 1, or 0 for all", c.Steps)
	bad.If(c.Spans < 0 || c.Spans > maxSpans,
		"%d spans to keep: want 1 to %d, or 0 for %d", c.Spans, maxSpans, DefaultSpans)
	return bad.Err()
}

// Timeline collects the phases of a rank from the recorder, as spans. A nil Timeline ignores all
// calls. A Timeline is for one goroutine.
type Timeline struct {
	rec    *record.Recorder
	reader *record.Reader
	limit  int // maximum steps; 0: no limit
	stop   func()

	mu      sync.Mutex
	closed  bool
	spans   []span // never exceeds its capacity
	step    int64  // step of the last event
	begun   int    // number of begun steps
	dropped int64  // dropped spans
	clocks  []reading
}

// span is a box of the timeline. Times are in nanoseconds.
type span struct {
	name, detail  string
	start, length int64
	bytes         int64 // bytes sent by an exchange; -1: none
	step          int64 // -1: outside steps
	track         record.Phase
}

// New returns a Timeline of rec's events from now on. Errors: an invalid configuration.
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

// follow reads whenever a quarter of the recorder's ring is full. A quarter is 1,024 phases, many
// steps: the reading goroutine has time to be scheduled when computation uses all cores. Missed
// events count as dropped, like events above Config's limits.
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

// Close ends the timeline: later events are not included. After Write, Close has no effect.
func (r *Timeline) Close() {
	if r != nil {
		r.stop()
	}
}

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

// add stores a phase. A step begins with its first event.
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
	if e.Phase > record.Update {
		s.step = -1
	}
	r.spans = append(r.spans, s)
}

// boxes are the names of phases without a specific name.
var boxes = [tracks]string{"data", "forward", "backward", "compress", "exchange", "update", "evaluation", "checkpoint"}

// SpanCounts returns the number of kept spans, and of spans dropped by Config's limits.
func (r *Timeline) SpanCounts() (spans int, dropped int64) {
	if r == nil {
		return 0, 0
	}
	r.drain()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spans), r.dropped
}
