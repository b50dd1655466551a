package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// file is what a viewer reads.
type file struct {
	Unit   string `json:"displayTimeUnit"`
	Events []struct {
		Ph   string
		Name string
		Cat  string
		Pid  int
		Tid  int
		TS   *float64
		Dur  *float64
		S    string
		Args map[string]any
	} `json:"traceEvents"`
	Other struct {
		Ranks []struct {
			Rank   int
			Offset float64 `json:"clock_offset_us"`
			Bound  float64 `json:"clock_error_us"`
			Spans  int
			Left   int64 `json:"spans_left_out"`
		}
	} `json:"otherData"`
}

// thread is a row of the timeline.
type thread struct{ pid, tid int }

type box struct {
	name, cat  string
	start, end float64 // µs
	args       map[string]any
}

// read parses a timeline and reports what a viewer would show wrongly: events out
// of order or without a place, and what overlaps in a row without nesting.
func read(t *testing.T, text []byte) (f file, threads map[thread]string, boxes map[thread][]box) {
	t.Helper()
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if f.Unit != "ms" {
		t.Errorf("the unit is %q", f.Unit)
	}
	processes := map[int]string{}
	threads, boxes = map[thread]string{}, map[thread][]box{}
	for _, e := range f.Events {
		at := thread{e.Pid, e.Tid}
		switch e.Ph {
		case "M":
			if e.TS != nil {
				t.Errorf("metadata %s has a time", e.Name)
			}
			switch e.Name {
			case "process_name":
				processes[e.Pid] = e.Args["name"].(string)
			case "thread_name":
				threads[at] = e.Args["name"].(string)
			}
		case "X":
			if e.TS == nil || e.Dur == nil || *e.TS < 0 || *e.Dur < 0 {
				t.Fatalf("%+v has no time", e)
			}
			boxes[at] = append(boxes[at], box{e.Name, e.Cat, *e.TS, *e.TS + *e.Dur, e.Args})
		case "i":
			if e.TS == nil || e.S != "p" {
				t.Errorf("%+v has no time or scope", e)
			}
		default:
			t.Errorf("an event of kind %q", e.Ph)
		}
		if e.Pid < 1 || e.Tid < 0 {
			t.Errorf("%+v: numbers that viewers keep for themselves", e)
		}
	}
	for at, list := range boxes {
		if processes[at.pid] != fmt.Sprintf("rank %d", at.pid-1) || threads[at] == "" || at.tid < 1 {
			t.Errorf("process %q, thread %q at %+v", processes[at.pid], threads[at], at)
		}
		checkRow(t, threads[at], list)
	}
	return f, threads, boxes
}

func checkRow(t *testing.T, name string, list []box) {
	t.Helper()
	var open []box
	for i, b := range list {
		if i > 0 && b.start < list[i-1].start {
			t.Errorf("%s: %+v comes after %+v", name, b, list[i-1])
		}
		if track, _, _ := strings.Cut(name, " "); !strings.HasPrefix(b.cat, track) {
			t.Errorf("%s: %+v is of another stage", name, b)
		}
		for len(open) > 0 && open[len(open)-1].end <= b.start+1e-6 {
			open = open[:len(open)-1]
		}
		if len(open) > 0 && b.end > open[len(open)-1].end+1e-6 {
			t.Errorf("%s: %+v overlaps %+v and does not lie in it", name, b, open[len(open)-1])
		}
		open = append(open, b)
	}
}

