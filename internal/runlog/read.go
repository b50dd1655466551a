package runlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sort"
)

// Limits of a file, for at most about 300 MB of memory.
const (
	maxLine    = 16 << 20 // bytes: records of epochs can include every layer
	maxNumbers = 1 << 25  // numbers in all records of a file
	maxColumns = 256
	maxRuns    = 1 << 10
)

// ErrLarge reports that a file exceeds a limit.
var ErrLarge = errors.New("too large")

// Run is the records of one run. A resumed run is one run.
type Run struct {
	// Source is the file's name.
	Source string
	// Job is nil, and Info has the seed alone, if the file has no such records.
	Job  *Job
	Info Info
	// Steps are the step records of rank 0, if any. Epochs are the epoch records of all ranks.
	Steps, Epochs Table
	// Ended reports whether the run has a summary.
	Ended bool
	// Evaluation is the newest record with the tables of an evaluation, as JSON; nil without one.
	Evaluation json.RawMessage

	before    float64 // seconds of the run before its last resumption
	evaluated bool    // an evaluation without its training
}

// Table is the records of one kind, ordered by step.
type Table struct {
	// Done is the number of the run's steps at each record, Epoch the epoch from 1, and WallS the
	// run's time in seconds; NaN: unknown.
	Done  []int64
	Epoch []int
	WallS []float64

	columns map[string][]float64
}

// Len returns the number of records.
func (t *Table) Len() int { return len(t.Done) }

// Column returns the values of a field by record, NaN if a record lacks the field; nil if all do.
func (t *Table) Column(name string) []float64 { return t.columns[name] }

// Names returns the sorted names of the columns.
func (t *Table) Names() []string { return slices.Sorted(maps.Keys(t.columns)) }

// cut removes the records after step done: a resumed run repeats these steps.
func (t *Table) cut(done int64) {
	n := sort.Search(len(t.Done), func(i int) bool { return t.Done[i] > done })
	t.Done, t.Epoch, t.WallS = t.Done[:n], t.Epoch[:n], t.WallS[:n]
	for name, c := range t.columns {
		t.columns[name] = c[:min(n, len(c))]
	}
}

// add appends a record.
func (t *Table) add(done int64, epoch int, wall float64, fields map[string]any) error {
	if t.columns == nil {
		t.columns = map[string][]float64{}
	}
	figures, fresh := map[string]float64{}, 0
	for name, v := range fields {
		if x, is := v.(float64); is && name != "done" && name != "epoch" && name != "wall_s" && name != "seed" {
			if figures[name] = x; t.columns[name] == nil {
				fresh++
			}
		}
	}
	if len(t.columns)+fresh > maxColumns { // checked before the table changes
		return fmt.Errorf("%w: more than %d fields", ErrLarge, maxColumns)
	}
	t.Done, t.Epoch, t.WallS = append(t.Done, done), append(t.Epoch, epoch), append(t.WallS, wall)
	for name := range figures {
		// A field that appears later, such as a metric that some samples lack, is unknown before.
		c := t.columns[name]
		t.columns[name] = append(c, slices.Repeat([]float64{math.NaN()}, len(t.Done)-1-len(c))...)
	}
	for name, c := range t.columns {
		x, known := figures[name]
		if !known {
			x = math.NaN()
		}
		t.columns[name] = append(c, x)
	}
	return nil
}

// thin reduces the table to at most most records; 0 means no limit. Two neighbours merge at the
// later one's step, with the mean of both.
func (t *Table) thin(most int) {
	for most > 0 && t.Len() > most {
		n := t.Len()
		half := func(c []float64, of func(a, b float64) float64) []float64 {
			for i := range n / 2 {
				c[i] = of(c[2*i], c[2*i+1])
			}
			if n%2 == 1 {
				c[n/2] = c[n-1]
			}
			return c[:(n+1)/2]
		}
		for i := range n / 2 {
			t.Done[i], t.Epoch[i] = t.Done[2*i+1], t.Epoch[2*i+1]
		}
		if n%2 == 1 {
			t.Done[n/2], t.Epoch[n/2] = t.Done[n-1], t.Epoch[n-1]
		}
		t.Done, t.Epoch = t.Done[:(n+1)/2], t.Epoch[:(n+1)/2]
		t.WallS = half(t.WallS, func(_, b float64) float64 { return b })
		for name, c := range t.columns {
			t.columns[name] = half(c, func(a, b float64) float64 { return SpreadOf([]float64{a, b}).Mean })
		}
	}
}

// mostEpochs limits the epoch records of a run if step records are limited.
const mostEpochs = 16 << 10

// Log collects the records of a job, line by line.
type Log struct {
	// Cut is the number of truncated lines, as in the log of a killed job. Log skips them.
	Cut int
	// Passed is the number of step records after the record of a later step; a rank with several
	// threads can write these. Log skips them.
	Passed int
	// Most, above 0, limits the step records of a run: above the limit, two neighbours merge, so
	// that a job without an end uses bounded memory. Earlier runs retain an eighth of the limit.
	// All epoch records are retained for sums and comparisons, up to 16,384 per run.
	Most int

	source  string
	job     *Job
	runs    []*Run
	numbers int
}

