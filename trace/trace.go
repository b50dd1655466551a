// Package trace records when each stage of training began and ended on every
// rank, and writes a timeline of all ranks that ui.perfetto.dev and
// chrome://tracing open.
//
//	rec, err := trace.New(trace.Config{Steps: 100})
//	err = rec.Align(group) // before the first step, on every rank
//	for each step {
//		rec.BeginStep(step)
//		start := rec.Now()
//		… // forward
//		rec.Span(trace.Forward, "forward", start, rec.Now())
//	}
//	err = rec.Write(group, file) // after the last step, on every rank
//
// A nil Recorder records nothing and costs a comparison, so that what is observed
// needs no second path for when it is not.
package trace

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Track is what a rank does, as a row of the timeline shows it.
type Track uint8

// The tracks, in the order in which a rank's rows stand below each other.
const (
	Data       Track = iota // waiting for the next batch
	Forward                 // the loss of a batch
	Backward                // its gradients; what Compress shows meanwhile is part of it
	Compress                // selecting or rounding a bucket
	Exchange                // a bucket's way, from its start until it was agreed
	Update                  // the optimizer's rule
	Evaluation              // the whole of it
	Checkpoint              // writing, and gathering what is written
	tracks
)

// String returns the track's name.
func (t Track) String() string {
	if t < tracks {
		return [...]string{"data wait", "forward", "backward", "compress", "exchange", "update", "evaluation", "checkpoint"}[t]
	}
	return fmt.Sprintf("Track(%d)", uint8(t))
}

// DefaultSpans is how many spans a rank keeps if Config does not say: 9 MiB.
const DefaultSpans = 1 << 17

// maxSpans bounds what a rank may keep, and so what rank 0 takes from each.
const maxSpans = 1 << 20

// Config bounds what a Recorder keeps. The first spans are kept and the later
// ones counted.
type Config struct {
	// Steps is how many steps are recorded: nothing is from the next BeginStep on.
	// 0 means all.
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

// Recorder keeps the spans of one rank. Its methods may be called on a nil
// Recorder, which does nothing. Those that record may be called from several
// goroutines and allocate nothing.
type Recorder struct {
	epoch time.Time // what spans count from
	limit int       // steps; 0 is none

	mu      sync.Mutex
	spans   []span // never grows beyond its capacity
	step    int64  // the one under way, -1 before the first
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

// New makes a recorder. Errors: a bad configuration.
func New(cfg Config) (*Recorder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if cfg.Spans == 0 {
		cfg.Spans = DefaultSpans
	}
	return &Recorder{epoch: time.Now(), limit: cfg.Steps, step: -1, spans: make([]span, 0, cfg.Spans)}, nil
}

// Now is the time, and the zero time where nothing is recorded: it then costs no
// look at the clock.
func (r *Recorder) Now() time.Time {
	if r == nil {
		return time.Time{}
	}
	return time.Now()
}

// BeginStep says that the spans which follow are of this step.
func (r *Recorder) BeginStep(step int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.step = step
	r.begun++
	r.mu.Unlock()
}

// Span records that something went on in a track from start to end. Spans of one
// track may overlap: those that do not nest get a row each, and those of Exchange
// never nest. A span whose start is the zero time is ignored. name is kept, so it
// should be made once and not for every step.
func (r *Recorder) Span(track Track, name string, start, end time.Time) {
	if r != nil {
		r.add(span{track: track, name: name, bytes: -1}, start, end)
	}
}

// Sent records the exchange of a bucket: how, and how many bytes of payload this
// rank sent for it.
func (r *Recorder) Sent(name, how string, bytes int64, start, end time.Time) {
	if r != nil {
		r.add(span{track: Exchange, name: name, detail: how, bytes: bytes}, start, end)
	}
}

func (r *Recorder) add(s span, start, end time.Time) {
	if start.IsZero() || s.track >= tracks {
		return
	}
	s.start = int64(start.Sub(r.epoch))
	s.length = max(0, int64(end.Sub(start)))
	r.mu.Lock()
	if len(r.spans) == cap(r.spans) || r.limit > 0 && r.begun > r.limit {
		r.dropped++
	} else {
		if s.step = r.step; s.track > Update {
			s.step = -1
		}
		r.spans = append(r.spans, s)
	}
	r.mu.Unlock()
}

// Kept is how many spans this rank has kept, and how many it has not because
// Config's bounds were reached.
func (r *Recorder) Kept() (spans int, dropped int64) {
	if r == nil {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spans), r.dropped
}