// Ranks whose clocks differ by hours record the same; on the timeline it is
// together.
func TestTimelineOfSeveralRanks(t *testing.T) {
	const n = 3
	var out bytes.Buffer
	shared := time.Now()
	errs := onRanks(t, n, func(g *collective.Group) error {
		r := newTimeline(t, Config{Steps: 2}, shared.Add(-time.Duration(g.Rank())*time.Hour))
		if err := r.Align(g); err != nil {
			return err
		}
		at := func(us int) int64 { return r.At(shared.Add(time.Duration(us) * time.Microsecond)) }
		for step := range 3 {
			r.BeginStep(int64(step))
			t0 := 1000 * step
			r.Span(record.Forward, 0, at(t0), at(t0+100))
			r.Span(record.Backward, 0, at(t0+100), at(t0+300))
			r.Span(record.Compress, r.Name(`bucket 0 "fc"`), at(t0+180), at(t0+200))
			r.sent(`bucket 0 "fc"`, "ring", 4096, at(t0+200), at(t0+400))
			r.sent("bucket 1", "split", 12, at(t0+300), at(t0+350))
			r.Span(record.Update, 0, at(t0+400), at(t0+450))
		}
		r.Span(record.Evaluation, 0, at(5000), at(6000))
		var w *bytes.Buffer
		if g.Rank() == 0 {
			w = &out
		}
		return r.Write(g, w)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	f, threads, boxes := read(t, out.Bytes())
	want := []string{"forward", "backward", "compress", "exchange", "exchange 2", "update"}
	if len(threads) != n*len(want) {
		t.Errorf("%d rows, want %d: %v", len(threads), n*len(want), threads)
	}
	worst := 0.0
	for _, r := range f.Other.Ranks {
		worst = max(worst, r.Bound)
		if off := -float64(r.Rank) * 3600e6; math.Abs(r.Offset-off) > r.Bound {
			t.Errorf("rank %d: offset %v µs ± %v, want %v", r.Rank, r.Offset, r.Bound, off)
		}
		if r.Spans != 12 || r.Left != 7 {
			t.Errorf("rank %d: %d spans and %d left out, want 12 and 7", r.Rank, r.Spans, r.Left)
		}
	}
	for rank := range n {
		for i, name := range want {
			at := thread{rank + 1, i + 1}
			if threads[at] != name {
				t.Errorf("row %+v is called %q, want %q", at, threads[at], name)
			}
			for step, b := range boxes[at] {
				first := boxes[thread{1, i + 1}][step]
				if math.Abs(b.start-first.start) > 2*worst+0.01 {
					t.Errorf("rank %d: %s of step %d begins at %v µs, on rank 0 at %v; clocks are said to be within %v", rank, b.name, step, b.start, first.start, worst)
				}
				if b.args["step"] != float64(step) {
					t.Errorf("rank %d: %s has arguments %v, want step %d", rank, b.name, b.args, step)
				}
			}
		}
	}
	sent := boxes[thread{3, 4}][1]
	if sent.name != `bucket 0 "fc"` || sent.args["algorithm"] != "ring" || sent.args["bytes_sent"] != 4096.0 || math.Abs(sent.end-sent.start-200) > 0.01 {
		t.Errorf("an exchange is %+v", sent)
	}
	cuts := 0
	for _, e := range f.Events {
		if e.Ph == "i" && strings.Contains(e.Name, "7 later spans") {
			cuts++
		}
	}
	if cuts != n {
		t.Errorf("%d rows say that they are cut, want %d", cuts, n)
	}
}

func TestNothingRecordedIsATimelineToo(t *testing.T) {
	var out bytes.Buffer
	errs := onRanks(t, 2, func(g *collective.Group) error { return newRecorder(t, Config{}).Write(g, &out) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if f, _, boxes := read(t, out.Bytes()); len(boxes) != 0 || len(f.Other.Ranks) != 2 {
		t.Errorf("%d rows and %d ranks, want 0 and 2", len(boxes), len(f.Other.Ranks))
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAFileThatCannotBeWritten(t *testing.T) {
	errs := onRanks(t, 1, func(g *collective.Group) error {
		r := newRecorder(t, Config{})
		r.Span(record.Forward, 0, 0, 1)
		return r.Write(g, full{})
	})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "no space left") {
		t.Errorf("error %v", errs[0])
	}
}
