package runlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
)

// What is read of a file, so that none takes more than about 300 MB of memory.
const (
	maxLine    = 16 << 20 // bytes: records of epochs may tell of every layer
	maxNumbers = 1 << 25  // of all records of a file
	maxColumns = 256
	maxRuns    = 1 << 10
)

// ErrLarge says that a file holds more than is read.
var ErrLarge = errors.New("too large")

// Run is what a file tells of one run. A run that went on is one.
type Run struct {
	// Source is the file's name.
	Source string
	// Job is nil, and Info has the seed alone, of files that say neither.
	Job  *Job
	Info Info
	// Steps are rank 0's, where they were recorded, and Epochs all ranks'.
	Steps, Epochs Table
	// Ended says that the run has its summary.
	Ended bool

	before float64 // seconds that the run had taken when it last went on
}

// Table is records of one kind, in the order of steps.
type Table struct {
	// Done is after how many steps of the run each is, Epoch in which epoch, from 1, and WallS after how many seconds of the run; NaN: not
	// known.
	Done  []int64
	Epoch []int
	WallS []float64

	columns map[string][]float64
}

// Len is how many records there are.
func (t *Table) Len() int { return len(t.Done) }

// Column are the numbers of a field by record, NaN where one lacks it; nil where all do.
func (t *Table) Column(name string) []float64 { return t.columns[name] }

// Names are those of the columns, sorted.
func (t *Table) Names() (names []string) {
	for name := range t.columns {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// cut leaves out the records after so many steps: a run that goes on does those again.
func (t *Table) cut(done int64) {
	n := sort.Search(len(t.Done), func(i int) bool { return t.Done[i] > done })
	t.Done, t.Epoch, t.WallS = t.Done[:n], t.Epoch[:n], t.WallS[:n]
	for name, c := range t.columns {
		t.columns[name] = c[:min(n, len(c))]
	}
}

// add adds a record.
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
	if len(t.columns)+fresh > maxColumns { // before anything of the record is taken
		return fmt.Errorf("%w: more than %d fields", ErrLarge, maxColumns)
	}
	t.Done, t.Epoch, t.WallS = append(t.Done, done), append(t.Epoch, epoch), append(t.WallS, wall)
	n := len(t.Done)
	for name, x := range figures {
		c := t.columns[name]
		// A field that comes later than others, such as a metric that some samples do not have, is unknown before.
		for len(c) < n-1 {
			c = append(c, math.NaN())
		}
		t.columns[name] = append(c, x)
	}
	// So is one that this record lacks: all columns have a value for each record.
	for name, c := range t.columns {
		if len(c) < n {
			t.columns[name] = append(c, math.NaN())
		}
	}
	return nil
}

// thin brings the table to at most so many records, 0 for any number: of two neighbours one remains, where the later one is, with the
// mean of what both have.
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

// mostEpochs is how many records of epochs a run keeps where those of steps are bounded.
const mostEpochs = 16 << 10

// Log takes the records of a job, line by line, as they come.
type Log struct {
	// Cut is how many lines ended too early, as those do in which a job was killed; they are passed over.
	Cut int
	// Passed is how many records of steps came behind one of a later step, as those may of a rank's several threads; they are passed over.
	Passed int
	// Most, where it is above 0, is how many records of steps a run keeps: when there are more, two neighbours become
	// one, so that a job that goes on for ever takes no more than so much. Runs before the last one keep an eighth. Of epochs, which are
	// summed and compared, all are kept, up to 16,384 of a run.
	Most int

	source  string
	job     *Job
	runs    []*Run
	numbers int
}

// NewLog is one of a file's or a job's.
func NewLog(source string) *Log { return &Log{source: source} }

// Runs are those so far.
func (l *Log) Runs() []*Run { return l.runs }

// Read reads a whole file. Errors name the line; ErrLarge is among them.
func Read(source string, from io.Reader) (*Log, error) {
	l := NewLog(source)
	lines := bufio.NewReaderSize(from, 1<<16)
	for n := 1; ; n++ {
		line, err := readLine(lines)
		if len(line) > 0 {
			err = errors.Join(l.Add(line), ignoreEOF(err))
		} else if err == io.EOF {
			return l, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", source, n, err)
		}
	}
}

// ignoreEOF leaves out the end of a file behind its last line, which has no line feed where the job was killed.
func ignoreEOF(err error) error {
	if err == io.EOF { // it comes again
		return nil
	}
	return err
}

// readLine is the next line, with its end. It grows as its bytes come, up to maxLine: a file without line feeds is refused before it
// fills the memory.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxLine {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrLarge, maxLine)
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// Add takes a line. Kinds of records that it does not know it passes over.
func (l *Log) Add(line []byte) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		if err.Error() == "unexpected end of JSON input" { // which has no name
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
	case "summary":
		if r := l.last(); r != nil {
			r.Ended = true
		}
	}
	return nil
}

// last is the run whose records come, nil before the first.
func (l *Log) last() *Run {
	if len(l.runs) == 0 {
		return nil
	}
	return l.runs[len(l.runs)-1]
}

// begin takes the record of a run that begins or goes on.
func (l *Log) begin(line []byte) error {
	var i Info
	if err := json.Unmarshal(line, &i); err != nil {
		return err
	}
	if r := l.last(); r != nil && i.Resumed != "" && r.Info.Seed == i.Seed {
		r.Job, r.Info, r.Ended = l.job, i, false
		r.Steps.cut(i.Done)
		r.Epochs.cut(i.Done)
		// The checkpoint does not say when it was written: the time goes on from the last record that remains.
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

// new begins another run, of the job whose record came last.
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

// record takes the figures of a step or an epoch.
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
		if err := l.new(Info{Seed: seed}); err != nil { // of a file without records of runs
			return err
		}
		r = l.last()
	}
	t := &r.Epochs
	if kind == "step" {
		t = &r.Steps
	}
	if done == 0 {
		done = int64(epoch) // older files do not say
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

// older says that the file has no record of the run.
func (r *Run) older() bool { return r.Info.Event == "" }
