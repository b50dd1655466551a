package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// chrome writes parts in Chrome's trace event format: a process per rank, a thread per row,
// complete events ("X") in microseconds. Perfetto drops negative times and treats process and
// thread 0 specially, so both numbers start from 1.
type chrome struct {
	w     *bufio.Writer
	wrote bool // an event has been written
	ranks []rankNote
	err   error // first write error
}

type rankNote struct {
	Rank    int    `json:"rank"`
	Offset  micros `json:"clock_offset_us"` // correction added to the times
	Bound   micros `json:"clock_error_us"`  // maximum error, if clocks drift linearly
	Spans   int    `json:"spans"`
	Dropped int64  `json:"spans_left_out"`
}

type event struct {
	Phase    string `json:"ph"`
	Name     string `json:"name"`
	Category string `json:"cat,omitempty"`
	Process  int    `json:"pid"`
	Thread   int    `json:"tid,omitempty"`
	Start    micros `json:"ts,omitzero"`
	Length   micros `json:"dur,omitzero"`
	Scope    string `json:"s,omitempty"`
	Args     any    `json:"args,omitempty"`
}

// micros is a time in nanoseconds, written in microseconds.
type micros int64

// MarshalJSON writes a number with three decimals.
func (m micros) MarshalJSON() ([]byte, error) {
	var b []byte
	if m < 0 {
		b, m = append(b, '-'), -m
	}
	b = strconv.AppendInt(b, int64(m/1000), 10)
	return fmt.Appendf(b, ".%03d", m%1000), nil
}

func newChrome(w io.Writer) *chrome {
	t := &chrome{w: bufio.NewWriterSize(w, 1<<16)}
	t.text(`{"displayTimeUnit":"ms","traceEvents":[`)
	return t
}

func (t *chrome) text(s string) {
	if t.err == nil {
		_, t.err = t.w.WriteString(s)
	}
}

func (t *chrome) event(e event) {
	line, err := json.Marshal(e)
	if t.err == nil {
		t.err = err
	}
	if t.wrote {
		t.text(",")
	}
	t.wrote = true
	t.text("\n")
	t.text(string(line))
}

func (t *chrome) named(process, thread int, what string, args any) {
	t.event(event{Phase: "M", Name: what, Process: process, Thread: thread, Args: args})
}

type nameArg struct {
	Name string `json:"name"`
}
type labelsArg struct {
	Labels string `json:"labels"`
}
type orderArg struct {
	Index int `json:"sort_index"`
}

// part writes a rank's spans, and sorts them.
func (t *chrome) part(p part) {
	process := p.rank + 1
	t.named(process, 0, "process_name", nameArg{fmt.Sprintf("rank %d", p.rank)})
	t.named(process, 0, "process_sort_index", orderArg{p.rank})
	if p.bound > 0 {
		t.named(process, 0, "process_labels", labelsArg{"clock ± " + quantity.Duration(time.Duration(p.bound))})
	}
	sortSpans(p.spans)
	thread, end := 1, int64(0)
	for rest := p.spans; len(rest) > 0; {
		n := 0
		for n < len(rest) && rest[n].track == rest[0].track {
			end = max(end, rest[n].start+rest[n].length)
			n++
		}
		thread += t.track(process, thread, rest[:n])
		rest = rest[n:]
	}
	if p.dropped > 0 {
		t.event(event{Phase: "i", Scope: "p", Name: fmt.Sprintf("cut: %d later spans were left out", p.dropped), Process: process, Thread: 1, Start: micros(end)})
	}
	t.ranks = append(t.ranks, rankNote{p.rank, micros(p.offset), micros(p.bound), len(p.spans), p.dropped})
}

// track writes the spans of a track to threads from first on, and returns the number of threads.
func (t *chrome) track(process, first int, spans []span) int {
	track := spans[0].track
	rows, n := rowsOf(spans, track != Exchange)
	for row := range n {
		name := track.String()
		if row > 0 {
			name = fmt.Sprintf("%s %d", name, row+1)
		}
		t.named(process, first+row, "thread_name", nameArg{name})
		t.named(process, first+row, "thread_sort_index", orderArg{first + row})
	}
	for i, s := range spans {
		t.span(process, first+rows[i], s)
	}
	return n
}

// spanArgs are the details that a viewer displays for a selected span.
type spanArgs struct {
	Step      *int64 `json:"step,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Bytes     *int64 `json:"bytes_sent,omitempty"`
}

// span writes a complete event. Its time and length are written even if 0.
func (t *chrome) span(process, thread int, s span) {
	args := spanArgs{Algorithm: s.detail}
	if s.step >= 0 {
		args.Step = &s.step
	}
	if s.bytes >= 0 {
		args.Bytes = &s.bytes
	}
	line, err := json.Marshal(struct {
		event
		Start  micros   `json:"ts"`
		Length micros   `json:"dur"`
		Args   spanArgs `json:"args"`
	}{event{Phase: "X", Name: s.name, Category: s.track.String(), Process: process, Thread: thread}, micros(s.start), micros(s.length), args})
	if t.err == nil {
		t.err = err
	}
	t.text(",\n")
	t.text(string(line))
}

func (t *chrome) close() error {
	notes, err := json.Marshal(t.ranks)
	if t.err == nil {
		t.err = err
	}
	t.text("\n],\"otherData\":{\"ranks\":")
	t.text(string(notes))
	t.text("}}\n")
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.err
}
