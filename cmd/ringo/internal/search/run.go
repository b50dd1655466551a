package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/runlog"
)

// grace is the time for an interrupted trial's processes to end.
const grace = 20 * time.Second

// Config configures a search.
type Config struct {
	Plan   Plan
	Space  Space
	Trials []Trial
	// Program is the path of ringo, and Args are its arguments for a trial before the trial's
	// settings.
	Program string
	Args    []string
	// Folder is the search's folder: new, empty, or of the same search, which continues.
	Folder string
	// Parallel is the number of trials at the same time, each on its share of the processors.
	Parallel int
	// Metric is the compared metric; "" means the model's main one. Best compares the best
	// evaluation of a run, not the last.
	Metric string
	Best   bool
	// Begin is called when the folder is open.
	Begin func()
	// Report is called after each trial, in the order of their ends, with the results
	// until then. restored is true for a result of an earlier process.
	Report func(s Search, r Result, restored bool)
}

// Search is the results of a search, with the metric that compares them.
type Search struct {
	Space   Space
	Results []Result // best first, failed last
	Metric  runlog.Metric
}

// usageStatus is the exit status of ringo for invalid settings.
const usageStatus = 2

// Run runs the trials without a result, several at a time. A failed trial is a result; a trial
// with invalid settings ends the search, as do the context and an error of the folder. An
// interrupted trial has no result, and a repeated call runs it again.
func Run(ctx context.Context, cfg Config) (Search, error) {
	f, err := openFolder(cfg.Folder, cfg.Plan)
	if err != nil {
		return Search{}, err
	}
	cfg.Begin()
	out, err := cfg.run(ctx, f)
	return out, errors.Join(err, f.lock.Release())
}

func (c Config) run(ctx context.Context, f *folder) (Search, error) {
	out := Search{Space: c.Space}
	var open []Trial
	for _, t := range c.Trials {
		r, done, err := f.stored(t, c.Space)
		if err != nil {
			return out, err
		}
		if !done {
			open = append(open, t)
			continue
		}
		if err := c.add(&out, r, true); err != nil {
			return out, err
		}
	}
	if err := c.runOpen(ctx, f, open, &out); err != nil {
		return out, err
	}
	Sort(out.Results, out.Metric)
	if len(out.Results) > 0 && out.Results[0].Failed() {
		return out, fmt.Errorf("all %d trials failed; the first: %s", len(out.Results), out.Results[0].Error)
	}
	return out, nil
}

// add adds a result. All results must have the same metric.
func (c Config) add(out *Search, r Result, restored bool) error {
	if !r.Failed() {
		m, err := r.measure(c.Metric, c.Best)
		if err != nil {
			return fmt.Errorf("trial %d: %w", r.Number, err)
		}
		if out.Metric.Name != "" && out.Metric.Name != m.Name {
			return fmt.Errorf("trial %d is evaluated by %s, and others by %s: choose one with --metric", r.Number, m.Name, out.Metric.Name)
		}
		out.Metric = m
	}
	out.Results = append(out.Results, r)
	c.Report(*out, r, restored)
	return nil
}

// runOpen runs trials, Parallel at a time, until an error.
func (c Config) runOpen(ctx context.Context, f *folder, open []Trial, out *Search) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type end struct {
		r   Result
		err error
	}
	ends, queue := make(chan end), make(chan Trial)
	shares := shareOut(placement.Allowed(), c.Parallel)
	for slot := range c.Parallel {
		go func() {
			for t := range queue {
				r, err := c.trial(ctx, f, t, shares[slot])
				ends <- end{r, err}
			}
		}()
	}
	defer close(queue)
	var first error
	for running := 0; running > 0 || len(open) > 0 && first == nil; {
		var next chan Trial
		var t Trial
		if len(open) > 0 && first == nil {
			next, t = queue, open[0]
		}
		select {
		case next <- t:
			open, running = open[1:], running+1
		case e := <-ends:
			running--
			if e.err == nil {
				e.err = c.add(out, e.r, false)
			}
			if e.err != nil && first == nil {
				first = e.err
				cancel(e.err)
			}
		}
	}
	return first
}

// shareOut divides processors among n slots; all slots have nil where processors cannot be chosen,
// or where there are fewer processors than slots.
func shareOut(cpus []int, n int) [][]int {
	out := make([][]int, n)
	if len(cpus) < n || n == 1 {
		return out
	}
	for i := range out {
		out[i] = cpus[i*len(cpus)/n : (i+1)*len(cpus)/n]
	}
	return out
}

// trial runs one trial and stores the result.
func (c Config) trial(ctx context.Context, f *folder, t Trial, cpus []int) (Result, error) {
	r := Result{Outcome: Outcome{Event: "trial", Number: t.Number, Settings: map[string]string{}}}
	for i, a := range c.Space {
		r.Settings[string(a.Path)] = t.Values[i]
	}
	dir := f.trial(t.Number)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o777)); err != nil {
		return r, err
	}
	began := time.Now()
	err := c.start(ctx, f, t, cpus)
	r.WallS = time.Since(began).Seconds()
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if err != nil {
		var exit *exec.ExitError
		reason := cmp.Or(lastLine(filepath.Join(dir, "log.txt")), err.Error())
		if !errors.As(err, &exit) || exit.ExitCode() == usageStatus {
			return r, fmt.Errorf("trial %d (%s): %s", t.Number, r.text(c.Space), reason)
		}
		r.Error = reason
	} else if r.log, err = ReadRecords(f.records(t.Number)); err != nil {
		return r, err
	}
	return r, writeJSON(filepath.Join(dir, "result.json"), r.Outcome)
}

// start runs the process of a trial, with its output in log.txt, bound to cpus.
func (c Config) start(ctx context.Context, f *folder, t Trial, cpus []int) error {
	log, err := os.Create(filepath.Join(f.trial(t.Number), "log.txt"))
	if err != nil {
		return err
	}
	defer log.Close()
	args := slices.Clone(c.Args)
	for i, a := range c.Space {
		args = append(args, "--set", string(a.Path)+"="+t.Values[i])
	}
	args = append(args, "--progress", "plain", "--json", f.records(t.Number))
	cmd := exec.CommandContext(ctx, c.Program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	if err := startOn(cmd, cpus); err != nil {
		return err
	}
	return cmd.Wait()
}

// startOn starts a command on some processors, which a child process inherits from the thread.
func startOn(cmd *exec.Cmd, cpus []int) error {
	if cpus == nil {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if undo, err := placement.BindThread(cpus); err == nil { // otherwise trials share all processors
		defer undo()
	}
	return cmd.Start()
}

// tail is the number of bytes at a log's end that lastLine reads.
const tail = 4 << 10

// lastLine returns the last line of a log that ringo prints for an error, or the last line.
func lastLine(path string) string {
	f, err := pathname.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		_, _ = f.Seek(max(0, info.Size()-tail), io.SeekStart)
	}
	text, _ := io.ReadAll(f)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, l := range slices.Backward(lines) {
		if reason, ok := strings.CutPrefix(l, "ringo: "); ok {
			return reason
		}
	}
	return lines[len(lines)-1]
}

// text returns a result's settings as PATH=VALUE words.
func (r Result) text(space Space) string {
	var words []string
	for _, a := range space {
		words = append(words, string(a.Path)+"="+r.Settings[string(a.Path)])
	}
	return strings.Join(words, " ")
}
