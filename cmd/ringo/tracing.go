package main

import (
	"fmt"
	"io"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/watch/trace"
)

// tracing is the configuration of --trace: the file and the number of steps.
type tracing string

// traceSteps is the number of recorded steps: enough for every kind of step, and few enough for a
// viewer in a browser.
const traceSteps = 200

// traced is a rank's timeline for the duration of a command. line is nil without --trace.
type traced struct {
	job  *ringo.Job
	path string
	line *trace.Timeline
}

// begin creates a rank's timeline. It is a collective call.
func (t tracing) begin(job *ringo.Job) (*traced, error) {
	out := &traced{job: job, path: string(t)}
	if t == "" {
		return out, nil
	}
	var err error
	if out.line, err = trace.New(job.Recorder(), trace.Config{Steps: traceSteps}); err == nil {
		job.SetStatus("aligning the clocks of the ranks")
		err = out.line.Align(job.Group())
	}
	if err != nil {
		out.line.Close()
	}
	return out, err
}

// end writes the timeline and prints the path. After an error of the traced run, the ranks' spans
// cannot be gathered: end writes no file and returns err. It is a collective call if err is nil on
// every rank.
func (t *traced) end(err error, say io.Writer) error {
	if t.line == nil {
		return err
	}
	defer t.line.Close()
	if err != nil {
		if t.job.Rank() == 0 {
			err = fmt.Errorf("%w (no timeline in %s: a timeline is written only after a successful run)", err, t.path)
		}
		return err
	}
	t.job.SetStatus("writing the timeline")
	if t.job.Rank() > 0 {
		return t.line.Write(t.job.Group(), nil)
	}
	if err := dirlock.WriteFile(t.path, func(w io.Writer) error { return t.line.Write(t.job.Group(), w) }); err != nil {
		return fmt.Errorf("the timeline: %w", err)
	}
	spans, dropped := t.line.SpanCounts()
	text := fmt.Sprintf("timeline of %s in %s: open it with ui.perfetto.dev", cli.Counted(t.job.Size(), "rank"), t.path)
	if dropped > 0 {
		text += fmt.Sprintf("; cut: it has the first %s of each rank and leaves out %s", cli.Counted(spans, "span"), cli.Grouped(int(dropped)))
	}
	fmt.Fprintln(say, text)
	return nil
}
