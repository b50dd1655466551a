package trace

import (
	"strings"
	"sync"
	"testing"
	"time"
)

func newRecorder(t testing.TB, cfg Config) *Recorder {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// at is a time of the recorder's clock.
func (r *Recorder) at(ns int64) time.Time { return r.epoch.Add(time.Duration(ns)) }

func TestNilRecordsNothing(t *testing.T) {
	var r *Recorder
	r.BeginStep(3)
	r.Span(Forward, "forward", time.Now(), time.Now())
	r.Sent("bucket", "ring", 4, time.Now(), time.Now())
	if !r.Now().IsZero() {
		t.Error("a recorder that is off looks at the clock")
	}
	if n, dropped := r.Kept(); n != 0 || dropped != 0 {
		t.Errorf("kept %d spans and dropped %d", n, dropped)
	}
	if err := r.Align(nil); err != nil {
		t.Error(err)
	}
	if err := r.Write(nil, nil); err != nil {
		t.Error(err)
	}
}

func TestBounds(t *testing.T) {
	r := newRecorder(t, Config{Steps: 2, Spans: 5})
	for step := range int64(4) {
		r.BeginStep(step)
		r.Span(Forward, "forward", r.at(10*step), r.at(10*step+1))
	}
	if n, dropped := r.Kept(); n != 2 || dropped != 2 {
		t.Errorf("of 4 steps kept %d spans and dropped %d, want 2 and 2", n, dropped)
	}
	r = newRecorder(t, Config{Spans: 5})
	for i := range int64(8) {
		r.Span(Forward, "forward", r.at(i), r.at(i))
	}
	if n, dropped := r.Kept(); n != 5 || dropped != 3 {
		t.Errorf("of 8 spans kept %d and dropped %d, want 5 and 3", n, dropped)
	}
}

func TestSpansKnowTheirStep(t *testing.T) {
	r := newRecorder(t, Config{})
	r.Span(Data, "data", r.at(1), r.at(2))
	r.BeginStep(7)
	r.Sent("bucket 0", "ring", 44, r.at(3), r.at(5))
	r.Span(Checkpoint, "checkpoint", r.at(6), r.at(5)) // a clock that went back
	r.Span(Update, "no start", time.Time{}, r.at(5))
	r.Span(tracks, "no track", r.at(6), r.at(7))
	want := []span{
		{track: Data, name: "data", start: 1, length: 1, bytes: -1, step: -1},
		{track: Exchange, name: "bucket 0", detail: "ring", start: 3, length: 2, bytes: 44, step: 7},
		{track: Checkpoint, name: "checkpoint", start: 6, bytes: -1, step: -1},
	}
	if len(r.spans) != len(want) {
		t.Fatalf("%d spans, want %d: %+v", len(r.spans), len(want), r.spans)
	}
	for i, s := range r.spans {
		if s != want[i] {
			t.Errorf("span %d is %+v, want %+v", i, s, want[i])
		}
	}
}

func TestManyGoroutinesRecord(t *testing.T) {
	r := newRecorder(t, Config{Spans: 1000})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range int64(300) {
				r.BeginStep(i)
				r.Span(Exchange, "bucket", r.Now(), r.Now())
			}
		})
	}
	wg.Wait()
	if n, dropped := r.Kept(); n != 1000 || dropped != 200 {
		t.Errorf("kept %d spans and dropped %d, want 1000 and 200", n, dropped)
	}
}

func TestRecordingDoesNotAllocate(t *testing.T) {
	for _, r := range []*Recorder{nil, newRecorder(t, Config{Spans: 300})} { // fewer than are recorded
		got := testing.AllocsPerRun(200, func() {
			r.BeginStep(1)
			start := r.Now()
			r.Span(Forward, "forward", start, r.Now())
			r.Sent("bucket", "ring", 10, start, r.Now())
		})
		if got != 0 {
			t.Errorf("%v allocations a step, want none (recorder %v)", got, r != nil)
		}
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	_, err := New(Config{Steps: -1, Spans: maxSpans + 1})
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

func BenchmarkSpan(b *testing.B) {
	for _, c := range []struct {
		name string
		rec  *Recorder
	}{{"off", nil}, {"on", newRecorder(b, Config{Spans: maxSpans})}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				start := c.rec.Now()
				c.rec.Span(Forward, "forward", start, c.rec.Now())
			}
		})
	}
}
