package trace_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/trace"
	"github.com/ringo-ml/ringo/transport/mem"
)

// Two steps of one rank become a timeline that a browser shows.
func Example() {
	group, err := collective.New(mem.New(1)[0], collective.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer group.Close()
	rec, err := trace.New(trace.Config{Steps: 100, Spans: 64})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := rec.Align(group); err != nil {
		fmt.Println(err)
		return
	}
	for step := range int64(2) {
		rec.BeginStep(step)
		start := rec.Now()
		rec.Span(trace.Forward, "forward", start, rec.Now())
	}
	var file strings.Builder
	err = rec.Write(group, &file)
	spans, dropped := rec.Kept()
	fmt.Println(spans, dropped, err, json.Valid([]byte(file.String())), strings.Contains(file.String(), `"forward"`))
	// Output:
	// 2 0 <nil> true true
}
