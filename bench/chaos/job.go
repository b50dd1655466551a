package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// markVar, in the environment of a job and of all that it starts, tells its processes
// from every other one of the machine.
const markVar = "CHAOS_JOB"

// line is one line of output and when it came.
type line struct {
	At   time.Time
	Text string
}

// transcript keeps what a job writes, line by line.
type transcript struct {
	mu    sync.Mutex
	lines []line
	rest  string // a line that has not ended yet
}

// Write never fails.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := strings.Split(t.rest+string(p), "\n")
	for _, text := range parts[:len(parts)-1] {
		t.lines = append(t.lines, line{time.Now(), text})
	}
	t.rest = parts[len(parts)-1]
	return len(p), nil
}

// String returns all of it.
func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, l := range t.lines {
		b.WriteString(l.Text + "\n")
	}
	return b.String() + t.rest
}

// first returns when the first line came that matches, or false.
func (t *transcript) first(pattern *regexp.Regexp) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lines {
		if pattern.MatchString(l.Text) {
			return l.At, true
		}
	}
	return time.Time{}, false
}

// job is one process of ringo that a case has started, with all that this starts.
type job struct {
	cmd       *exec.Cmd
	args      []string
	mark      string
	temporary string // where its temporary files go
	dir       string
	out, errs transcript
	done      chan struct{}
	ended     time.Time // after done
}

var jobs atomic.Int64 // numbers marks

// start starts ringo with arguments, in folder dir and with variables added to its
// environment. What it writes is kept in dir as well when it ends.
func (s *setup) start(dir string, args []string, env ...string) (*job, error) {
	number := jobs.Add(1)
	j := &job{
		args: args, dir: dir, done: make(chan struct{}), temporary: filepath.Join(dir, fmt.Sprintf("tmp-%d", number)),
		mark: fmt.Sprintf("%s=%d.%d", markVar, os.Getpid(), number),
	}
	if err := os.MkdirAll(j.temporary, 0o755); err != nil {
		return nil, err
	}
	j.cmd = exec.Command(s.Ringo, args...)
	j.cmd.Dir = dir
	j.cmd.Env = append(append(os.Environ(), j.mark, "TMPDIR="+j.temporary), env...)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.errs
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.cmd.WaitDelay = 5 * time.Second // what is left may hold the pipes open
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = j.cmd.Wait() // its state says how it ended
		j.ended = time.Now()
		close(j.done)
	}()
	return j, nil
}

// over tells whether the job has ended.
func (j *job) over() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// await polls until something is so, the job has ended, or limit is over; it tells
// whether it is so.
func (j *job) await(limit time.Duration, so func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if so() {
			return true
		}
		if j.over() {
			return so()
		}
	}
	return false
}

// says tells whether a line of stdout or stderr matches.
func (j *job) says(pattern *regexp.Regexp) bool {
	_, out := j.out.first(pattern)
	_, errs := j.errs.first(pattern)
	return out || errs
}

// finish waits for the end of the job, kills it when limit is over, and says how it
// ended. Processes of a job that has ended get a few seconds to end as well.
func (j *job) finish(limit time.Duration) ending {
	var e ending
	select {
	case <-j.done:
	case <-time.After(limit):
		e.Overran = true
		e.Leaked = append(e.Leaked, j.tally()...)
	}
	if !e.Overran {
		for end := time.Now().Add(leftLimit); len(j.processes()) > 0 && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
		e.Leaked = append(e.Leaked, j.tally()...)
	}
	j.end()
	e.Status, e.PeakMiB = j.cmd.ProcessState.ExitCode(), peakMiB(j.cmd.ProcessState)
	e.Out, e.Errs = j.out.String(), j.errs.String()
	if !e.Overran {
		e.Leaked = append(e.Leaked, filesBelow(j.temporary, e.Errs)...)
	}
	j.keep(e)
	return e
}

// leftLimit is how long processes may outlive the launcher that was waited for.
const leftLimit = 5 * time.Second

// tally names the processes that are left.
func (j *job) tally() []string {
	var out []string
	for _, p := range j.processes() {
		out = append(out, "process "+p.String())
	}
	return out
}

// end kills all of the job that is left, and returns when its output is whole.
func (j *job) end() {
	for !j.over() || len(j.processes()) > 0 {
		if !j.over() {
			_ = j.cmd.Process.Kill()
		}
		for _, p := range j.processes() {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		select {
		case <-j.done:
			time.Sleep(5 * time.Millisecond)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// keep writes down what the job said, for --keep.
func (j *job) keep(e ending) {
	text := fmt.Sprintf("ringo %s\nexit status %d\n--- stdout\n%s\n--- stderr\n%s\n", strings.Join(j.args, " "), e.Status, e.Out, e.Errs)
	_ = os.WriteFile(j.temporary+".txt", []byte(text), 0o644) // only a help to who looks for a cause
}

// run runs ringo to its end.
func (s *setup) run(dir string, args []string, limit time.Duration) (ending, error) {
	j, err := s.start(dir, args)
	if err != nil {
		return ending{}, err
	}
	return j.finish(limit), nil
}

// filesBelow lists the files in a folder, but for a black box, of which the job has told.
func filesBelow(dir, told string) []string {
	var out []string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(told, "ringo blackbox "+path+"\n") {
			out = append(out, "file "+path)
		}
		return nil
	})
	return out
}

// copyTree copies a folder of plain files and folders.
func copyTree(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }
