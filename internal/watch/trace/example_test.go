package trace_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/internal/watch/trace"
)

// Two steps of one rank become a timeline that a browser shows.
func Example() {
	group, err := collective.New(mem.New(1)[0], collective.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer group.Close()
	rec := group.Recorder() // of a job: Job.Recorder
	line, err := trace.New(rec, trace.Config{Steps: 100, Spans: 64})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := line.Align(group); err != nil {
		fmt.Println(err)
		return
	}
	for step := range int64(2) {
		rec.BeginStep(step)
		begun := rec.Now()
		rec.Span(record.Forward, 0, begun, rec.Now())
	}
	var file strings.Builder
	err = line.Write(group, &file)
	spans, dropped := line.SpanCounts()
	fmt.Println(spans, dropped, err, json.Valid([]byte(file.String())), strings.Contains(file.String(), `"forward"`))
	// Output:
	// 2 0 <nil> true true
}
