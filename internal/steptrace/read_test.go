package steptrace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/internal/watch/trace"
)

// write has n ranks record so many steps, and writes their timeline as runs do.
func write(t testing.TB, to io.Writer, n, steps int) {
	t.Helper()
	var wg sync.WaitGroup
	begin := time.Now().Add(time.Second)
	for rank, mesh := range mem.New(n) {
		g, err := collective.New(mesh, collective.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			rec := record.New(record.Config{})
			line, err := trace.New(rec, trace.Config{})
			for step := range steps {
				rec.BeginStep(int64(step))
				at := func(us int) int64 { return rec.At(begin.Add(time.Duration(1000*step+us) * time.Microsecond)) }
				rec.Span(record.Data, 0, at(0), at(100+50*rank))
				rec.Span(record.Backward, 0, at(200), at(400))
				rec.Add(&record.Event{Kind: record.PhaseKind, Phase: record.Exchange, Name: rec.Name(`bucket 0 "fc"`), Algorithm: rec.Name("ring"), Sent: 4096, Begun: at(300), Done: at(700)})
				rec.Span(record.Update, 0, at(700), at(720))
			}
			if err == nil {
				err = line.Write(g, to)
			}
			if err = errors.Join(err, g.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A timeline is read as it was written.
func TestReadsWhatRunsWrite(t *testing.T) {
	var file bytes.Buffer
	write(t, &file, 3, 5)
	line, err := Read(iotest.OneByteReader(&file))
	if err != nil {
		t.Fatal(err)
	}
	if len(line.Ranks) != 3 {
		t.Fatalf("%d ranks", len(line.Ranks))
	}
	for i, r := range line.Ranks {
		if len(r.Spans) != 20 || r.LeftOut != 0 || (r.ClockError > 0) != (i > 0) {
			t.Errorf("rank %d: %d spans, %d left out, clock ± %d", i, len(r.Spans), r.LeftOut, r.ClockError)
		}
		s := r.Spans[2]
		if line.Name(s) != `bucket 0 "fc"` || line.How(s) != "ring" || s.Bytes != 4096 || s.Step != 0 || s.End-s.Start != 400e3 || s.Track != record.Exchange {
			t.Errorf("rank %d: %+v", i, s)
		}
	}
	if s := Summarise(line); s.Steps != 5 || s.Waits[0].For != `bucket 0 "fc"` || s.Waits[0].WaitMS < 0.29 {
		t.Errorf("%+v", s)
	}
}

const tiny = `{"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","name":"process_name","pid":1,"args":{"name":"rank 0"}},
{"ph":"X","name":"f","cat":"forward","pid":1,"tid":1,"ts":0.000,"dur":10.255,"args":{"step":0}},
{"ph":"i","name":"cut","pid":1,"tid":1,"ts":10.255,"s":"p"}
],"otherData":{"ranks":[{"rank":0,"clock_offset_us":-1.500,"clock_error_us":0.001,"spans":1,"spans_left_out":3}]}}
`

// place is the place that an error names, or one behind any file.
func place(err error) (at int) {
	if _, fault := fmt.Sscanf(err.Error(), "byte %d:", &at); fault != nil {
		return math.MaxInt
	}
	return at
}

// What is no timeline, or not the whole of one, is refused by name and place.
func TestReadRefuses(t *testing.T) {
	if line, err := Read(strings.NewReader(tiny)); err != nil || line.Ranks[0].LeftOut != 3 || line.Ranks[0].ClockError != 1 || line.Ranks[0].Spans[0].End != 10255 {
		t.Fatalf("%+v, %v", line, err)
	}
	for i := range len(tiny) - 2 {
		if _, err := Read(strings.NewReader(tiny[:i])); !errors.Is(err, ErrTruncated) || place(err) > i {
			t.Fatalf("%d bytes: %v", i, err)
		}
	}
	for _, c := range []struct {
		old, new string
		kind     error
		says     string
	}{
		{"{", "[", ErrFormat, "want {"},
		{`"displayTimeUnit":"ms"`, `"displayTimeUnit":"ns"`, ErrFormat, "displayTimeUnit"},
		{`"displayTimeUnit":"ms",`, ``, ErrFormat, "it lacks"},
		{`"displayTimeUnit":"ms",`, `"displayTimeUnit":"ms","displayTimeUnit":"ms",`, ErrFormat, "twice"},
		{`"displayTimeUnit":"ms",`, `"zzz":"ms",`, ErrFormat, "zzz"},
		{"}}\n", "}}x", ErrFormat, "follows"},
		{`"ph":"X"`, `"ph":"B"`, ErrFormat, "kind"},
		{`"cat":"forward"`, `"cat":"kernel"`, ErrFormat, "kernel"},
		{`"ts":0.000`, `"ts":-0.001`, ErrFormat, "below 0"},
		{`"ts":0.000,`, ``, ErrFormat, "lacks a time"},
		{`"ts":0.000`, `"ts":1e3`, ErrFormat, "the time"},
		{`"ts":0.000`, `"ts":0.0001`, ErrFormat, "the time"},
		{`"ts":0.000`, `"ts":9999999999999999.000`, ErrFormat, "the time"},
		{`"ts":0.000`, `"ts":"0"`, ErrFormat, "the time"},
		{`"step":0`, `"step":-2`, ErrFormat, "below 0"},
		{`"step":0`, `"stop":0`, ErrFormat, "stop"},
		{`"tid":1,"ts"`, `"tid":1,"zzz":1,"ts"`, ErrFormat, "zzz"},
		{`"cat":"forward","pid":1`, `"cat":"forward","pid":0`, ErrFormat, "process 0"},
		{`"cat":"forward","pid":1`, `"cat":"forward","pid":2`, ErrFormat, "rank 1"},
		{`"cat":"forward","pid":1`, `"cat":"forward","pid":1000000`, ErrLarge, "rank 999999"},
		{`"name":"f"`, `"name":"` + strings.Repeat("f", 2000) + `"`, ErrLarge, "a name"},
		{`"name":"f"`, `"name":"` + strings.Repeat("f", 2<<20) + `"`, ErrLarge, "a value"},
		{`"spans":1`, `"spans":2`, ErrFormat, "otherData says"},
		{`"rank":0`, `"rank":1`, ErrFormat, "rank 1 of otherData"},
		{`{"ranks"`, `{"servers"`, ErrFormat, "servers"},
		{`"clock_error_us":0.001`, `"clock_error_us":-0.001`, ErrFormat, "rank 0"},
		{`{"step":0}`, `{"step":0`, ErrFormat, "byte"},
		{`"ph":"M"`, `"ph":M`, ErrFormat, "invalid character"},
	} {
		text := strings.Replace(tiny, c.old, c.new, 1)
		_, err := Read(strings.NewReader(text))
		if text == tiny || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60s: %.200v, want %q", c.new, err, c.says)
		}
	}
	broken := errors.New("a broken disk")
	if _, err := Read(io.MultiReader(strings.NewReader(tiny[:100]), iotest.ErrReader(broken))); !errors.Is(err, broken) || errors.Is(err, ErrFormat) {
		t.Errorf("%v", err)
	}
}

// Names take no more memory than there may be.
func TestReadLimitsNames(t *testing.T) {
	r := &reader{}
	for i := range maxNames {
		if _, err := r.known(strings.Repeat("a", i%1000) + string(rune(i/1000+1))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.known("new"); !errors.Is(err, ErrLarge) {
		t.Errorf("%v", err)
	}
	if _, err := r.known("aaa\x01"); err != nil {
		t.Errorf("one that is known: %v", err)
	}
}

// Of any bytes a timeline is read, with spans that can be summed up, or they are refused.
func FuzzRead(f *testing.F) {
	f.Add([]byte(tiny))
	f.Add([]byte(strings.Replace(tiny, "10.255", "99999999999.999", 1)))
	f.Add([]byte(`{"displayTimeUnit":"ms","traceEvents":[],"otherData":{"ranks":[]}}`))
	f.Add([]byte(`{"traceEvents":[{"ph":"X"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		line, err := Read(bytes.NewReader(text))
		if err != nil {
			if place(err) > len(text) {
				t.Fatalf("%v", err)
			}
			return
		}
		s := Summarise(line)
		for _, r := range s.Ranks {
			if sum := r.Compute + r.Exchange + r.Data + r.Other + r.Idle; sum > 1+1e-9 || s.WallMS > 0 && sum < 1-1e-9 {
				t.Fatalf("shares add up to %v", sum)
			}
		}
		if c := Compare(s, s); c[0].A != c[0].B {
			t.Fatal(c[0])
		}
	})
}
