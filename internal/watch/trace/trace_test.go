package trace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// timelined is a recorder and the timeline that follows it.
type timelined struct {
	*record.Recorder
	*Timeline
}

func newTimeline(t testing.TB, cfg Config, epoch time.Time) timelined {
	t.Helper()
	rec := record.New(record.Config{Epoch: epoch})
	line, err := New(rec, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	return timelined{rec, line}
}

func newRecorder(t testing.TB, cfg Config) timelined { return newTimeline(t, cfg, time.Time{}) }

// sent records the exchange of a bucket.
func (r timelined) sent(name, how string, bytes, begun, done int64) {
	r.Add(&record.Event{Kind: record.PhaseKind, Phase: record.Exchange, Name: r.Name(name), Algorithm: r.Name(how), Sent: bytes, Begun: begun, Done: done})
}

func TestNilFollowsNothing(t *testing.T) {
	var r *Timeline
	if n, dropped := r.SpanCounts(); n != 0 || dropped != 0 {
		t.Errorf("kept %d spans and dropped %d", n, dropped)
	}
	if err := r.Align(nil); err != nil {
		t.Error(err)
	}
	if err := r.Write(nil, nil); err != nil {
		t.Error(err)
	}
	r.Close()
}

func TestBounds(t *testing.T) {
	r := newRecorder(t, Config{Steps: 2, Spans: 5})
	for step := range int64(4) {
		r.BeginStep(step)
		r.Span(record.Forward, 0, 10*step, 10*step+1)
	}
	if n, dropped := r.SpanCounts(); n != 2 || dropped != 2 {
		t.Errorf("of 4 steps kept %d spans and dropped %d, want 2 and 2", n, dropped)
	}
	r = newRecorder(t, Config{Spans: 5})
	for i := range int64(8) {
		r.Span(record.Forward, 0, i, i)
	}
	if n, dropped := r.SpanCounts(); n != 5 || dropped != 3 {
		t.Errorf("of 8 spans kept %d and dropped %d, want 5 and 3", n, dropped)
	}
}

// What is no phase of the timeline's, and what is recorded after its end, is not in it.
func TestSpansKnowTheirStep(t *testing.T) {
	r := newRecorder(t, Config{})
	r.Span(record.Data, 0, 1, 2)
	r.BeginStep(7)
	r.sent("bucket 0", "ring", 44, 3, 5)
	r.Span(record.Checkpoint, 0, 6, 5) // a clock that went back
	r.Span(record.Exposed, 0, 6, 7)
	r.Add(&record.Event{Kind: record.Step, Begun: 1, Done: 9})
	r.Add(&record.Event{Kind: record.Operation, Begun: 1, Done: 9})
	r.Timeline.Close()
	r.Span(record.Forward, 0, 8, 9)
	if n, dropped := r.SpanCounts(); n != 3 || dropped != 0 {
		t.Errorf("kept %d and dropped %d", n, dropped)
	}
	want := []span{
		{track: record.Data, name: "data", start: 1, length: 1, bytes: -1, step: -1},
		{track: record.Exchange, name: "bucket 0", detail: "ring", start: 3, length: 2, bytes: 44, step: 7},
		{track: record.Checkpoint, name: "checkpoint", start: 6, bytes: -1, step: -1},
	}
	if !slices.Equal(r.spans, want) {
		t.Errorf("spans %+v, want %+v", r.spans, want)
	}
}

// Many more spans than the ring holds are all kept: the timeline reads in time. What it was too slow for it counts.
func TestManySpansAreFollowed(t *testing.T) {
	r := newRecorder(t, Config{Spans: 30000})
	const spans = 8 * record.DefaultPhases
	for i := range int64(spans) {
		r.Span(record.Forward, 0, i, i)
		if i%1024 == 1023 {
			r.drain() // as the other goroutine does if it gets to run
		}
	}
	if n, dropped := r.SpanCounts(); n != 30000 || dropped != spans-30000 {
		t.Errorf("kept %d spans and dropped %d, want 30000 and %d", n, dropped, spans-30000)
	}
	slow := newRecorder(t, Config{})
	slow.mu.Lock()
	for i := range int64(record.DefaultPhases + 100) {
		slow.Span(record.Forward, 0, i, i)
	}
	slow.mu.Unlock()
	if n, dropped := slow.SpanCounts(); n != record.DefaultPhases || dropped != 100 {
		t.Errorf("kept %d spans and dropped %d, want %d and 100", n, dropped, record.DefaultPhases)
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	_, err := New(record.New(record.Config{}), Config{Steps: -1, Spans: maxSpans + 1})
	if err == nil || !strings.Contains(err.Error(), "-1 steps") || !strings.Contains(err.Error(), "1048577 spans") {
		t.Errorf("error %v, want one that names both values", err)
	}
}

func TestLaneNames(t *testing.T) {
	seen := map[string]bool{}
	for l := range tracks {
		if name := l.String(); name == "" || seen[name] {
			t.Errorf("track %d is called %q", l, name)
		} else {
			seen[name] = true
		}
	}
}
