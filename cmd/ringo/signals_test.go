package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/freeport"
)

// stopLine is what is said when all ranks stop, with the step.
var stopLine = regexp.MustCompile(`ringo: (SIG\w+): all ranks stop after step (\d+), save the run in (\S+) and end, within 25s`)

// checkStopped wants a job that a signal has stopped, with one line and a last checkpoint of the step that it tells.
func checkStopped(p *program, sig syscall.Signal, dir string) {
	p.t.Helper()
	name := unix.SignalName(sig)
	p.checkEnd(128+int(sig), "ringo: stopped by "+name+" after step ", ", saved in "+dir+": --resume continues from there\n")
	lines := stopLine.FindAllStringSubmatch(p.errs.String(), -1)
	if len(lines) != 1 || lines[0][1] != name || lines[0][3] != dir {
		p.t.Fatalf("%s: %q, want one line of %s and %s; stderr:\n%s", p.line, lines, name, dir, &p.errs)
	}
	if got, want := lastStep(dir), lines[0][2]; strconv.FormatInt(got, 10) != want {
		p.t.Errorf("%s: the last checkpoint is of step %d, want %s", p.line, got, want)
	}
}

// A job that a signal has stopped goes on from where it was stopped, and ends with the parameters of one that never was.
func TestStoppedAndResumed(t *testing.T) {
	t.Parallel()
	job := endless + "--momentum 0.9 "
	ctr := strings.Replace(fewClicks, "--epochs 1 ", "--epochs 1000000 ", 1) + "--np 2 --sync bsp --servers 2 "
	for _, c := range []struct {
		name, line string
		perEpoch   int64
		sig        syscall.Signal
		long       bool
	}{
		{"one process", job, 100, syscall.SIGHUP, false},
		{"goroutines", job + "--np 2 --transport mem ", 50, syscall.SIGINT, true},
		{"processes", job + "--np 2 --strategy dlgs --spars 0.02 --set exchange.dlgs-every=5 ", 50, syscall.SIGTERM, false},
		{"servers that sum", job + "--np 2 --sync aggregate --servers 1 ", 50, syscall.SIGINT, true},
		{"servers that keep parameters", ctr, 7, syscall.SIGTERM, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("three runs")
			}
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "saved")
			p := start(t, c.line+"--checkpoint "+dir+" --checkpoint-every 37 ")
			awaitSteps(p, dir, 1)
			p.cmd.Process.Signal(c.sig)
			checkStopped(p, c.sig, dir)
			// The job is endless, and the run that never stopped as long as the resumed one: an epoch more than was begun.
			epochs := fmt.Sprintf("--epochs %d ", lastStep(dir)/c.perEpoch+2)
			line := strings.Replace(c.line, "--epochs 1000000 ", epochs, 1)
			want := hashOf(t, line)
			status, out, errs := command(t, line+"--checkpoint "+dir+" --resume")
			if status != 0 || sha(t, out) != want {
				t.Errorf("status %d, stderr %s, stdout %s, want sha256 %s", status, errs, out, want)
			}
		})
	}
}

// One of the ranks that are started by hand is told to end: all stop.
func TestStoppedByHand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "saved")
	address, ticket := freeport.Address(t), ticket()
	zero := byHand(t, endless+"--checkpoint "+dir, "0", address, ticket)
	one := byHand(t, endless+"--checkpoint "+dir, "1", address, ticket)
	awaitSteps(zero, dir, 1)
	one.cmd.Process.Signal(syscall.SIGTERM)
	zero.checkEnd(128+int(syscall.SIGTERM), "stopped by SIGTERM after step ") // it writes the file
	checkStopped(one, syscall.SIGTERM, dir)
}

// A worker that gets the signal, too, as of a scheduler that tells all processes of a job, takes part in the last checkpoint.
func TestAllProcessesAreTold(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "saved")
	p := start(t, endless+"--np 2 --checkpoint "+dir)
	awaitSteps(p, dir, 1)
	for _, pid := range []int{p.worker(1), p.cmd.Process.Pid, p.worker(0)} {
		syscall.Kill(pid, syscall.SIGTERM)
	}
	checkStopped(p, syscall.SIGTERM, dir)
}

// By the second signal a job ends at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "saved")
	p := start(t, endless+"--np 2 --checkpoint "+dir)
	awaitSteps(p, dir, 1)
	stopped := p.worker(1) // it does not answer: the ranks cannot agree
	syscall.Kill(stopped, syscall.SIGSTOP)
	p.cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(50 * time.Millisecond) // two of them at once might come as one
	p.cmd.Process.Signal(syscall.SIGINT)
	p.checkEnd(128+int(syscall.SIGINT), "ringo: interrupted by SIGINT\n")
}

// A job whose output is no longer read, as by `head -1`, saves its last step and reports the reason
// on stderr, if that is read.
func TestReaderEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags string
		both  bool // stderr ends in the same pipe
	}{{"--np 1", false}, {"--np 2", false}, {"--np 2 --transport mem", true}, {"--np 2", true}} {
		t.Run(fmt.Sprintf("%s %v", c.flags, c.both), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "saved")
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			var errs buffer
			cmd := exec.Command(os.Args[0], words(endless+c.flags+" --progress plain --checkpoint "+dir)...)
			if cmd.Stdout, cmd.Stderr = w, &errs; c.both {
				cmd.Stderr = w
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			// The reader ends after the first epoch: a run that ends before its first step has nothing to save.
			for lines := bufio.NewReader(r); ; {
				if line, err := lines.ReadString('\n'); err != nil || strings.HasPrefix(line, "epoch") {
					if err != nil {
						t.Error(err)
					}
					break
				}
			}
			r.Close()
			late := time.AfterFunc(patience, func() { cmd.Process.Kill() })
			defer late.Stop()
			if cmd.Wait(); cmd.ProcessState.ExitCode() != 141 || lastStep(dir) == 0 {
				t.Errorf("%v, the last checkpoint is of step %d; stderr:\n%s", cmd.ProcessState, lastStep(dir), errs.String())
			}
			if !c.both {
				checkHolds(t, "stderr", errs.String(), "ringo: standard output: its reader has ended", "broken pipe", "ringo: stopped by SIGPIPE after step ", "saved in "+dir)
			}
		})
	}
}

