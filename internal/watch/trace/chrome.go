package trace

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// chrome is the events of a rank as text in Chrome's trace event format, each after a comma: a
// process per rank, a thread per row, complete events ("X") in microseconds. Perfetto drops
// negative times and treats process and thread 0 specially, so both numbers start from 1.
type chrome struct{ text []byte }

type event struct {
	Phase    string  `json:"ph"`
	Name     string  `json:"name"`
	Category string  `json:"cat,omitempty"`
	Process  int     `json:"pid"`
	Thread   int     `json:"tid,omitempty"`
	Start    *micros `json:"ts,omitempty"`
	Length   *micros `json:"dur,omitempty"`
	Scope    string  `json:"s,omitempty"`
	Args     any     `json:"args,omitempty"`
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

func (t *chrome) event(e event) {
	line, _ := json.Marshal(e) // texts and numbers always encode
	t.text = append(append(t.text, ",\n"...), line...)
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

// part adds a rank's spans, and sorts them.
func (t *chrome) part(p part) {
	process := p.rank + 1
	t.named(process, 0, "process_name", nameArg{fmt.Sprintf("rank %d", p.rank)})
	t.named(process, 0, "process_sort_index", orderArg{p.rank})
	if p.bound > 0 {
		t.named(process, 0, "process_labels", labelsArg{"clock ± " + quantity.Duration(time.Duration(p.bound))})
	}
	sortSpans(p.spans)
	thread, end := 1, micros(0)
	for rest := p.spans; len(rest) > 0; {
		n := 0
		for n < len(rest) && rest[n].track == rest[0].track {
			end = max(end, micros(rest[n].start+rest[n].length))
			n++
		}
		thread += t.track(process, thread, rest[:n])
		rest = rest[n:]
	}
	if p.dropped > 0 {
		t.event(event{Phase: "i", Scope: "p", Name: fmt.Sprintf("cut: %d later spans were left out", p.dropped), Process: process, Thread: 1, Start: &end})
	}
}

// track adds the spans of a track to threads from first on, and returns the number of threads.
func (t *chrome) track(process, first int, spans []span) int {
	track := spans[0].track
	rows, n := rowsOf(spans, track != record.Exchange)
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

// span adds a complete event.
func (t *chrome) span(process, thread int, s span) {
	args := spanArgs{Algorithm: s.detail}
	if s.step >= 0 {
		args.Step = &s.step
	}
	if s.bytes >= 0 {
		args.Bytes = &s.bytes
	}
	start, length := micros(s.start), micros(s.length)
	t.event(event{Phase: "X", Name: s.name, Category: s.track.String(), Process: process, Thread: thread, Start: &start, Length: &length, Args: args})
}