// NewLog returns an empty log of a file or a job.
func NewLog(source string) *Log { return &Log{source: source} }

// Runs returns the runs until now.
func (l *Log) Runs() []*Run { return l.runs }

// Read reads a whole file. Errors name the line, and include ErrLarge.
func Read(source string, from io.Reader) (*Log, error) {
	l := NewLog(source)
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine) // a file without line feeds fails before the memory is full
	for n := 1; ; n++ {
		more := lines.Scan()
		err := lines.Err()
		switch {
		case more:
			err = l.Add(lines.Bytes())
		case errors.Is(err, bufio.ErrTooLong):
			err = fmt.Errorf("%w: a line of more than %d bytes", ErrLarge, maxLine)
		case err == nil:
			return l, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", source, n, err)
		}
	}
}

// Add adds a line. Unknown kinds of records are ignored.
func (l *Log) Add(line []byte) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		if err.Error() == "unexpected end of JSON input" { // encoding/json exports no such error
			l.Cut++
			return nil
		}
		return fmt.Errorf("want a line of `ringo train --json`: %w", err)
	}
	if l.numbers += len(fields); l.Most == 0 && l.numbers > maxNumbers {
		return fmt.Errorf("%w: more than %d numbers", ErrLarge, maxNumbers)
	}
	switch fields["event"] {
	case "job":
		l.job = new(Job)
		return json.Unmarshal(line, l.job)
	case "run":
		return l.begin(line)
	case "step", "epoch":
		return l.record(fields)
	case "summary", "evaluation":
		if l.last() == nil && fields["event"] == "evaluation" { // a file of `ringo eval`
			fields["done"] = fields["step"]
			if err := l.record(fields); err != nil {
				return err
			}
			r := l.last()
			r.Ended, r.evaluated, r.Info.Model = true, true, fmt.Sprint(fields["model"])
		}
		if r := l.last(); r != nil {
			r.Ended = r.Ended || fields["event"] == "summary"
			if fields["classes"] != nil || fields["numbers"] != nil || fields["clicks"] != nil {
				r.Evaluation = bytes.Clone(line)
			}
		}
	}
	return nil
}

// last returns the current run, or nil before the first.
func (l *Log) last() *Run {
	if len(l.runs) == 0 {
		return nil
	}
	return l.runs[len(l.runs)-1]
}

// begin adds the record of a run that starts or resumes.
func (l *Log) begin(line []byte) error {
	var i Info
	if err := json.Unmarshal(line, &i); err != nil {
		return err
	}
	if r := l.last(); r != nil && i.Resumed != "" && r.Info.Seed == i.Seed {
		r.Job, r.Info, r.Ended = l.job, i, false
		r.Steps.cut(i.Done)
		r.Epochs.cut(i.Done)
		// The checkpoint has no write time: the time continues from the last record retained.
		r.before = 0
		for _, t := range []*Table{&r.Steps, &r.Epochs} {
			if n := t.Len(); n > 0 && t.WallS[n-1] > r.before {
				r.before = t.WallS[n-1]
			}
		}
		return nil
	}
	return l.new(i)
}

// new adds a run of the current job.
func (l *Log) new(i Info) error {
	if len(l.runs) == maxRuns {
		return fmt.Errorf("%w: more than %d runs", ErrLarge, maxRuns)
	}
	if r := l.last(); r != nil {
		r.Steps.thin(l.Most / 8)
	}
	l.runs = append(l.runs, &Run{Source: l.source, Job: l.job, Info: i})
	return nil
}

// record adds a step or an epoch record.
func (l *Log) record(fields map[string]any) error {
	number := func(name string) float64 {
		v, is := fields[name].(float64)
		if !is {
			return math.NaN()
		}
		return v
	}
	whole := func(name string) int64 {
		if v := number(name); v >= 0 && v < 1<<53 {
			return int64(v)
		}
		return 0
	}
	seed, epoch, done := uint64(whole("seed")), int(whole("epoch")), whole("done")
	r, kind := l.last(), fields["event"]
	if r == nil || r.older() && (r.Info.Seed != seed || r.Epochs.Len() > 0 && epoch <= r.Epochs.Epoch[r.Epochs.Len()-1]) {
		if err := l.new(Info{Seed: seed}); err != nil { // the file has no records of runs
			return err
		}
		r = l.last()
	}
	t := &r.Epochs
	if kind == "step" {
		t = &r.Steps
	}
	if done == 0 {
		done = int64(epoch) // older files lack the steps
	}
	if n := t.Len(); n > 0 && t.Done[n-1] >= done {
		if kind == "step" {
			l.Passed++
			return nil
		}
		return fmt.Errorf("the epoch after %d steps stands behind that after %d", done, t.Done[n-1])
	}
	if err := t.add(done, epoch, number("wall_s")+r.before, fields); err != nil {
		return err
	}
	if kind == "step" {
		t.thin(l.Most)
	} else if l.Most > 0 && t.Len() > mostEpochs {
		return fmt.Errorf("%w: more than %d epochs", ErrLarge, mostEpochs)
	}
	return nil
}

// older reports whether the file has no record of the run.
func (r *Run) older() bool { return r.Info.Event == "" }