// The end of the reader after a signal, as when Ctrl-C ends `tee`, too, is no second signal: the
// job still saves.
func TestReaderEndsAfterSignal(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &signals{cancel: cancel}
	came := make(chan string, 2)
	s.onFirst(func(name string) bool { came <- name; return true })
	s.take("SIGINT")
	var said strings.Builder
	s.readerEnded("standard output", syscall.EPIPE, &said)
	if name := <-came; name != "SIGINT" || ctx.Err() != nil || said.String() == "" {
		t.Errorf("%s, %v, %q", name, context.Cause(ctx), said.String())
	}
}

// What nohup has had ignored stays ignored.
func TestIgnoredHangUp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "saved")
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Skip("there is no nohup")
	}
	p := startAs(t, []string{nohup, os.Args[0]}, nil, endless+"--np 2 --checkpoint "+dir)
	awaitSteps(p, dir, 1)
	p.cmd.Process.Signal(syscall.SIGHUP)
	awaitMore(p, dir)
	p.cmd.Process.Signal(syscall.SIGTERM)
	checkStopped(p, syscall.SIGTERM, dir)
}

// awaitMore waits for a checkpoint of a later step than there is now.
func awaitMore(p *program, dir string) {
	p.t.Helper()
	was := lastStep(dir)
	eventually(p.t, p.line+" to go on", func() bool { return lastStep(dir) > was })
}

// lastStep is that of a folder's last checkpoint, 0 for none.
func lastStep(dir string) int64 {
	steps, _ := checkpoint.Steps(dir)
	return slices.Max(append(steps, 0))
}

// A launcher that is suspended suspends its job, and goes on with it, however long that was against --heartbeat-timeout. One
// that alone was stopped goes on, too: its ranks have not taken it for dead. Nor does --timeout count that time.
func TestSuspended(t *testing.T) {
	t.Parallel()
	const short = "--heartbeat-timeout 1s --timeout 2s "
	for _, c := range []struct {
		name, line string
		sig        syscall.Signal
	}{
		{"suspended", endless + "--np 2 " + short, syscall.SIGTSTP},
		{"suspended over TCP", endless + "--np 2 --transport tcp " + short, syscall.SIGTSTP},
		{"stopped alone", endless + "--np 2 " + short, syscall.SIGSTOP},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "saved")
			// A group of its own, of which the test takes care as a shell does.
			p := startAs(t, []string{os.Args[0]}, &syscall.SysProcAttr{Setpgid: true}, c.line+"--checkpoint "+dir)
			awaitSteps(p, dir, 1)
			pids := []int{p.cmd.Process.Pid}
			if c.sig == syscall.SIGTSTP {
				pids = append(pids, p.worker(0), p.worker(1))
			}
			p.cmd.Process.Signal(c.sig)
			for _, pid := range pids {
				eventually(t, fmt.Sprintf("process %d to stop", pid), func() bool { return stateOf(pid) == "T" })
			}
			time.Sleep(2500 * time.Millisecond) // longer than --timeout, and than one may show no sign of life
			p.cmd.Process.Signal(syscall.SIGCONT)
			awaitMore(p, dir)
			if text := p.errs.String(); text != "" {
				t.Errorf("%s says\n%s", p.line, text)
			}
			p.cmd.Process.Signal(syscall.SIGTERM)
			checkStopped(p, syscall.SIGTERM, dir)
		})
	}
}

// stateOf is the state of a process: R, S, T and so on.
func stateOf(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // "": it has ended
	_, rest, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// What the first and the second signal do, and the exit status of each.
func TestSignals(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &signals{cancel: cancel}
	var told []string
	came := make(chan string, 2)
	s.onFirst(func(name string) bool { came <- name; return true })
	s.take("SIGTERM")
	told = append(told, <-came)
	if ctx.Err() != nil {
		t.Error("the first signal, which a job heeds, has ended the context")
	}
	s.take("SIGHUP")
	<-ctx.Done()
	if len(told) != 1 || len(came) != 0 || context.Cause(ctx).Error() != "interrupted by SIGHUP" {
		t.Errorf("told %v, %d more, cause %v", told, len(came), context.Cause(ctx))
	}
	if status, text := outcome(ctx, ctx.Err()); status != 129 || text != "interrupted by SIGHUP" {
		t.Errorf("status %d, %q", status, text)
	}
	ctx, cancel = context.WithCancelCause(context.Background())
	s = &signals{cancel: cancel}
	s.onFirst(func(string) bool { return false }) // nothing can be saved
	s.take("SIGINT")
	<-ctx.Done()
	if statusOf("SIGINT") != 130 || statusOf("SIGTERM") != 143 || statusOf("what") != exitInterrupted {
		t.Error("exit statuses")
	}
}
